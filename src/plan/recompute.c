/* The recompute pass: what a layer gave up is made again just before backward first needs it, by copies of the forward
   instrs with the same attributes (the same dropout site above all), so that not a bit differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct {
    Plan *p;
    const uint8_t *levels;
    Instr *old;           /* the plan's instrs before the pass */
    InstrId *producer;    /* (old tensors): forward instr, by its old place, or NONE */
    InstrId *moved;       /* (old instrs): new place, or NONE so far */
    TensorId *again;      /* (old tensors): the recomputed tensor that stands for it, or NONE */
    TensorId *gelu_again; /* (old tensors): a GELU's output made again by its GELU_BWD, or NONE */
} Pass;

static bool given_up(const Pass *pass, TensorId t)
{
    const Tensor *x = &pass->p->tensors[t];
    if (x->region != REGION_ACT || x->drop == DROP_NEVER || pass->producer[t] == NONE) return false;
    if (x->drop == DROP_ALWAYS) return true;
    return x->layer >= 0 && x->layer < pass->p->n_layers && pass->levels[x->layer] >= x->drop;
}

static TensorId twin_tensor(Pass *pass, TensorId t, const char *mark)
{
    Tensor of = pass->p->tensors[t];
    TensorId n = plan_tensor(pass->p, of.region, of.dtype, of.rows, of.cols, "%.44s%s", of.name, mark);
    pass->p->tensors[n].layer = of.layer;
    pass->p->tensors[n].original = t;
    return n;
}

static void append(Pass *pass, Instr instr)
{
    Plan *p = pass->p;
    MEM_GROW(p->instrs, p->n_instrs, p->cap_instrs);
    p->instrs[p->n_instrs++] = instr;
}

static TensorId materialize(Pass *pass, TensorId t);

/* y = γ·xhat + β where xhat was kept: cheaper than the whole AddNorm. */
static void affine_again(Pass *pass, const Instr *f, InstrId origin)
{
    TensorId y = twin_tensor(pass, f->out[0], "'"), xhat = f->out[2];
    InstrId i = plan_emit(pass->p, OP_AFFINE, PHASE_RECOMPUTE, f->layer, f->attr,
                          IDS(pass->again[xhat] != NONE ? pass->again[xhat] : xhat, f->in[2], f->in[3]), IDS(y));
    pass->p->instrs[i].origin = origin;
    pass->again[f->out[0]] = y;
}

static void instr_again(Pass *pass, InstrId producer)
{
    Instr copy = pass->old[producer];
    for (int k = 0; k < OP_MAX_IN; k++)
        if (copy.in[k] != NONE) copy.in[k] = materialize(pass, copy.in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (copy.out[k] == NONE) continue;
        TensorId t = copy.out[k];
        copy.out[k] = twin_tensor(pass, t, "'");
        pass->again[t] = copy.out[k];
    }
    copy.phase = PHASE_RECOMPUTE;
    copy.origin = pass->moved[producer];
    append(pass, copy);
}

/* The tensor that holds the value of forward tensor `t` at this point of backward. */
static TensorId materialize(Pass *pass, TensorId t)
{
    if (!given_up(pass, t)) return t;
    if (pass->again[t] != NONE) return pass->again[t];
    InstrId producer = pass->producer[t];
    const Instr *f = &pass->old[producer];
    bool has_xhat = f->op == OP_ADDNORM && f->attr.norm.form == NORM_FORM_XHAT && t == f->out[0];
    if (has_xhat && (!given_up(pass, f->out[2]) || pass->again[f->out[2]] != NONE))
        affine_again(pass, f, pass->moved[producer]);
    else
        instr_again(pass, producer);
    return pass->again[t];
}

static bool is_gelu_output(const Pass *pass, TensorId t)
{
    return pass->producer[t] != NONE && pass->old[pass->producer[t]].op == OP_GELU;
}

static void backward_instr(Pass *pass, Instr b)
{
    const Instr *f = b.origin == NONE ? NULL : &pass->old[b.origin];
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (b.in[k] == NONE || !given_up(pass, b.in[k])) continue;
        b.in[k] = is_gelu_output(pass, b.in[k]) ? pass->gelu_again[b.in[k]] : materialize(pass, b.in[k]);
        CHECK(b.in[k] != NONE, "%s reads a GELU output before its backward made it again", op_info(b.op)->name);
    }
    if (b.op == OP_GELU_BWD && given_up(pass, f->out[0]))
        b.out[1] = pass->gelu_again[f->out[0]] = twin_tensor(pass, f->out[0], "\"");
    if (b.origin != NONE) b.origin = pass->moved[b.origin];
    append(pass, b);
}

void plan_recompute(Plan *p, const uint8_t *levels)
{
    int32_t n_tensors = p->n_tensors, n_instrs = p->n_instrs;
    Pass pass = {.p = p,
                 .levels = levels,
                 .old = p->instrs,
                 .producer = mem_array((size_t)n_tensors, sizeof(InstrId)),
                 .moved = mem_array((size_t)n_instrs, sizeof(InstrId)),
                 .again = mem_array((size_t)n_tensors, sizeof(TensorId)),
                 .gelu_again = mem_array((size_t)n_tensors, sizeof(TensorId))};
    memcpy(p->levels, levels, (size_t)p->n_layers);
    p->instrs = NULL;
    p->n_instrs = p->cap_instrs = 0;
    for (TensorId t = 0; t < n_tensors; t++) pass.producer[t] = pass.again[t] = pass.gelu_again[t] = NONE;
    for (InstrId i = 0; i < n_instrs; i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (pass.old[i].phase == PHASE_FORWARD && pass.old[i].out[k] != NONE) pass.producer[pass.old[i].out[k]] = i;
    for (InstrId i = 0; i < n_instrs; i++) {
        if (pass.old[i].phase == PHASE_BACKWARD) {
            backward_instr(&pass, pass.old[i]);
        } else {
            append(&pass, pass.old[i]);
        }
        pass.moved[i] = p->n_instrs - 1;
    }
    free(pass.old);
    free(pass.producer);
    free(pass.moved);
    free(pass.again);
    free(pass.gelu_again);
}
