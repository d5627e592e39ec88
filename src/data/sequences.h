/* Examples that grow: sequences read from shards, and those of a batch. */
#ifndef CAIRN_DATA_SEQUENCES_H
#define CAIRN_DATA_SEQUENCES_H

#include "data/data.h"

typedef struct {
    Examples e;         /* count and contents; its arrays have room for more */
    int64_t *sample;    /* (count) a sequence's number in the whole set */
    uint8_t *is_masked; /* (count) its masks are the file's; else they are to be drawn */
    int64_t cap_count, cap_tokens, cap_masked;
} Sequences;

/* Empties it, with its room. */
void sequences_clear(Sequences *s);
/* Reserves room for this many in total. */
void sequences_reserve(Sequences *s, int64_t count, int64_t tokens, int64_t masked);
/* Room for one more of `length` tokens and `masked` masks behind the last; what it holds is filled by the caller, at
   e.offset[i] and e.masked_offset[i]. Gives its number i. */
int64_t sequences_add(Sequences *s, int64_t length, int64_t masked);
void sequences_free(Sequences *s); /* takes a zeroed one */

#endif
