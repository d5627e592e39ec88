/* The `update` range and the segments it works on. */
#include "optim/optim.h"

#include <math.h>

static void fill_segments(const Model *m, const Optimizer *o, Segment *segments)
{
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        float decay = p->decay ? o->weight_decay : 0;
        segments[i] = (Segment){.offset = p->offset,
                                .size = param_held(p),
                                .decay = decay,
                                .trust = o->kind == OPTIMIZER_NVLAMB || decay != 0};
    }
}

void optim_emit(Plan *p, const Model *m, const ModelTensors *t, const Optimizer *o, Segment *segments)
{
    fill_segments(m, o, segments);
    p->update = (Range){p->n_instrs, 0};
    plan_emit(p, OP_GRAD_NORM, PHASE_UPDATE, NONE, (OpAttr){.grad_norm = {o->max_grad_norm, o->scale_growth}},
              IDS(t->grads, t->segments, t->ctl), IDS(t->stats, t->scaling));
    OpAttr attr = {.optimizer = {o->beta1, o->beta2, o->eps}};
    if (o->kind == OPTIMIZER_ADAMW)
        plan_emit(p, OP_ADAMW, PHASE_UPDATE, NONE, attr, IDS(t->grads, t->segments, t->ctl, t->stats),
                  IDS(t->weights, t->moments_m, t->moments_v));
    else
        plan_emit(p, OP_LAMB, PHASE_UPDATE, NONE, attr, IDS(t->segments, t->ctl, t->stats),
                  IDS(t->weights, t->moments_m, t->moments_v, t->grads));
    plan_pack(p);
}

void optim_bias(const Optimizer *o, int64_t step, float *bias1, float *bias2)
{
    *bias1 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta1, (double)step))) : 1;
    *bias2 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta2, (double)step))) : 1;
}
