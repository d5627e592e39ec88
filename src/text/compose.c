#include "text/compose.h"

#include <pthread.h>

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
uint16_t unicode_ascii[256];
atomic_bool unicode_dense_ready;
static UnicodeLower unicode_lower[UNICODE_LOWER];
static UnicodePair unicode_pairs[UNICODE_PAIRS], unicode_composed[UNICODE_COMPOSED];

/* Reads one number of a list in unicode_tables.h. */
static uint32_t read_number(const char **text)
{
    uint32_t number = 0;
    while (**text < '@') number = 28 * number + (uint32_t)(*(*text)++ - '#');
    uint32_t last = (uint32_t)(*(*text)++ - '@');
    return 62 * number + last - (last > '\\' - '@');
}

static int compare_pairs(const void *x, const void *y)
{
    const UnicodePair *a = x, *b = y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->second > b->second) - (a->second < b->second);
}

static void make_pairs(void)
{
    const char *text = unicode_pairs_text;
    size_t n = 0;
    for (uint32_t i = 0, c = 0; i < UNICODE_PAIRS; i++) {
        c += read_number(&text);
        uint32_t first = read_number(&text), second = read_number(&text);
        unicode_pairs[i] = (UnicodePair){c, first, second};
        if (second && !(unicode_records[unicode_dense[UNICODE_PYTHON][c]].bits & UC_NFC))
            unicode_composed[n++] = unicode_pairs[i];
    }
    qsort(unicode_composed, n, sizeof *unicode_composed, compare_pairs);
}

static void make_lower(void)
{
    const char *text = unicode_lower_text;
    for (uint32_t i = 0, c = 0; i < UNICODE_LOWER; i++) {
        uint32_t first = c + read_number(&text), n = read_number(&text), delta = read_number(&text), step = 1 + n % 2;
        c = first + (n / 2 - 1) * step;
        unicode_lower[i] = (UnicodeLower){first, c, step, (int32_t)(delta / 2) * (delta % 2 ? -1 : 1) - (delta % 2)};
    }
}

static void make_tables(void)
{
    uint8_t *python = unicode_dense[UNICODE_PYTHON], *library = unicode_dense[UNICODE_LIBRARY];
    const char *text = unicode_runs;
    for (uint32_t c = 0; c < UNICODE_DENSE;) {
        uint32_t n = read_number(&text), kinds[2] = {read_number(&text)};
        kinds[1] = n % 2 ? read_number(&text) : kinds[0];
        for (uint32_t i = 0; i < n / 2; i++) python[c++] = (uint8_t)kinds[i % 2];
    }
    memcpy(library, python, UNICODE_DENSE);
    text = unicode_differences;
    for (int i = 0; i < UNICODE_DIFFERENCES; i++) {
        library += read_number(&text);
        uint32_t n = read_number(&text);
        memset(library, (int)read_number(&text), n);
        library += n;
    }
    for (int c = 0; c < 0x80; c++) unicode_ascii[c] = unicode_records[python[c]].bits;
    make_lower();
    make_pairs();
    atomic_store_explicit(&unicode_dense_ready, true, memory_order_release);
}

UnicodeRecord unicode_record_slow(UnicodeSource source, uint32_t scalar)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
    if (scalar < UNICODE_DENSE) return unicode_record_of(source, scalar);
    int i = UNICODE_BEYOND - 1;
    while (unicode_beyond[i].first > scalar) i--;
    return unicode_beyond[i].records[source];
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

static int compare_composed(const void *scalar, const void *pair)
{
    uint32_t c = *(const uint32_t *)scalar, composed = ((const UnicodePair *)pair)->composed;
    return (c > composed) - (c < composed);
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
        const UnicodePair *pair = bsearch(&c, unicode_pairs, UNICODE_PAIRS, sizeof *pair, compare_composed);
        decompose(source, out, pair->first);
        if (pair->second) scalars_push(out, pair->second);
        return;
    }
    scalars_push(out, c);
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
    UnicodePair key = {.first = first, .second = second};
    const UnicodePair *pair = bsearch(&key, unicode_composed, UNICODE_COMPOSED, sizeof key, compare_pairs);
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
