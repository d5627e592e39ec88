/* What each layer of a plan takes by itself, for a search over what layers keep (train/planner/search.c). */
#pragma once

#include "plan/front.h"

typedef struct {
    int64_t picoseconds; /* of instrs outside layers */
    int64_t below;       /* bytes while embeddings run, forward or backward */
    int64_t heads;       /* bytes while heads run, without what layers keep */
} OtherCost;

/* The layer in whose time each instr of `micro` runs: its own in forward, in backward that of the next instr that
   backward has anyway. Below all layers −1, in the heads n_layers. */
void plan_turns(const Plan *p, Range micro, int *turns); // (micro.count)

/* For a plan after plan_liveness in which every layer keeps its input, but perhaps the first, whose input the
   embeddings make again in its time. So no layer recomputes what belongs to another, and the peak of any mixture of
   such plans is the largest of their layers' peaks, each beside what the layers below keep. `layers` (n_layers) gets
   what each takes. Copies take no time here. */
void plan_layer_costs(const Plan *p, const RowCounts *rows, double seq_len, const CostRates *rates, LayerCost *layers,
                      OtherCost *other);
