/* Random choices of what layers keep. */
#pragma once

#include "plan/plan.h"
#include "testing.h"

/* The seed of case `number`, for testing_random. */
static inline uint64_t mixture_seed(int number) { return (uint64_t)(number + 1) * UINT64_C(0x9e3779b97f4a7c15); }

/* Any parts of each layer. `host`: any that are not recomputed may be offloaded. A third of the layers keep what the
   layer below keeps. */
static inline void mixture_draw(uint64_t *seed, bool host, int n_layers, LayerKeep *keeps)
{
    for (int l = 0; l < n_layers; l++) {
        uint64_t r = testing_random(seed) >> 32;
        keeps[l] = (LayerKeep){.recomputed = (uint8_t)(r & ALL_PARTS)};
        if (host && r >> 8 & 1) keeps[l].offloaded = (uint8_t)(r >> 16 & ALL_PARTS & ~keeps[l].recomputed);
        if (l && (r >> 9) % 3 == 0) keeps[l] = keeps[l - 1];
    }
}

/* The text that --recompute takes. The caller frees. */
static inline char *mixture_name(const LayerKeep *keeps, int n_layers)
{
    Buf text = {0};
    policy_describe(keeps, n_layers, &text);
    return text.data;
}
