/* The `update` range and the segments it works on. */
#include "optim/optim.h"

/* Norm blocks have the numbers of those of `whole`, of which `m` may be a part. */
static void fill_segments(const Model *m, const Model *whole, const Optimizer *o, Segment *segments)
{
    int64_t block = 0;
    int n = 0;
    for (int i = 0; i < whole->params.count && n < m->params.count; i++) {
        const Param *p = &m->params.params[n], *at = &whole->params.params[i];
        int64_t first = block;
        block += norm_blocks(param_held(at));
        if (strcmp(p->name, at->name) != 0) continue;
        float decay = p->decay ? o->weight_decay : 0;
        segments[n] = (Segment){.offset = p->offset,
                                .size = param_held(p),
                                .decay = decay,
                                .trust = o->kind == OPTIMIZER_NVLAMB || decay != 0,
                                .kfac = o->kfac && param_is_linear(p),
                                .block = first,
                                .tensor = n};
        n++;
    }
    CHECK(n == m->params.count, "'%s' is not in the whole model", m->params.params[n].name);
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

int64_t optim_own_segments(const Model *m, const Model *whole, const Optimizer *o, const Intervals *slice, Segment *own)
{
    int64_t n = 0, moment = 0;
    if (!slice) {
        fill_segments(m, whole, o, own);
        return m->params.count;
    }
    Segment *all = mem_array((size_t)m->params.count, sizeof *all);
    fill_segments(m, whole, o, all);
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

void optim_emit(Plan *p, const Model *m, const Model *whole, ModelTensors *t, const Optimizer *o,
                const Intervals *slice, Segment *segments)
{
    const Model *all = whole ? whole : m;
    TensorId sums = NONE;
    fill_segments(m, slice ? all : m, o, segments);
    if (slice || whole) {
        Segment *few = mem_array((size_t)(m->params.count + (slice ? slice->count : 0)), sizeof *few);
        int64_t n = optim_own_segments(m, all, o, slice, few);
        free(few);
        t->own_segments = plan_tensor(p, REGION_CONST, U8, rows_fixed(n > 0 ? n : 1), sizeof(Segment), "segments.own");
        if (whole)
            t->whole_segments =
                plan_tensor(p, REGION_CONST, U8, rows_fixed(whole->params.count), sizeof(Segment), "segments.whole");
        sums = emit_sums(p, all, t->grads, t->own_segments, "grads.sums");
    }
    emit_norm(p, t, o, whole ? t->whole_segments : t->segments, sums);
    if (slice && o->kind != OPTIMIZER_ADAMW)
        emit_slice_lamb(p, all, t, attr_of(o), t->own_segments);
    else
        emit_whole_step(p, t, o, slice ? t->own_segments : t->segments, slice ? NONE : p->copies);
    if (slice) plan_emit(p, OP_SHARE, PHASE_UPDATE, NONE, (OpAttr){.share = {SHARE_WEIGHTS}}, NO_IDS, IDS(t->weights));
    plan_pack(p, !slice && p->copies != NONE);
}

void optim_bias(const Optimizer *o, int64_t step, float *bias1, float *bias2)
{
    *bias1 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta1, (double)step))) : 1;
    *bias2 = o->bias_correction ? (float)(1 / (1 - pow((double)o->beta2, (double)step))) : 1;
}
