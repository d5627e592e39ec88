/* The plan of a run: made once by the planner (planner.h), taken over by the session, printed by `cairn plan`. */
#ifndef CAIRN_TRAIN_RUN_PLAN_H
#define CAIRN_TRAIN_RUN_PLAN_H

#include "train/account.h"
#include "train/planning.h"

/* What the plans of a run follow from, beside the options. Everything that it points to is the caller's and outlives
   the plan. */
typedef struct {
    const Model *model;
    bool training, evaluation;
    int64_t max_length;        /* rows a sequence can take */
    int64_t max_masked;        /* masked positions a sequence can have; 0 but in pretraining */
    double mean_length;        /* of a sequence, for predictions */
    double beside;             /* mean length of a token's sequence; 0: mean_length */
    bool packed;               /* `cairn plan --lengths`: a micro-batch has room for sequences of mean_length alone */
    size_t data_bytes;         /* of the machine's memory, that data will take beside what the process holds */
    const uint8_t *norm_forms; /* (2·layers + 1), of the weights that training starts from; NULL: all Y */
    /* setup_plan fills these in: */
    const Backend *backend; /* open, or the table of a device that is not here; NULL: sizes are estimated */
    bool imagined;          /* the device is not here */
    Dtype compute;
    Optimizer optimizer;
    const Exchange *exchange; /* with ranks, for training; NULL: one */
    bool saves;               /* this rank writes checkpoints: rank 0 */
    CostRates rates;          /* of rank 0 */
} PlanInput;

static inline double plan_input_beside(const PlanInput *in) { return in->beside > 0 ? in->beside : in->mean_length; }

typedef struct {
    PlanInput input;
    char policy[88];                 /* as it runs: "auto (none×8 lean×4)" */
    MicroCapacity micro, eval_micro; /* of a training and an evaluation micro-batch; no tokens: there is none */
    uint8_t *levels;                 /* (layers) */
    uint8_t *norm_forms;             /* (2·layers + 1) */
    bool save_buffer;                /* else saving streams, and training waits */
    size_t snapshots_given_up;       /* bytes of snapshots for which there is no room: none are taken */
    double micros;                   /* of a step */
    double step_s;                   /* predicted; 0 without training */
    Plan train, eval;                /* zeroed where there is none */
    ModelTensors train_tensors, eval_tensors;
    Segment *segments;       /* (params.count), of training */
    size_t bytes[N_REGIONS]; /* of both plans, which share the memory */
    Accounts accounts;
    bool fits;
} RunPlan;

/* Nothing chosen yet: all levels none, no plan made. */
void run_plan_init(RunPlan *p, const PlanInput *input);
void run_plan_free(RunPlan *p); /* takes a zeroed one */
/* The request for one of its plans: the only place where one is built. */
PlanRequest run_plan_request(const RunPlan *p, bool training);
/* One plan for what was chosen, or both. */
Status run_plan_make_one(RunPlan *p, bool training);
Status run_plan_make(RunPlan *p);
/* The same choices for other LayerNorm forms (2·layers + 1): another plan, in memory that holds both. */
Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *other);

/* Bytes in the memory that activations lie in, at the peak. */
static inline size_t run_plan_peak(const RunPlan *p) { return p->accounts.row[0].peak; }

/* One table for people: policy, bytes per class, peak, predicted step. */
void run_plan_describe(const RunPlan *p, Buf *out);

#endif
