/* The verifier. It trusts no pass: it walks the instrs with a symbolic memory of its own and looks whether every read
   finds the value that was written for it. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct {
    const Plan *p;
    bool *valid;    /* (tensors): holds its value now */
    bool *written;  /* (tensors): was written by an instr of this pass over the plan */
    TensorId *live; /* the valid ACT tensors */
    int n_live;
} Memory;

static bool overlap(const Tensor *a, const Tensor *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static Status bad(const Plan *p, InstrId i, TensorId t, const char *what)
{
    return fail(E_FAIL, "plan: instr %d (%s, layer %d), tensor '%s': %s", i, op_info(p->instrs[i].op)->name,
                p->instrs[i].layer, p->tensors[t].name, what);
}

static bool host_owned(const Tensor *t)
{
    return t->region == REGION_INPUT || t->region == REGION_CONST || t->region == REGION_WEIGHT ||
           t->region == REGION_COPY || t->region == REGION_MOMENT;
}

static Status check_read(const Memory *m, InstrId i, TensorId t)
{
    const Tensor *x = &m->p->tensors[t];
    if (host_owned(x) || x->region == REGION_GRAD || x->region == REGION_OUTPUT) return OK;
    if (!m->written[t]) return bad(m->p, i, t, "is read before anything wrote it");
    return m->valid[t] ? OK : bad(m->p, i, t, "is read after its memory was given to another tensor");
}

static Status check_write(Memory *m, InstrId i, int k)
{
    const Plan *p = m->p;
    const Instr *instr = &p->instrs[i];
    const OperandInfo *info = &op_info(instr->op)->out[k];
    TensorId t = instr->out[k];
    const Tensor *x = &p->tensors[t];
    if (x->offset + x->bytes > p->region_bytes[x->region]) return bad(p, i, t, "reaches beyond its region");
    if (x->region == REGION_INPUT || x->region == REGION_CONST)
        return bad(p, i, t, "belongs to the host and is written");
    if (info->accumulated) return OK; /* gradients, moments, stats: begun by `begin` or by the host */
    if (m->written[t] && x->region == REGION_ACT) return bad(p, i, t, "is written by a second instr");
    for (int j = 0; j < OP_MAX_IN; j++) {
        if (instr->in[j] == NONE || !overlap(x, &p->tensors[instr->in[j]])) continue;
        if (j != info->shares || x->shares != instr->in[j])
            return bad(p, i, t, "overlaps an input its op may not overwrite");
    }
    for (int j = 0; j < OP_MAX_OUT; j++)
        if (j != k && instr->out[j] != NONE && overlap(x, &p->tensors[instr->out[j]]))
            return bad(p, i, t, "overlaps another output of the same instr");
    if (info->shares_always && instr->in[info->shares] != NONE && x->shares != instr->in[info->shares])
        return bad(p, i, t, "must lie in the memory of the input it adds to");
    m->written[t] = true;
    if (x->region != REGION_ACT) return OK;
    int kept = 0;
    for (int l = 0; l < m->n_live; l++) {
        if (overlap(x, &p->tensors[m->live[l]]))
            m->valid[m->live[l]] = false;
        else
            m->live[kept++] = m->live[l];
    }
    m->live[kept] = t;
    m->n_live = kept + 1;
    m->valid[t] = true;
    return OK;
}

static Status check_instr(Memory *m, InstrId i)
{
    const Instr *instr = &m->p->instrs[i];
    if (instr->scratch > m->p->region_bytes[REGION_SCRATCH])
        return fail(E_FAIL, "plan: instr %d (%s) needs %zu bytes of scratch, the region has %zu", i,
                    op_info(instr->op)->name, instr->scratch, m->p->region_bytes[REGION_SCRATCH]);
    for (int w = 0; w < 2; w++)
        if (instr->wait[w] != NONE && (instr->wait[w] >= i || m->p->instrs[instr->wait[w]].lane == instr->lane))
            return fail(E_FAIL, "plan: instr %d (%s) waits for instr %d, which is later or in its own lane", i,
                        op_info(instr->op)->name, instr->wait[w]);
    for (int k = 0; k < OP_MAX_IN; k++)
        if (instr->in[k] != NONE) TRY(check_read(m, i, instr->in[k]));
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE) TRY(check_write(m, i, k));
    return OK;
}

/* Every gradient that some instr accumulates into must be cleared by `begin`. */
static Status check_begun(const Plan *p)
{
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        for (int k = 0; k < OP_MAX_OUT; k++) {
            TensorId t = p->instrs[i].out[k];
            if (t == NONE || !op_info(p->instrs[i].op)->out[k].accumulated) continue;
            bool begun = false;
            for (InstrId b = p->begin.first; b < p->begin.first + p->begin.count; b++) {
                const Tensor *z = &p->tensors[p->instrs[b].out[0]], *x = &p->tensors[t];
                begun |=
                    z->region == x->region && z->offset <= x->offset && x->offset + x->bytes <= z->offset + z->bytes;
            }
            if (!begun) return bad(p, i, t, "is accumulated into, but `begin` does not clear it");
        }
    }
    return OK;
}

Status plan_verify(const Plan *p)
{
    Status status = OK;
    Memory m = {.p = p,
                .valid = mem_array((size_t)p->n_tensors, sizeof(bool)),
                .written = mem_array((size_t)p->n_tensors, sizeof(bool)),
                .live = mem_array((size_t)p->n_tensors + 1, sizeof(TensorId))};
    TRY_DONE(check_begun(p));
    Range order[] = {p->begin, p->micro, p->update};
    for (int r = 0; r < 3; r++)
        for (InstrId i = order[r].first; i < order[r].first + order[r].count; i++) TRY_DONE(check_instr(&m, i));
done:
    free(m.valid);
    free(m.written);
    free(m.live);
    return status;
}
