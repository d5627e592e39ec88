/* The `update` range and the segments it works on. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>

static void fill_segments(const Model *m, const Optimizer *o, Segment *segments)
{
    int64_t block = 0;
    for (int i = 0; i < m->params.count; i++) {
        const Param *p = &m->params.params[i];
        float decay = p->decay ? o->weight_decay : 0;
        segments[i] = (Segment){.offset = p->offset,
                                .size = param_held(p),
                                .decay = decay,
                                .trust = o->kind == OPTIMIZER_NVLAMB || decay != 0,
                                .kfac = o->kfac && param_is_linear(p),
                                .block = block,
                                .tensor = i};
        block += norm_blocks(param_held(p));
    }
}

/* ---- a slice ---- */

int64_t optim_norm_blocks(const ParamTable *params, int64_t before)
{
    int64_t blocks = 0;
    for (int i = 0; i < params->count && params->params[i].offset < before; i++) {
        int64_t held = param_held(&params->params[i]), reach = before - params->params[i].offset;
        blocks += norm_blocks(held < reach ? held : reach);
    }
    return blocks;
}

int64_t optim_slice_segments(const Model *m, const Optimizer *o, const Intervals *slice, Segment *own)
{
    int64_t n = 0, moment = 0;
    Segment *all = mem_array((size_t)m->params.count, sizeof *all);
    fill_segments(m, o, all);
    for (int k = 0, i = 0; k < slice->count; k++) {
        Interval v = slice->intervals[k];
        while (i > 0 && all[i].offset > v.begin) i--;
        while (i < m->params.count && all[i].offset + all[i].size <= v.begin) i++;
        for (; i < m->params.count && all[i].offset < v.end; i++) {
            Segment x = all[i];
            int64_t begin = x.offset > v.begin ? x.offset : v.begin, end = x.offset + x.size;
            if (end > v.end) end = v.end;
            x.block += (begin - x.offset) / NORM_BLOCK;
            x.offset = begin;
            x.size = end - begin;
            x.shift = moment - v.begin;
            own[n++] = x;
        }
        if (i > 0) i--; /* the last may continue in the next interval */
        moment += v.end - v.begin;
    }
    free(all);
    return n;
}

static TensorId sums_table(Plan *p, const Model *m, const char *name)
{
    return plan_tensor(p, REGION_OUTPUT, U8, rows_fixed(optim_norm_blocks(&m->params, m->params.size)), sizeof(double),
                       "%s", name);
}

/* Sums of squares of all norm blocks: each rank makes its own. */
static TensorId emit_sums(Plan *p, const Model *m, TensorId x, TensorId own, const char *name)
{
    TensorId sums = sums_table(p, m, name);
    plan_emit(p, OP_BLOCK_SUMS, PHASE_UPDATE, NONE, (OpAttr){0}, IDS(x, own), IDS(sums));
    plan_emit(p, OP_SHARE, PHASE_UPDATE, NONE, (OpAttr){0}, NO_IDS, IDS(sums));
    return sums;
}

static void emit_slice_lamb(Plan *p, const Model *m, const ModelTensors *t, OpAttr attr, TensorId own)
{
    TensorId p_sums = emit_sums(p, m, t->weights, own, "weights.sums");
    plan_emit(p, OP_LAMB_STEP, PHASE_UPDATE, NONE, attr, IDS(t->weights, own, t->step_ctl, t->stats),
              IDS(t->moments_m, t->moments_v, t->grads));
    TensorId u_sums = emit_sums(p, m, t->grads, own, "updates.sums");
    plan_emit(p, OP_LAMB_DESCEND, PHASE_UPDATE, NONE, attr,
              IDS(t->grads, own, t->segments, p_sums, u_sums, t->step_ctl, t->stats), IDS(t->weights));
}

static OpAttr attr_of(const Optimizer *o) { return (OpAttr){.optimizer = {o->beta1, o->beta2, o->eps}}; }

