#include "text/compose.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Hangul syllables are composed by arithmetic (Unicode Standard 3.12). */
enum {
    S_BASE = 0xAC00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

void scalars_free(Scalars *s)
{
    free(s->v);
    *s = (Scalars){0};
}

uint8_t unicode_dense[2][UNICODE_DENSE];
atomic_bool unicode_dense_ready;

static void make_dense(void)
{
    for (uint32_t c = 0, i = 0; c < UNICODE_DENSE; c++) {
        if (unicode_runs[i + 1] >> 8 == c) i++;
        unicode_dense[UNICODE_PYTHON][c] = (uint8_t)(2 * (unicode_runs[i] & 255) + (c - (unicode_runs[i] >> 8)) % 2);
    }
    memcpy(unicode_dense[UNICODE_LIBRARY], unicode_dense[UNICODE_PYTHON], UNICODE_DENSE);
    for (const UnicodeDifference *d = unicode_differences; d < unicode_differences + UNICODE_DIFFERENCES; d++)
        memset(unicode_dense[UNICODE_LIBRARY] + d->first, 2 * d->kind, d->last - d->first + 1);
    atomic_store_explicit(&unicode_dense_ready, true, memory_order_release);
}

UnicodeRecord unicode_record_slow(UnicodeSource source, uint32_t scalar)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_dense);
    if (scalar < UNICODE_DENSE) return unicode_record_of(source, scalar);
    int i = UNICODE_RUNS - 1;
    while (unicode_runs[i] >> 8 > scalar) i--;
    return unicode_kinds[unicode_runs[i] & 255][(scalar - (unicode_runs[i] >> 8)) % 2];
}

static int compare_lower(const void *scalar, const void *range)
{
    uint32_t c = *(const uint32_t *)scalar;
    const UnicodeLower *r = range;
    return (c > r->last) - (c < r->first);
}

int unicode_lowered(uint32_t scalar, uint32_t out[2])
{
    out[0] = scalar;
    if (scalar == 0x130) { /* the only one that becomes two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    const UnicodeLower *r = bsearch(&scalar, unicode_lower, UNICODE_LOWER, sizeof *r, compare_lower);
    if (r && (scalar - r->first) % r->step == 0) out[0] += (uint32_t)r->delta;
    return 1;
}

static int compare_composed(const void *scalar, const void *index)
{
    uint32_t c = *(const uint32_t *)scalar, composed = unicode_pairs[*(const uint16_t *)index].composed;
    return (c > composed) - (c < composed);
}

static int compare_single(const void *scalar, const void *single)
{
    uint32_t c = *(const uint32_t *)scalar, from = *(const uint32_t *)single;
    return (c > from) - (c < from);
}

/* Appends the full decomposition of `c`, which is `c` itself if nothing decomposes it. */
static void decompose(UnicodeSource source, Scalars *out, uint32_t c)
{
    uint32_t s = c - S_BASE;
    if (s < S_COUNT) {
        scalars_push(out, L_BASE + s / (V_COUNT * T_COUNT));
        scalars_push(out, V_BASE + s / T_COUNT % V_COUNT);
        if (s % T_COUNT) scalars_push(out, T_BASE + s % T_COUNT);
        return;
    }
    if (unicode_record_of(source, c).bits & UC_DECOMPOSES) {
        const uint16_t *i = bsearch(&c, unicode_by_composed, UNICODE_PAIRS, sizeof *i, compare_composed);
        if (i) {
            decompose(source, out, unicode_pairs[*i].first);
            scalars_push(out, unicode_pairs[*i].second);
        } else {
            const uint32_t *single =
                bsearch(&c, unicode_single, UNICODE_SINGLE, sizeof *unicode_single, compare_single);
            decompose(source, out, single[1]);
        }
        return;
    }
    scalars_push(out, c);
}

static int compare_pairs(const void *x, const void *y)
{
    const UnicodePair *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->second > b->second) - (a->second < b->second);
}

/* 0 if the two do not compose. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT) {
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    }
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 && second - T_BASE - 1 < T_COUNT - 1) {
        return first + (second - T_BASE);
    }
    UnicodePair key = {first, second, 0};
    const UnicodePair *pair = bsearch(&key, unicode_pairs, UNICODE_COMPOSED, sizeof key, compare_pairs);
    return pair ? pair->composed : 0;
}

/* Stable order of v (n), all of them non-starters, by combining class. */
static void order_marks(UnicodeSource source, uint32_t *v, size_t n, uint32_t *scratch)
{
#define CLASS(scalar) unicode_record_of(source, scalar).combining
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t c = v[i];
            uint8_t class = CLASS(c);
            size_t j = i;
            for (; j > 0 && CLASS(v[j - 1]) > class; j--) v[j] = v[j - 1];
            v[j] = c;
        }
        return;
    }
    size_t place[256] = {0};
    for (size_t i = 0; i < n; i++) place[CLASS(v[i])]++;
    for (size_t class = 0, sum = 0; class < 256; class ++) {
        size_t here = place[class];
        place[class] = sum;
        sum += here;
    }
    for (size_t i = 0; i < n; i++) scratch[place[CLASS(v[i])]++] = v[i];
#undef CLASS
    memcpy(v, scratch, n * sizeof *v);
}

void scalars_nfd(UnicodeSource source, Scalars *s, Scalars *scratch)
{
    scratch->count = 0;
    for (size_t i = 0; i < s->count; i++) decompose(source, scratch, s->v[i]);
    Scalars swap = *s;
    *s = *scratch;
    *scratch = swap;
    if (scratch->cap < s->count) {
        scratch->v = mem_resize(scratch->v, s->cap, sizeof *scratch->v);
        scratch->cap = s->cap;
    }
    for (size_t i = 0; i < s->count;) {
        size_t start = i;
        while (i < s->count && unicode_record_of(source, s->v[i]).combining) i++;
        if (i - start > 1) order_marks(source, s->v + start, i - start, scratch->v);
        if (i == start) i++;
    }
}

void scalars_nfc(Scalars *s, Scalars *scratch)
{
    scalars_nfd(UNICODE_PYTHON, s, scratch);
    size_t kept = 0, starter = SIZE_MAX; /* index of the last starter among those kept */
    int before = 0;                      /* class of the last one kept after it, 0 if none */
    for (size_t i = 0; i < s->count; i++) {
        uint32_t c = s->v[i];
        int class = unicode_record(c).combining;
        bool adjacent = starter != SIZE_MAX && kept == starter + 1;
        if (starter != SIZE_MAX && (adjacent || (before && before < class))) {
            uint32_t composed = compose(s->v[starter], c);
            if (composed) {
                s->v[starter] = composed;
                continue;
            }
        }
        if (class == 0) starter = kept;
        before = class;
        s->v[kept++] = c;
    }
    s->count = kept;
}
