/* The place of a rank that has the whole model, by given numbers in place of options. */
#pragma once

#include "train/parts/place.h"

static inline RankPlace *place_of(const Model *m, const KfacOptions *kfac, int ranks, int rank, int64_t bucket_size)
{
    static char wire[] = "fp32", shard[] = "none";
    const Config c = {.bucket_size = bucket_size, .wire = wire, .shard = shard};
    return place_whole(&c, kfac ? kfac : &(const KfacOptions){0}, m, ranks, rank, false);
}
