/* The plan as text: documentation, debugging aid and golden test in one. */

#include "plan/plan.h"

static const char *const phase_names[N_PHASES] = {"begin", "forward", "recompute", "backward", "update"};

const char *phase_name(Phase p) { return phase_names[p]; }

const char *lane_name(Lane l)
{
    static const char *const names[] = {[LANE_COMPUTE] = "compute", [LANE_COPY] = "copy", [LANE_COMM] = "comm"};
    return names[l];
}

void plan_instr_name(const Plan *p, InstrId i, char out[PLAN_NAME_MAX])
{
    const Instr *instr = &p->instrs[i];
    TensorId made = NONE;
    for (int k = 0; k < OP_MAX_OUT && made == NONE; k++) made = instr->out[k];
    snprintf(out, PLAN_NAME_MAX, "%s %s", op_info(instr->op)->name, made == NONE ? "" : p->tensors[made].name);
}

static void explain_tensor(const Plan *p, TensorId id, Buf *out)
{
    if (id == NONE) {
        buf_puts(out, " -");
        return;
    }
    const Tensor *t = &p->tensors[id];
    if (t->region == REGION_ACT)
        buf_printf(out, " %s@%zu", t->name, t->offset);
    else
        buf_printf(out, " %s", t->name);
}

/* The gradients that it begins in a step's first micro-batch. */
static void explain_begins(const Plan *p, const Instr *i, Buf *out)
{
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (i->begins >> k & 1) buf_printf(out, " begins=%s", p->tensors[i->out[k]].name);
}

static void explain_attr(const Instr *i, Buf *out)
{
    switch (i->op) {
    case OP_ADDNORM:
    case OP_ADDNORM_BWD:
        buf_printf(out, " form=%s dropout=%g site=%u", i->attr.norm.form == NORM_FORM_XHAT ? "xhat" : "y",
                   (double)i->attr.norm.dropout, i->attr.norm.site);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_BWD:
        buf_printf(out, " heads=%d×%d dropout=%g site=%u", i->attr.attention.heads, i->attr.attention.head_dim,
                   (double)i->attr.attention.dropout, i->attr.attention.site);
        break;
    case OP_LINEAR:
    case OP_LINEAR_DGRAD:
    case OP_LINEAR_WGRAD:
        buf_printf(out, " k=%lld n=%lld", (long long)i->attr.linear.k, (long long)i->attr.linear.n);
        if (i->attr.linear.fused) buf_puts(out, i->attr.linear.gelu == GELU_TANH ? " fused=tanh" : " fused=erf");
        break;
    case OP_GELU:
    case OP_GELU_BWD:
        buf_puts(out, i->attr.gelu.kind == GELU_TANH ? " tanh" : " erf");
        break;
    case OP_POOL:
    case OP_POOL_BWD:
        if (i->attr.pool.normalize) buf_puts(out, " normalize");
        break;
    case OP_ACTIVATE:
    case OP_ACTIVATE_BWD:
        buf_puts(out, i->attr.activate.kind == ACTIVATE_RELU ? " relu" : " tanh");
        break;
    case OP_CURVATURE:
        buf_printf(out, " columns=%lld..%lld", (long long)i->attr.curvature.first,
                   (long long)(i->attr.curvature.first + i->attr.curvature.n - 1));
        break;
    case OP_INVERT:
        buf_printf(out, " %s k=%lld n=%lld", i->attr.kfac.of_output ? "B" : "A", (long long)i->attr.kfac.k,
                   (long long)i->attr.kfac.n);
        break;
    case OP_PRECONDITION:
        buf_printf(out, " k=%lld n=%lld", (long long)i->attr.kfac.k, (long long)i->attr.kfac.n);
        break;
    case OP_DROPOUT:
        buf_printf(out, " dropout=%g site=%u", (double)i->attr.dropout.dropout, i->attr.dropout.site);
        break;
    default:
        break;
    }
}

/* `live`: ACT bytes while it runs; −1: nothing to say. */
static void explain_instr(const Plan *p, InstrId id, int64_t live, Buf *out)
{
    const Instr *i = &p->instrs[id];
    const OpInfo *info = op_info(i->op);
    buf_printf(out, "%5d  %-9s ", id, phase_names[i->phase]);
    if (i->layer >= 0)
        buf_printf(out, "%3d  ", i->layer);
    else
        buf_puts(out, "  -  ");
    if (live >= 0)
        buf_printf(out, "%12lld ", (long long)live);
    else
        buf_printf(out, "%12s ", "");
    buf_printf(out, "%9zu  %-14s", i->scratch, info->name);
    for (int k = 0; k < info->n_out; k++) explain_tensor(p, i->out[k], out);
    buf_puts(out, " ←");
    for (int k = 0; k < info->n_in; k++) explain_tensor(p, i->in[k], out);
    explain_attr(i, out);
    explain_begins(p, i, out);
    if (i->lane != LANE_COMPUTE) buf_printf(out, " lane=%s", lane_name(i->lane));
    for (int w = 0; w < 2; w++)
        if (i->wait[w] != NONE) buf_printf(out, " wait=%d", i->wait[w]);
    buf_puts(out, "\n");
}

/* `live`: (r.count) or NULL */
static void explain_range(const Plan *p, const char *name, Range r, const int64_t *live, Buf *out)
{
    buf_printf(out, "%s: %d instrs\n", name, r.count);
    for (int i = 0; i < r.count; i++) explain_instr(p, r.first + i, live ? live[i] : -1, out);
}

void plan_explain(const Plan *p, Buf *out)
{
    int64_t *live = mem_array((size_t)p->micro.count + 1, sizeof *live);
    plan_live_series(p, live);
    buf_printf(out, "plan: %d layers, %s, capacity %lld tokens, %lld sequences, %lld masked positions%s\n", p->n_layers,
               dtype_name(p->compute), (long long)p->capacity.count[ROWS_TOKENS],
               (long long)p->capacity.count[ROWS_SEQS], (long long)p->capacity.count[ROWS_MASKED],
               p->exact ? "" : ", scratch estimated");
    for (int r = 0; r < N_REGIONS; r++)
        if (p->region_bytes[r]) buf_printf(out, "  %-12s %15zu bytes\n", region_name((Region)r), p->region_bytes[r]);
    buf_puts(out, "instr  phase     layer  live bytes   scratch  op             outputs ← inputs\n");
    explain_range(p, "begin", p->begin, NULL, out);
    if (p->clear.count) explain_range(p, "clear", p->clear, NULL, out);
    if (p->gather.count) explain_range(p, "gather", p->gather, NULL, out);
    explain_range(p, "micro", p->micro, live, out);
    if (p->forward.count) buf_printf(out, "forward: the first %d of them\n", p->forward.count);
    if (p->couple.count) explain_range(p, "couple", p->couple, NULL, out);
    if (p->invert.count) explain_range(p, "invert", p->invert, NULL, out);
    if (p->adopt.count) explain_range(p, "adopt", p->adopt, NULL, out);
    explain_range(p, "update", p->update, NULL, out);
    if (p->pack.first == p->update.first + p->update.count) explain_range(p, "pack", p->pack, NULL, out);
    if (p->note.count) explain_range(p, "note", p->note, NULL, out);
    if (p->check.count) explain_range(p, "check", p->check, NULL, out);
    free(live);
}
