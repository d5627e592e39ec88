#include "plan/rewrite.h"

void rewrite_begin(Rewrite *r, Plan *p)
{
    *r = (Rewrite){.p = p, .old = p->instrs, .n = p->n_instrs};
    r->moved = mem_array((size_t)r->n, sizeof *r->moved);
    p->instrs = NULL;
    p->n_instrs = p->cap_instrs = 0;
}

void rewrite_end(Rewrite *r) { MEM_FREE(r->old, r->moved); }

Instr rewrite_old(const Rewrite *r, InstrId i)
{
    Instr instr = r->old[i];
    if (instr.origin != NONE) instr.origin = r->moved[instr.origin];
    for (int w = 0; w < 2; w++)
        if (instr.wait[w] != NONE) instr.wait[w] = r->moved[instr.wait[w]];
    return instr;
}

InstrId rewrite_keep(Rewrite *r, InstrId i, Instr instr) { return r->moved[i] = plan_append(r->p, instr); }

InstrId plan_append(Plan *p, Instr instr)
{
    MEM_PUSH(p->instrs, p->n_instrs, p->cap_instrs, instr);
    return p->n_instrs - 1;
}

void plan_wait_for(Plan *p, Instr *instr, InstrId other)
{
    for (int w = 0; w < 2; w++) {
        if (instr->wait[w] != NONE && p->instrs[instr->wait[w]].lane != p->instrs[other].lane) continue;
        if (instr->wait[w] < other) instr->wait[w] = other;
        return;
    }
    CHECK(0, "%s waits for instrs of three lanes", op_info(instr->op)->name);
}

TensorId plan_like(Plan *p, TensorId t, Region region, const char *mark)
{
    Tensor of = p->tensors[t];
    TensorId n = plan_tensor(p, region, of.dtype, of.rows, of.cols, "%.40s%s", of.name, mark);
    p->tensors[n].layer = of.layer;
    p->tensors[n].original = t;
    return n;
}
