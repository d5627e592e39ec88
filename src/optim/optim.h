/* Optimizers as instrs, schedules as functions. AdamW as BERT has it (Devlin et al. 2018: decoupled decay, no bias
   correction unless asked), LAMB and NVLAMB (You et al. 2019; NVIDIA's variant applies the trust ratio everywhere). */
#pragma once

#include "base/base.h"
#include "model/model.h"
#include "plan/plan.h"

typedef enum { OPTIMIZER_ADAMW, OPTIMIZER_LAMB, OPTIMIZER_NVLAMB } OptimizerKind;

typedef struct {
    OptimizerKind kind;
    float beta1, beta2, eps, weight_decay, max_grad_norm;
    bool bias_correction;
    bool kfac;            /* gradients of the encoder's linear layers are preconditioned, and clipped apart */
    float loss_scale;     /* fp16: the initial scale */
    int32_t scale_growth; /* fp16: updates without overflow until it doubles; 0: fixed */
} Optimizer;

/* Appends to the `update` range (norm, optimizer, and pack where that does not write the copies) and fills
   (params.count) segments for the CONST tensor.

   With a slice of the space, cut at norm blocks and tensors' starts, each rank holds the moments of its slice, updates
   it and sends its weights to all that hold them. With `whole`, of which `m` is a part, the norm is the whole model's,
   in the order of its table. In both cases the ranks share tables of all norm blocks' sums, to which each gives those
   of its own, and the segments of the own blocks are another CONST tensor, t->own_segments; with `whole` those of its
   norm a third, t->whole_segments. */
void optim_emit(Plan *p, const Model *m, const Model *whole, ModelTensors *t, const Optimizer *o,
                const Intervals *slice, Segment *segments);
/* Fills the segments of a slice (NULL: of all of `m`), at most params.count + slice->count, with blocks numbered as in
   the table of `whole`; returns their number. */
int64_t optim_own_segments(const Model *m, const Model *whole, const Optimizer *o, const Intervals *slice,
                           Segment *own);
/* Number of norm blocks of all tensors up to a place in the space. */
int64_t optim_norm_blocks(const ParamTable *params, int64_t before);
/* bias1 and bias2 of Ctl for the update that makes step number `step` (from 1). */
void optim_bias(const Optimizer *o, int64_t step, float *bias1, float *bias2);

typedef enum { SCHEDULE_LINEAR, SCHEDULE_POLY, SCHEDULE_COSINE, SCHEDULE_CONSTANT } ScheduleKind;

typedef struct {
    ScheduleKind kind;
    double power; /* poly:P */
    double learning_rate;
    int64_t warmup_steps, total_steps;
    int64_t warmup_start; /* the step at which warmup begins; negative: training begins within it */
    bool nvidia;          /* the discontinuous form: no rescaling at the end of warmup (seed-systems' PolyWarmUp) */
} RateSchedule;

/* "linear", "poly:0.5", "cosine", "constant", each with an optional "-nvidia" suffix. */
Status rate_schedule_parse(const char *text, RateSchedule *s);
/* "0.1" is a fraction of total, rounded down; "10%" a share, rounded up as Hugging Face's; "1000" a count. A count
   above total is `cut` to it, else E_USAGE. */
Status warmup_parse(const char *text, int64_t total_steps, bool cut, int64_t *warmup_steps);
/* Learning rate of the update that makes step number `step` (from 1). */
double rate_schedule_at(const RateSchedule *s, int64_t step);
