/* The plan of a run: made once by the planner (planner.h), taken over by the session, printed by `cairn plan`. */
#ifndef CAIRN_TRAIN_RUN_PLAN_H
#define CAIRN_TRAIN_RUN_PLAN_H

#include "train/account.h"
#include "train/planning.h"

typedef struct PipelinePlace PipelinePlace; /* train/place.h */

/* The input of a run's plans, beside the options. All pointers are the caller's and outlive the plan. */
typedef struct {
    const Model *model;
    bool training, evaluation;
    int64_t max_length; /* rows a sequence can take */
    int64_t max_masked; /* masked positions a sequence can have; 0 but in pretraining */
    double mean_length; /* of a sequence, for predictions */
    double beside;      /* mean length of a token's sequence; 0: mean_length */
    bool packed;        /* `cairn plan --lengths`: a micro-batch has room for sequences of mean_length alone */
    size_t data_bytes;  /* of the machine's memory, that data will need beside the bytes that the process holds */
    size_t later_bytes; /* the same of data that is still to be made, at most: the plan does not count it, the budget
                           that a refusal names does */
    const uint8_t *norm_forms; /* (2·layers + 1), of the weights that training starts from; NULL: all Y */
    /* setup_plan fills these in: */
    const Backend *backend; /* open, or the table of an imagined device; NULL: sizes are estimated */
    bool imagined;          /* a device that this machine lacks */
    Dtype compute;
    Optimizer optimizer;
    const Exchange *exchange; /* with ranks, for training; NULL: one */
    const Kfac *kfac;         /* NULL: none */
    bool saves;               /* this rank writes checkpoints: rank 0 */
    bool audit;               /* --audit recompute */
    bool watch;               /* --audit with anything */
    /* setup_virtual: --virtual-ranks, 0: it is not given; those of a rank; --grain-tokens, one sequence at least */
    int64_t virtual_ranks, virtual_each, grain_tokens;
    int virtual_waiting;        /* sums of them that wait beside the gradients, at most on any rank */
    CostRates rates;            /* of rank 0 */
    const PipelinePlace *place; /* of a pipeline; `model` is then its first chunk's. NULL: this rank has all of it */
} PlanInput;

static inline double plan_input_beside(const PlanInput *in) { return in->beside > 0 ? in->beside : in->mean_length; }

/* The plans of a further chunk of a place. */
typedef struct {
    Plan train, eval;
    ModelTensors train_tensors, eval_tensors;
} ChunkPlans;

typedef struct {
    PlanInput input;
    char policy[88];                 /* as it runs: "auto (none×8 lean×4)" */
    MicroCapacity micro, eval_micro; /* of a training and an evaluation micro-batch; no tokens: not planned */
    uint8_t *levels;                 /* (layers) */
    uint8_t *norm_forms;             /* (2·layers + 1) */
    bool save_buffer;                /* else saving streams, and training waits */
    size_t snapshots_given_up;       /* bytes of the snapshots that do not fit: none are taken */
    double micros;                   /* of a step */
    MicroCapacity grain;             /* the most rows of one; no tokens: --virtual-ranks is not given */
    double step_s;                   /* predicted; 0 without training */
    Plan train, eval;                /* zeroed if not wanted */
    ModelTensors train_tensors, eval_tensors;
    ChunkPlans *more;  // (chunks of the place − 1); NULL without a pipeline
    Segment *segments; /* (params.count), of training */
    size_t
        bytes[N_REGIONS]; /* of both plans, which share the memory; with a pipeline COMM has its staging too, or ACT */
    Accounts accounts;
    bool fits;
} RunPlan;

/* The part of the moments that this rank has, of what it holds; NULL: all. */
const Intervals *run_plan_slice(const PlanInput *input);
/* Nothing chosen yet: all levels none, no plan made. */
void run_plan_init(RunPlan *p, const PlanInput *input);
void run_plan_free(RunPlan *p); /* takes a zeroed one */
/* The part of a request that the input gives, for all plans of a run or of a pipeline's stages: the only place where a
   request is built. */
PlanRequest plan_input_request(const PlanInput *input, bool training);
/* The request for one of its plans, of the only chunk or the first. */
PlanRequest run_plan_request(const RunPlan *p, bool training);
const Plan *run_plan_of(const RunPlan *p, int chunk, bool training);
const ModelTensors *run_plan_tensors(const RunPlan *p, int chunk, bool training);
/* One plan for what was chosen, or both; of all chunks. */
Status run_plan_make_one(RunPlan *p, bool training);
Status run_plan_make(RunPlan *p);
/* The same choices for other LayerNorm forms (2·layers + 1): another plan, in memory that holds both. */
Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *other);

/* Bytes in the memory of the activations, at the peak. */
static inline size_t run_plan_peak(const RunPlan *p) { return p->accounts.row[0].peak; }

/* One table for people: policy, bytes per class, peak, predicted step. */
void run_plan_describe(const RunPlan *p, Buf *out);

#endif
