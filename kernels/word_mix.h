/* The term of a word in DIGEST's sums, on every backend. */
#pragma once

#include "base/philox.h"

/* For any one `place` this is a permutation of words: a change of bits within one word always changes the sum. Places
   are spread by the golden ratio, so that equal words count differently. */
CAIRN_DEVICE static inline uint64_t word_mix(uint64_t word, uint64_t place)
{
    uint64_t x = word + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 29;
}

/* Words of a row of so many bytes. */
CAIRN_DEVICE static inline int64_t row_words(int64_t bytes) { return (bytes + 7) / 8; }
