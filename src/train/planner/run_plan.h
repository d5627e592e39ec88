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

typedef struct RunPlan {
    PlanInput input;
    LayerChoice layers;
    MicroCapacity micro, eval_micro; /* of a training and an evaluation micro-batch; no tokens: not planned */
    bool save_buffer;                /* a region of its own, beside the activations */
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
    struct RunPlan *other; /* the plan that steps run by while a save is written; of that one, of which the run has no
                              further one, the usual plan. NULL: one plan does for both */
    size_t buffer_at;      /* of the one for saves: its bytes of activations, behind which the save buffer lies in the
                              memory of the usual plan's; 0: this is the usual one */
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
/* Makes p->other, in which layers keep this, and moves the save buffer into the memory of the activations. Then
   p->bytes has room for both; run_plan_drop_other undoes it. Not in a pipeline. */
Status run_plan_make_other(RunPlan *p, const LayerChoice *layers);
void run_plan_drop_other(RunPlan *p);
void run_plan_set_buffer(RunPlan *p, bool save_buffer);
/* A plan of p's choices, with one for saves where p has one, for other LayerNorm forms (2·layers + 1), in memory that
   holds both. */
Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *with);

/* Bytes in the memory of the activations, at the peak. */
static inline size_t run_plan_peak(const RunPlan *p) { return p->accounts.row[0].peak; }

/* What this rank writes of a save, and so its save buffer. */
size_t run_plan_saved_bytes(const RunPlan *p);
/* Training waits while the state is saved. */
static inline bool run_plan_waits(const RunPlan *p) { return p->input.training && !p->save_buffer && !p->other; }

/* The predicted step over the bound on it, less 1; −1: not known. */
double run_plan_above_bound(const RunPlan *p);
#define BOUND_IS_MET 0.0005 /* above it by less: the best possible */
/* ", 0.512 s per step predicted, at most 0.3 % above the best possible" */
void run_plan_put_step(const RunPlan *p, Buf *out);
/* "recompute auto (full×12), 0.61 s per step predicted": while a save is written, or "training waits"; nothing where
   steps run then as otherwise. */
void run_plan_put_saves(const RunPlan *p, Buf *out);
/* A line for people, without its end: policy, type, peak, predicted step. */
void run_plan_describe(const RunPlan *p, Buf *out);
/* The bytes of each class, a line each behind a line end; the last has none. */
void run_plan_table(const RunPlan *p, Buf *out);
