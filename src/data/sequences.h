/* Examples that grow: sequences read from shards, and those of a batch. */
#pragma once

#include "data/data.h"

typedef struct {
    Examples e;         /* count and contents; its arrays have room for more */
    int64_t *sample;    /* (count) a sequence's number in the whole set */
    uint8_t *is_masked; /* (count) its masks are the file's; else shards_take draws them */
    int64_t cap_count, cap_tokens, cap_masked;
} Sequences;

/* Empties it and keeps the memory. */
void sequences_clear(Sequences *s);
/* Makes room for this many in total. */
void sequences_reserve(Sequences *s, int64_t count, int64_t tokens, int64_t masked);
/* Appends a sequence of `length` tokens and `masked` masks and returns its number i. The caller fills it, at
   e.offset[i] and e.masked_offset[i]. */
int64_t sequences_add(Sequences *s, int64_t length, int64_t masked);
void sequences_free(Sequences *s); /* takes a zeroed one */
