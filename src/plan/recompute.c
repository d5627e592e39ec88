/* The recompute pass: a copy of the forward instr makes a tensor again just before backward first needs it, if its
   layer gave it up. The copy has the same attributes, above all the same dropout site, so every bit is the same. */

#include "plan/rewrite.h"

typedef struct {
    Plan *p;
    const LayerKeep *keeps; // (n_layers)
    Rewrite r;
    InstrId *producer;    /* (old tensors): forward instr, by its old place, or NONE */
    TensorId *again;      /* (old tensors): the recomputed tensor, or NONE */
    TensorId *gelu_again; /* (old tensors): a GELU's output made again by its GELU_BWD, or NONE */
} Recompute;

static bool given_up(const Recompute *pass, TensorId t)
{
    const Tensor *x = &pass->p->tensors[t];
    if (x->region != REGION_ACT || x->part == PART_ALWAYS || pass->producer[t] == NONE) return false;
    if (x->part == PART_NEVER) return true;
    return x->layer >= 0 && x->layer < pass->p->n_layers && pass->keeps[x->layer].recomputed >> x->part & 1;
}

static TensorId recompute_tensor(Recompute *pass, TensorId t);

/* y = γ·xhat + β from a kept xhat, which is cheaper than the whole ADDNORM. */
static void recompute_affine(Recompute *pass, const Instr *f, InstrId origin)
{
    TensorId xhat = f->out[ADDNORM_OUT_xhat], y = f->out[ADDNORM_OUT_y];
    TensorId again = plan_like(pass->p, y, REGION_ACT, "'");
    InstrId i = plan_emit(
        pass->p, OP_AFFINE, PHASE_RECOMPUTE, f->layer, f->attr,
        IDS(pass->again[xhat] != NONE ? pass->again[xhat] : xhat, f->in[ADDNORM_IN_gamma], f->in[ADDNORM_IN_beta]),
        IDS(again));
    pass->p->instrs[i].origin = origin;
    pass->again[y] = again;
}

static void recompute_instr(Recompute *pass, InstrId producer)
{
    Instr copy = pass->r.old[producer];
    for (int k = 0; k < OP_MAX_IN; k++)
        if (copy.in[k] != NONE) copy.in[k] = recompute_tensor(pass, copy.in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (copy.out[k] == NONE) continue;
        TensorId t = copy.out[k];
        copy.out[k] = plan_like(pass->p, t, REGION_ACT, "'");
        pass->again[t] = copy.out[k];
    }
    copy.phase = PHASE_RECOMPUTE;
    copy.origin = pass->r.moved[producer];
    plan_append(pass->p, copy);
}

/* The tensor that holds the value of forward tensor `t` at this point of backward. */
static TensorId recompute_tensor(Recompute *pass, TensorId t)
{
    if (!given_up(pass, t)) return t;
    if (pass->again[t] != NONE) return pass->again[t];
    InstrId producer = pass->producer[t];
    const Instr *f = &pass->r.old[producer];
    bool is_y = f->op == OP_ADDNORM && f->attr.norm.form == NORM_FORM_XHAT && t == f->out[ADDNORM_OUT_y];
    TensorId xhat = is_y ? f->out[ADDNORM_OUT_xhat] : NONE;
    if (is_y && (!given_up(pass, xhat) || pass->again[xhat] != NONE))
        recompute_affine(pass, f, pass->r.moved[producer]);
    else
        recompute_instr(pass, producer);
    return pass->again[t];
}

static bool is_gelu_output(const Recompute *pass, TensorId t)
{
    return pass->producer[t] != NONE && pass->r.old[pass->producer[t]].op == OP_GELU;
}

static Instr backward_instr(Recompute *pass, InstrId i)
{
    Instr b = rewrite_old(&pass->r, i);
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (b.in[k] == NONE || !given_up(pass, b.in[k])) continue;
        b.in[k] = is_gelu_output(pass, b.in[k]) ? pass->gelu_again[b.in[k]] : recompute_tensor(pass, b.in[k]);
        CHECK(b.in[k] != NONE, "%s reads a GELU output before its backward made it again", op_info(b.op)->name);
    }
    if (b.op == OP_GELU_BWD) {
        TensorId g = pass->r.old[pass->r.old[i].origin].out[GELU_OUT_g];
        if (given_up(pass, g)) b.out[GELU_BWD_OUT_g] = pass->gelu_again[g] = plan_like(pass->p, g, REGION_ACT, "\"");
    }
    return b;
}

void plan_recompute(Plan *p, const LayerKeep *keeps)
{
    int32_t n_tensors = p->n_tensors;
    Recompute pass = {.p = p,
                      .keeps = keeps,
                      .producer = mem_array((size_t)n_tensors, sizeof(InstrId)),
                      .again = mem_array((size_t)n_tensors, sizeof(TensorId)),
                      .gelu_again = mem_array((size_t)n_tensors, sizeof(TensorId))};
    rewrite_begin(&pass.r, p);
    const Instr *old = pass.r.old;
    for (TensorId t = 0; t < n_tensors; t++) pass.producer[t] = pass.again[t] = pass.gelu_again[t] = NONE;
    for (InstrId i = 0; i < pass.r.n; i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (old[i].phase == PHASE_FORWARD && old[i].out[k] != NONE) pass.producer[old[i].out[k]] = i;
    for (InstrId i = 0; i < pass.r.n; i++)
        rewrite_keep(&pass.r, i, old[i].phase == PHASE_BACKWARD ? backward_instr(&pass, i) : rewrite_old(&pass.r, i));
    rewrite_end(&pass.r);
    MEM_FREE(pass.producer, pass.again, pass.gelu_again);
}
