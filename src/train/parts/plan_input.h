/* The input of a run's plans, beside the options. */
#pragma once

#include "holding/holding.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "optim/optim.h"
#include "train/parts/coupling.h"

typedef struct RankPlace RankPlace; /* train/parts/place.h */

/* --virtual-ranks and --grain-tokens. */
typedef struct {
    int64_t ranks;        /* of all ranks; 0: the option is not given */
    int64_t each;         /* of a rank; 0 in a pipeline */
    int64_t grain_tokens; /* one sequence at least */
    int waiting;          /* sums of them that wait beside the gradients, at most on any rank */
} VirtualRanks;

/* All pointers are the caller's and outlive the plan. */
typedef struct {
    const Model *model; /* all of it */
    bool training, evaluation;
    int64_t max_length;       /* rows a sequence can take */
    int64_t max_masked;       /* masked positions a sequence can have; 0 but in pretraining */
    double mean_length;       /* of a sequence, for predictions */
    double beside;            /* mean length of a token's sequence; 0: mean_length */
    const Coupling *coupling; /* of embeddings, in training; else NULL */
    bool packed;              /* `cairn plan --lengths`: a micro-batch has room for sequences of mean_length alone */
    size_t data_bytes;        /* of the machine's memory, that data will need beside the bytes that the process holds */
    size_t later_bytes; /* the same of data that is still to be made, at most: the plan does not count it, the budget
                           that a refusal names does */
    const uint8_t *norm_forms; /* (2·layers + 1), of the weights that training starts from; NULL: all Y */
    /* The task leaves these to setup_plan (train/job/setup.c): */
    const Backend *backend; /* open, or the table of an imagined device; NULL: sizes are estimated */
    bool imagined;          /* a device that this machine lacks */
    Dtype compute;
    Optimizer optimizer;
    bool first;       /* rank 0, which measures rates and predicts */
    const bool *sees; // (ranks) those that see rank 0's output folder; NULL: all
    bool audit;       /* --audit recompute */
    bool watch;       /* --audit with anything */
    /* setup_virtual sets this: */
    VirtualRanks virtual;
    CostRates rates;        /* of rank 0 */
    const RankPlace *place; /* what this rank has of `model` */
} PlanInput;

static inline double plan_input_beside(const PlanInput *in) { return in->beside > 0 ? in->beside : in->mean_length; }
