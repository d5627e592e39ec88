/* One verified plan: emits the model and runs all passes in order. The backend may be imagined, for models that would
   never fit here. */
#pragma once

#include "base/base.h"
#include "data/data.h"
#include "holding/holding.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "train/parts/kfac.h"

typedef struct {
    const Model *model;
    const Backend *backend; /* for scratch and copies; open, or just its table. NULL: estimates */
    bool one_copy;          /* without a backend: products read weights as they lie, as on GPUs; else in two layouts */
    EmitOptions emit;       /* without what plan_make sets */
    Dtype compute;
    RowCounts capacity;
    Optimizer optimizer;    /* training */
    size_t save_bytes;      /* training: room for what the rank writes into checkpoints; 0: it streams */
    bool audit;             /* training: recomputed tensors are compared with their first values */
    bool watch;             /* training: weights and moments are compared with what the update made them */
    const Holding *holding; /* training: who sums which gradients, by REDUCEs of the plan; of a device's stage behind
                               its works, without REDUCEs; NULL: one holder */
    int stage;              /* of `holding`, which the plan is of */
    PiecesRoom room;        /* training: what exchanges need */
    const Intervals *slice; /* training: a sharded optimizer's; NULL: all */
    PlanCouple couple;      /* training: its shape; texts 0: sequences are independent */
    const Kfac *kfac;       /* training: NULL: none */
    const int *slots;       /* (N_SLOTS) of a stage: micro-batches that it keeps at once; NULL: no stage */
    bool split;             /* of a stage: backward is cut into I and W */
    const Model *whole;     /* of a part that trains: the norm is this model's; NULL: no part */
    bool sketch;            /* `micro` alone, without scratch and places, and not verified */
    bool packs;             /* of a further chunk of a place: its update only packs, the first chunk's does the rest */
} PlanRequest;

/* `segments` (training; may be NULL) gets the (params.count) optimizer segments. The plan is verified. */
Status plan_make(const PlanRequest *request, Plan *plan, ModelTensors *tensors, Segment *segments);

/* Rows of a capacity: tokens rounded up to the backends' bucket multiple. */
RowCounts plan_capacity(MicroCapacity micro);

/* The larger of a training plan's and the evaluation plan's bytes (either may be NULL) of each region: they share the
   memory. */
void plan_bytes(const Plan *training, const Plan *evaluation, size_t bytes[N_REGIONS]);
