#include "text/compose.h"

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

int unicode_map(const UnicodeMapping *mapping, uint32_t scalar, uint32_t out[4])
{
    int low = 0, high = mapping->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (mapping->keys[middle] < scalar)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == mapping->count || mapping->keys[low] != scalar) {
        out[0] = scalar;
        return 1;
    }
    int start = mapping->starts[low], count = mapping->starts[low + 1] - start;
    memcpy(out, mapping->pool + start, (size_t)count * sizeof *out);
    return count;
}

static int decompose(uint32_t c, uint32_t out[4])
{
    uint32_t s = c - S_BASE;
    if (s >= S_COUNT) return unicode_map(&unicode_decompose, c, out);
    out[0] = L_BASE + s / (V_COUNT * T_COUNT);
    out[1] = V_BASE + s / T_COUNT % V_COUNT;
    out[2] = T_BASE + s % T_COUNT;
    return out[2] == T_BASE ? 2 : 3;
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
    uint64_t key = (uint64_t)first << 32 | second;
    int low = 0, high = UNICODE_PAIRS;
    while (low < high) {
        int middle = (low + high) / 2;
        const UnicodePair *pair = &unicode_pairs[middle];
        if (((uint64_t)pair->first << 32 | pair->second) < key)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == UNICODE_PAIRS) return 0;
    const UnicodePair *pair = &unicode_pairs[low];
    return pair->first == first && pair->second == second ? pair->composed : 0;
}

/* Stable order of v (n), all of them non-starters, by combining class. */
static void order_marks(uint32_t *v, size_t n, uint32_t *scratch)
{
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t c = v[i];
            uint8_t class = unicode_record(c).combining;
            size_t j = i;
            for (; j > 0 && unicode_record(v[j - 1]).combining > class; j--) v[j] = v[j - 1];
            v[j] = c;
        }
        return;
    }
    size_t place[256] = {0};
    for (size_t i = 0; i < n; i++) place[unicode_record(v[i]).combining]++;
    for (size_t class = 0, sum = 0; class < 256; class ++) {
        size_t here = place[class];
        place[class] = sum;
        sum += here;
    }
    for (size_t i = 0; i < n; i++) scratch[place[unicode_record(v[i]).combining]++] = v[i];
    memcpy(v, scratch, n * sizeof *v);
}

void scalars_nfd(Scalars *s, Scalars *scratch)
{
    scratch->count = 0;
    for (size_t i = 0; i < s->count; i++) {
        uint32_t parts[4];
        int n = decompose(s->v[i], parts);
        for (int j = 0; j < n; j++) scalars_push(scratch, parts[j]);
    }
    Scalars swap = *s;
    *s = *scratch;
    *scratch = swap;
    if (scratch->cap < s->count) {
        scratch->v = mem_resize(scratch->v, s->cap, sizeof *scratch->v);
        scratch->cap = s->cap;
    }
    for (size_t i = 0; i < s->count;) {
        size_t start = i;
        while (i < s->count && unicode_record(s->v[i]).combining) i++;
        if (i - start > 1) order_marks(s->v + start, i - start, scratch->v);
        if (i == start) i++;
    }
}

void scalars_nfc(Scalars *s, Scalars *scratch)
{
    scalars_nfd(s, scratch);
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
