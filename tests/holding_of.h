/* The holding of ranks that have the whole model each, by given numbers in place of options. */
#pragma once

#include "holding/holding.h"

static inline void holding_of(Holding *h, const Model *m, int ranks, int rank, int64_t bucket_size, Dtype wire,
                              bool shard)
{
    static char names[][10] = {"fp32", "bf16", "none", "optimizer"};
    const Grid grid = grid_of_ranks(ranks);
    const Config c = {.bucket_size = bucket_size, .wire = names[wire == BF16], .shard = names[2 + shard]};
    holding_init(h, &c, m, &grid, NULL, rank);
}
