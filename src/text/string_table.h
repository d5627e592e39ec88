/* A table from byte strings to 0, 1, 2 … in order of insertion, for text/ only. */
#pragma once

#include "base/std.h"

/* Zero-initialise; free with string_table_free. */
typedef struct {
    char *text;
    size_t text_len, text_cap;
    size_t *start; // (count + 1)
    size_t count, cap;
    uint32_t *slots; // (n_slots), index + 1, 0: empty; at most half are taken
    size_t n_slots;
} StringTable;

static inline size_t string_table_len(const StringTable *s, size_t i) { return s->start[i + 1] - s->start[i]; }

/* Returns the index of `text`, and adds it if it is new (its index is the count before). */
size_t string_table_add(StringTable *s, const char *text, size_t len);
int64_t string_table_find(const StringTable *s, const char *text, size_t len); /* −1 if absent */
void string_table_free(StringTable *s);
