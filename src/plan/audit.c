/* The audit pass: what backward makes again must have the bits of the first time. */
#include <stdlib.h>

#include "plan/rewrite.h"

typedef struct {
    Plan *p;
    Rewrite r;
    TensorId
        *sums; /* (tensors before the pass): of a tensor that is made twice, its sums of the first time; else NONE */
    TensorId audit;
} Audit;

/* Made again in backward: the tensor that it replaces has the same bits. */
static bool is_again(const Plan *p, TensorId t)
{
    return t != NONE && p->tensors[t].region == REGION_ACT && p->tensors[t].original != NONE;
}

static TensorId emit_digest(const Audit *pass, const Instr *maker, InstrId origin, TensorId x)
{
    const Tensor of = pass->p->tensors[x];
    TensorId sums = plan_tensor(pass->p, REGION_ACT, I64, of.rows, 1, "%.42s.sums", of.name);
    InstrId i = plan_emit(pass->p, OP_DIGEST, maker->phase, maker->layer, (OpAttr){0}, IDS(x), IDS(sums));
    pass->p->instrs[i].origin = origin;
    return sums;
}

static void emit_compare(const Audit *pass, const Instr *maker, InstrId origin, TensorId again)
{
    TensorId first = pass->sums[pass->p->tensors[again].original];
    TensorId sums = emit_digest(pass, maker, origin, again);
    InstrId i = plan_emit(pass->p, OP_COMPARE, maker->phase, maker->layer, (OpAttr){.compare = {again}},
                          IDS(first, sums), IDS(pass->audit));
    pass->p->instrs[i].origin = origin;
}

/* Appends old instr i, and what checks its outputs. `wanted`: (tensors) whose first sums are needed. */
static void keep_audited(Audit *pass, InstrId i, const bool *wanted)
{
    const Instr maker = rewrite_old(&pass->r, i);
    InstrId kept = rewrite_keep(&pass->r, i, maker);
    for (int k = 0; k < OP_MAX_OUT; k++) {
        TensorId t = maker.out[k];
        if (t == NONE) continue;
        if (wanted[t]) pass->sums[t] = emit_digest(pass, &maker, kept, t);
        if (is_again(pass->p, t)) emit_compare(pass, &maker, kept, t);
    }
}

TensorId plan_audit(Plan *p)
{
    size_t n = (size_t)p->n_tensors;
    Audit pass = {.p = p, .sums = mem_array(n, sizeof(TensorId)), .audit = NONE};
    bool *wanted = mem_array(n, sizeof *wanted), any = false;
    for (TensorId t = 0; t < (TensorId)n; t++) {
        pass.sums[t] = NONE;
        if (!is_again(p, t)) continue;
        wanted[p->tensors[t].original] = any = true;
    }
    if (any) {
        pass.audit = plan_tensor(p, REGION_OUTPUT, U8, rows_fixed(1), sizeof(AuditFound), "audit");
        rewrite_begin(&pass.r, p);
        for (InstrId i = 0; i < pass.r.n; i++) keep_audited(&pass, i, wanted);
        rewrite_end(&pass.r);
    }
    free(pass.sums);
    free(wanted);
    return pass.audit;
}
