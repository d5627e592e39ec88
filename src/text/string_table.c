#include "text/string_table.h"

#include "base/base.h"

static uint64_t hash_bytes(const char *p, size_t len)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ len;
    for (size_t i = 0; i < len; i++) h = (h ^ (uint8_t)p[i]) * UINT64_C(0x100000001B3);
    h ^= h >> 29;
    return h * UINT64_C(0xBF58476D1CE4E5B9) >> 16;
}

static uint32_t *find_slot(const StringTable *s, const char *text, size_t len)
{
    for (size_t at = hash_bytes(text, len) & (s->n_slots - 1);; at = (at + 1) & (s->n_slots - 1)) {
        uint32_t *slot = &s->slots[at];
        if (!*slot) return slot;
        size_t i = *slot - 1;
        if (string_table_len(s, i) == len && memcmp(s->text + s->start[i], text, len) == 0) return slot;
    }
}

static void rehash(StringTable *s)
{
    free(s->slots);
    s->n_slots = s->n_slots ? 2 * s->n_slots : 1024;
    s->slots = mem_array(s->n_slots, sizeof *s->slots);
    for (size_t i = 0; i < s->count; i++) {
        *find_slot(s, s->text + s->start[i], string_table_len(s, i)) = (uint32_t)i + 1;
    }
}

size_t string_table_add(StringTable *s, const char *text, size_t len)
{
    if (2 * s->count >= s->n_slots) rehash(s);
    uint32_t *slot = find_slot(s, text, len);
    if (*slot) return *slot - 1;
    CHECK(s->count < INT32_MAX, "more than 2^31 different words");
    if (s->count + 1 >= s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->start = mem_resize(s->start, s->cap, sizeof *s->start);
    }
    while (s->text_len + len > s->text_cap) {
        s->text_cap = s->text_cap ? 2 * s->text_cap : 16384;
        s->text = mem_resize(s->text, s->text_cap, 1);
    }
    memcpy(s->text + s->text_len, text, len);
    s->start[s->count] = s->text_len;
    s->start[s->count + 1] = s->text_len += len;
    *slot = (uint32_t)++s->count;
    return s->count - 1;
}

int64_t string_table_find(const StringTable *s, const char *text, size_t len)
{
    return (int64_t)*find_slot(s, text, len) - 1;
}

void string_table_free(StringTable *s) { MEM_FREE(s->text, s->start, s->slots); }
