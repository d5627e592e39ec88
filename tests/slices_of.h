/* Slices of a flat space for tests: part r of each bucket, cut as a run's are. */
#pragma once

#include "base/norm_block.h"
#include "model/params.h"

/* `buckets` (n): where they begin; NULL: one. The caller frees the (ranks) slices. */
static inline void slices_of(const ParamTable *params, const int64_t *buckets, int n, int ranks, Intervals *slices)
{
    for (int r = 0; r < ranks; r++) slices[r] = (Intervals){0};
    for (int b = 0; b < (buckets ? n : 1); b++) {
        int64_t begin = buckets ? buckets[b] : 0, end = buckets && b + 1 < n ? buckets[b + 1] : params->size;
        for (int64_t r = 0, from = begin, to; r < ranks; r++, from = to) {
            to = slice_cut(params, begin, end, (int)r, ranks);
            intervals_add(&slices[r], from, to);
        }
    }
}
