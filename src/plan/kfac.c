/* The K-FAC pass (Osawa, Li and Hoefler, 2023): statistics behind the weight gradients, and three ranges of their own.
 */

#include "plan/rewrite.h"

static TensorId kfac_tensor(Plan *p, int64_t place, int64_t side, const KfacLinear *l, const char *what)
{
    TensorId t = plan_tensor(p, REGION_KFAC, F32, rows_fixed(side), side, "%s.%s", l->name, what);
    p->tensors[t].offset = (size_t)place * sizeof(float);
    p->tensors[t].layer = (int16_t)l->layer;
    return t;
}

static void add_tensors(Plan *p, const KfacPlan *k, KfacLinear *l)
{
    l->next_a = kfac_tensor(p, l->a, l->k, l, "A");
    l->next_b = kfac_tensor(p, l->b, l->n, l, "B");
    l->ready = kfac_tensor(p, l->flag, 1, l, "ready");
    l->a_inv = kfac_tensor(p, k->size + l->a, l->k, l, "A_inv");
    l->b_inv = kfac_tensor(p, k->size + l->b, l->n, l, "B_inv");
    l->has = kfac_tensor(p, k->size + l->flag, 1, l, "has");
}

static void emit_curvature(Plan *p, const KfacPlan *k, const Instr *wgrad, TensorId x, TensorId ctl, int64_t first,
                           TensorId factor)
{
    OpAttr attr = {.curvature = {.first = first,
                                 .n = p->tensors[factor].cols,
                                 .interval = k->interval,
                                 .of_input = x == wgrad->in[LINEAR_WGRAD_IN_x]}};
    plan_emit(p, OP_CURVATURE, PHASE_BACKWARD, wgrad->layer, attr, IDS(x, ctl), IDS(factor));
}

static void curve(Plan *p, const KfacPlan *k, const Instr *wgrad, TensorId ctl)
{
    TensorId dw = wgrad->out[LINEAR_WGRAD_OUT_dw];
    int64_t begin = (int64_t)(p->tensors[dw].offset / sizeof(float)), cols = p->tensors[dw].cols;
    int64_t end = begin + p->tensors[dw].rows.extra * cols;
    for (int i = 0; i < k->n; i++) {
        const KfacLinear *l = &k->linears[i];
        if (l->weight < begin || l->weight >= end) continue;
        int64_t first = (l->weight - begin) / cols;
        if (l->from == NONE) emit_curvature(p, k, wgrad, wgrad->in[LINEAR_WGRAD_IN_x], ctl, 0, l->next_a);
        emit_curvature(p, k, wgrad, wgrad->in[LINEAR_WGRAD_IN_dy], ctl, first, l->next_b);
    }
}

void plan_kfac(Plan *p, KfacPlan *k, TensorId ctl)
{
    Rewrite r;
    p->kfac_interval = k->interval;
    for (int i = 0; i < k->n; i++) add_tensors(p, k, &k->linears[i]);
    rewrite_begin(&r, p);
    for (InstrId i = 0; i < r.n; i++) {
        rewrite_keep(&r, i, rewrite_old(&r, i));
        if (r.old[i].op == OP_LINEAR_WGRAD) curve(p, k, &r.old[i], ctl);
    }
    rewrite_end(&r);
}

static TensorId whole_set(Plan *p, const KfacPlan *k, const char *name)
{
    return plan_tensor(p, REGION_KFAC, F32, rows_fixed(k->size), 1, "%s", name);
}

static void close_range(const Plan *p, Range *range, InstrId first) { *range = (Range){first, p->n_instrs - first}; }

static void emit_share(Plan *p, TensorId set, ShareKind what)
{
    plan_emit(p, OP_SHARE, PHASE_UPDATE, NONE, (OpAttr){.share = {what}}, NO_IDS, IDS(set));
}

static void emit_inverses(Plan *p, const KfacPlan *k, TensorId ctl)
{
    for (int i = 0; i < k->n; i++) {
        const KfacLinear *l = &k->linears[i];
        for (int of_output = 0; of_output < 2 && l->own; of_output++)
            plan_emit(p, OP_INVERT, PHASE_UPDATE, l->layer, (OpAttr){.kfac = {k->damping, l->k, l->n, of_output}},
                      IDS(ctl, l->from == NONE ? NONE : k->linears[l->from].next_a),
                      IDS(l->next_a, l->next_b, l->ready));
    }
}

/* A tensor in the place of a parameter's gradient. */
static TensorId gradient_at(Plan *p, TensorId grads, int64_t place, int64_t rows, int64_t cols, const KfacLinear *l)
{
    TensorId t = plan_tensor(p, REGION_GRAD, F32, rows_fixed(rows), cols, "%s.%s", l->name, cols > 1 ? "dw" : "db");
    p->tensors[t].offset = p->tensors[grads].offset + (size_t)place * sizeof(float);
    return t;
}

void plan_kfac_ranges(Plan *p, const KfacPlan *k, TensorId grads, TensorId ctl)
{
    TensorId next = whole_set(p, k, PLAN_FACTORS);
    if (p->waiting) {
        TensorId t = plan_tensor(p, REGION_KFAC, F32, rows_fixed(p->waiting * k->size), 1, PLAN_FACTORS_WAITING);
        p->tensors[t].offset = 2 * (size_t)k->size * sizeof(float);
    }
    InstrId first = p->n_instrs;
    plan_emit(p, OP_ZERO, PHASE_BEGIN, NONE, (OpAttr){0}, NO_IDS, IDS(next));
    close_range(p, &p->gather, first);
    p->update = (Range){p->n_instrs, 0};
    if (k->more) return;
    first = p->n_instrs;
    if (k->ranks) emit_share(p, next, SHARE_FACTORS);
    emit_inverses(p, k, ctl);
    if (k->ranks) emit_share(p, next, SHARE_INVERSES);
    close_range(p, &p->invert, first);
    first = p->n_instrs;
    for (int i = 0; i < k->n; i++) {
        const KfacLinear *l = &k->linears[i];
        plan_emit(p, OP_ADOPT, PHASE_UPDATE, l->layer, (OpAttr){.kfac = {k->damping, l->k, l->n, false}},
                  IDS(l->next_a, l->next_b, l->ready), IDS(l->a_inv, l->b_inv, l->has));
    }
    close_range(p, &p->adopt, first);
    p->update = (Range){p->n_instrs, 0};
    for (int i = 0; i < k->n; i++) {
        const KfacLinear *l = &k->linears[i];
        TensorId dw = gradient_at(p, grads, l->weight, l->n, l->k, l);
        TensorId db = gradient_at(p, grads, l->bias, l->n, 1, l);
        plan_emit(p, OP_PRECONDITION, PHASE_UPDATE, l->layer, (OpAttr){.kfac = {k->damping, l->k, l->n, false}},
                  IDS(l->a_inv, l->b_inv, l->has), IDS(dw, db));
    }
}
