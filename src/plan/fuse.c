/* The fuse pass: a product and the GELU behind it are one instr where the backend has a kernel for both. The forward
   one stands in the product's place; the backward one in GELU_BWD's, behind what recompute put between the two. */
#include "plan/rewrite.h"

typedef struct {
    Plan *p;
    bool (*fuses)(const OpCall *call);
    Rewrite r;
    InstrId *maker;   /* (tensors): old instr; NONE */
    InstrId *partner; /* (old instrs): of a product and a GELU that become one, the other; NONE */
} Fuse;

/* GELU or GELU_BWD `g` with the product that makes what it reads. */
static Instr fused(const Instr *product, const Instr *g)
{
    Instr i = *product;
    i.attr.linear.fused = true;
    i.attr.linear.gelu = g->attr.gelu.kind;
    if (g->op == OP_GELU) {
        i.out[LINEAR_OUT_g] = g->out[GELU_OUT_g];
        return i;
    }
    i.in[LINEAR_DGRAD_IN_pre] = g->in[GELU_BWD_IN_pre];
    i.out[LINEAR_DGRAD_OUT_dx] = g->out[GELU_BWD_OUT_dpre];
    i.out[LINEAR_DGRAD_OUT_g] = g->out[GELU_BWD_OUT_g];
    i.out[LINEAR_DGRAD_OUT_db] = g->out[GELU_BWD_OUT_db];
    return i;
}

static void find_partner(Fuse *pass, InstrId i)
{
    const Instr *g = &pass->r.old[i];
    if (g->op != OP_GELU && g->op != OP_GELU_BWD) return;
    InstrId maker = pass->maker[g->op == OP_GELU ? g->in[GELU_IN_pre] : g->in[GELU_BWD_IN_dg]];
    if (maker == NONE) return;
    const Instr *product = &pass->r.old[maker];
    bool forward = g->op == OP_GELU && product->op == OP_LINEAR && product->phase == g->phase;
    bool backward = g->op == OP_GELU_BWD && product->op == OP_LINEAR_DGRAD && product->in[LINEAR_DGRAD_IN_add] == NONE;
    if (!forward && !backward) return;
    Instr both = fused(product, g);
    OpCall call;
    plan_call(pass->p, &both, &call);
    if (!pass->fuses(&call)) return;
    pass->partner[i] = maker;
    pass->partner[maker] = i;
}

static void keep(Fuse *pass, InstrId i)
{
    Rewrite *r = &pass->r;
    Instr instr = rewrite_old(r, i);
    InstrId partner = pass->partner[i], first = instr.op == OP_LINEAR ? r->old[i].origin : NONE;
    if (partner == NONE) {
        if (first != NONE && pass->partner[first] != NONE) /* made again, without its GELU */
            instr.attr = r->p->instrs[r->moved[first]].attr;
        rewrite_keep(r, i, instr);
    } else if (instr.op == OP_LINEAR) {
        rewrite_keep(r, i, fused(&instr, &r->old[partner]));
    } else if (instr.op == OP_GELU) {
        r->moved[i] = r->moved[partner];
    } else if (instr.op == OP_GELU_BWD) {
        Instr product = rewrite_old(r, partner);
        rewrite_keep(r, i, fused(&product, &instr));
    }
}

void plan_fuse(Plan *p, bool (*fuses)(const OpCall *call))
{
    Fuse pass = {.p = p, .fuses = fuses, .maker = mem_array((size_t)p->n_tensors, sizeof(InstrId))};
    rewrite_begin(&pass.r, p);
    pass.partner = mem_array((size_t)pass.r.n, sizeof *pass.partner);
    for (TensorId t = 0; t < p->n_tensors; t++) pass.maker[t] = NONE;
    for (InstrId i = 0; i < pass.r.n; i++) {
        pass.partner[i] = NONE;
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (pass.r.old[i].out[k] != NONE) pass.maker[pass.r.old[i].out[k]] = i;
        find_partner(&pass, i);
    }
    for (InstrId i = 0; i < pass.r.n; i++) keep(&pass, i);
    rewrite_end(&pass.r);
    MEM_FREE(pass.maker, pass.partner);
}
