/* Shared by pipeline_plan.c, pipeline_memory.c and pipeline_costs.c. */
#pragma once

#include "train/parts/network.h"
#include "train/pipelines/pipeline.h"

typedef struct {
    const PipelineRequest *r;
    PipelinePlan *p;
    Network network; /* bytes 0: none is counted */
    CostRates rates; /* with the network's, of the stage that was made last */
    RowCounts rows;  /* of a micro-batch */
    KfacOptions kfac;
} Maker;

static inline const PlanInput *input(const Maker *m) { return m->r->in; }
static inline const Pipeline *shape(const Maker *m) { return &m->p->schedule.shape; }

/* Makes the plans of all stages for --recompute, finds each place's peak, and with auto gives up more where a place
   does not fit. */
Status pipeline_make_stages(Maker *m);
/* Adds slots for statistics, as many as fit, up to those that the fill wants; the orders with them are verified. */
Status pipeline_take_slots(Maker *m, const FillProblem *problem);
/* Moves layers from the place with the largest peak as long as that lowers it. */
Status pipeline_lower_peak(Maker *m);

/* ---- pipeline_costs.c, of a stage's plan ---- */
/* `preconditions`: instrs at the begin of `update`, which fill_bubbles adds. */
void pipeline_take_times(const Maker *m, const Plan *p, int preconditions, int number);
/* The two gradients of a tied word embedding to each other, for which its pieces wait; and the stage's gradients over
   its holders, without REDUCEs behind all works, as on GPUs. `pieces` NULL: one holder, or no network. */
void pipeline_take_sums(const Maker *m, const Plan *p, const Model *part, const Pieces *pieces, int number);
