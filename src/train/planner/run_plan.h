/* The plan of a run: made once by the planner (planner.h), taken over by the session, printed by `cairn plan`. */
#pragma once

#include "train/parts/account.h"
#include "train/parts/plan_input.h"
#include "train/planner/planning.h"

/* What no schedule can do better, with this micro-batch (plan/bound.h); zeroed: not known. Peaks are of the first
   account, without a save buffer and snapshots that the run can do without. */
typedef struct {
    double step_s; /* no step within the budget takes less */
    size_t peak;   /* no step that takes as little as the plan's peaks lower */
    size_t least;  /* no step at all does */
} PlanCertificate;

/* Zeroed if not wanted. */
typedef struct {
    Plan train, eval;
    ModelTensors train_tensors, eval_tensors;
} ChunkPlans;

typedef struct {
    PlanInput input;
    LayerChoice layers;
    MicroCapacity micro, eval_micro; /* of a training and an evaluation micro-batch; no tokens: not planned */
    bool save_buffer;                /* else saving streams, and training waits */
    size_t snapshots_given_up;       /* bytes of the snapshots that do not fit: none are taken */
    double micros;                   /* of a step */
    RowCounts usual;                 /* rows of one of them, on average, as its bucket has them */
    MicroCapacity grain;             /* the most rows of one; no tokens: --virtual-ranks is not given */
    double step_s;                   /* predicted; 0 without training */
    PlanCertificate bound;           /* of rank 0's plan, without a pipeline */
    ChunkPlans *chunk;               // (place_chunks) of this rank
    Segment *segments;               /* (params.count) of what the rank holds, of training */
    size_t
        bytes[N_REGIONS]; /* of both plans, which share the memory; with a pipeline COMM has its staging too, or ACT */
    Accounts accounts;
    bool fits;
} RunPlan;

/* Nothing chosen yet: all layers keep all, no plan made. */
void run_plan_init(RunPlan *p, const PlanInput *input);
void run_plan_free(RunPlan *p); /* takes a zeroed one */
/* The part of a request that the input gives, for all plans of a run or of a pipeline's stages: the only place where a
   request is built. */
PlanRequest plan_input_request(const PlanInput *input, bool training);
/* The request for one of its plans, of the only chunk or the first. */
PlanRequest run_plan_request(const RunPlan *p, bool training);
/* One plan for what was chosen, or both; of all chunks. */
Status run_plan_make_one(RunPlan *p, bool training);
Status run_plan_make(RunPlan *p);
/* A plan of p's choices for other LayerNorm forms (2·layers + 1), in memory that holds both. */
Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *other);

/* Bytes in the memory of the activations, at the peak. */
static inline size_t run_plan_peak(const RunPlan *p) { return p->accounts.row[0].peak; }

/* The predicted step over the bound on it, less 1; −1: not known. */
double run_plan_above_bound(const RunPlan *p);
#define BOUND_IS_MET 0.0005 /* above it by less: the best possible */
/* ", 0.512 s per step predicted, at most 0.3 % above the best possible" */
void run_plan_put_step(const RunPlan *p, Buf *out);
/* A line for people, without its end: policy, type, peak, predicted step. */
void run_plan_describe(const RunPlan *p, Buf *out);
/* The bytes of each class, a line each behind a line end; the last has none. */
void run_plan_table(const RunPlan *p, Buf *out);