static void emit_norm(Plan *p, const ModelTensors *t, const Optimizer *o, TensorId segments, TensorId sums)
{
    plan_emit(p, OP_GRAD_NORM, PHASE_UPDATE, NONE, (OpAttr){.grad_norm = {o->max_grad_norm, o->scale_growth}},
              IDS(t->grads, segments, t->step_ctl, sums), IDS(t->stats, t->scaling));
}

/* AdamW of these segments; LAMB of whole tensors. `copies`: that it writes; NONE. */
static void emit_whole_step(Plan *p, const ModelTensors *t, const Optimizer *o, TensorId segments, TensorId copies)
{
    if (o->kind == OPTIMIZER_ADAMW)
        plan_emit(p, OP_ADAMW, PHASE_UPDATE, NONE, attr_of(o), IDS(t->grads, segments, t->step_ctl, t->stats),
                  IDS(t->weights, t->moments_m, t->moments_v, copies));
    else
        plan_emit(p, OP_LAMB, PHASE_UPDATE, NONE, attr_of(o), IDS(t->segments, t->step_ctl, t->stats),
                  IDS(t->weights, t->moments_m, t->moments_v, t->grads, copies));
}

void optim_emit(Plan *p, const Model *m, const ModelTensors *t, const Optimizer *o, const Intervals *slice,
                Segment *segments, TensorId *own)
{
    TensorId sums = NONE, mine = t->segments;
    fill_segments(m, o, segments);
    if (slice) {
        Segment *few = mem_array((size_t)(m->params.count + slice->count), sizeof *few);
        int64_t n = optim_slice_segments(m, o, slice, few);
        free(few);
        *own = mine = plan_tensor(p, REGION_CONST, U8, rows_fixed(n > 0 ? n : 1), sizeof(Segment), "segments.own");
        sums = emit_sums(p, m, t->grads, mine, "grads.sums");
    }
    emit_norm(p, t, o, t->segments, sums);
    if (slice && o->kind != OPTIMIZER_ADAMW)
        emit_slice_lamb(p, m, t, attr_of(o), mine);
    else
        emit_whole_step(p, t, o, mine, slice ? NONE : p->copies);
    if (slice) plan_emit(p, OP_SHARE, PHASE_UPDATE, NONE, (OpAttr){.share = {SHARE_WEIGHTS}}, NO_IDS, IDS(t->weights));
    plan_pack(p, !slice && p->copies != NONE);
}

/* ---- a part of a model ---- */

void optim_part_segments(const Model *m, const Model *whole, const Optimizer *o, Segment *own, Segment *all)
{
    fill_segments(whole, o, all);
    fill_segments(m, o, own);
    for (int i = 0; i < m->params.count; i++) {
        int at = params_find(&whole->params, m->params.params[i].name);
        CHECK(at >= 0, "'%s' is not in the whole model", m->params.params[i].name);
        own[i].block = all[at].block;
    }
}

void optim_emit_part(Plan *p, const Model *m, const Model *whole, ModelTensors *t, const Optimizer *o,
                     Segment *segments)
{
    fill_segments(m, o, segments);
    t->own_segments = plan_tensor(p, REGION_CONST, U8, rows_fixed(m->params.count), sizeof(Segment), "segments.own");
    t->whole_segments =
        plan_tensor(p, REGION_CONST, U8, rows_fixed(whole->params.count), sizeof(Segment), "segments.whole");
    t->norm_sums = sums_table(p, whole, "grads.sums");
    plan_emit(p, OP_BLOCK_SUMS, PHASE_UPDATE, NONE, (OpAttr){0}, IDS(t->grads, t->own_segments), IDS(t->norm_sums));
    emit_norm(p, t, o, t->whole_segments, t->norm_sums);
    emit_whole_step(p, t, o, t->segments, NONE);
    plan_pack(p, false);
}

void optim_bias(const Optimizer *o, int64_t step, float *bias1, float *bias2)
{
    *bias1 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta1, (double)step))) : 1;
    *bias2 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta2, (double)step))) : 1;
}
