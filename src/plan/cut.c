/* The cut of a stage: `micro` becomes a range for each kind of work, and a tensor that lives from one work to another
   gets a slot for each micro-batch that is in flight. */
#include "plan/rewrite.h"

static bool puts_off(const Instr *i) { return i->op == OP_LINEAR_WGRAD || i->op == OP_EMBED_BWD; }

void plan_cut(Plan *p, const int slots[N_SLOTS], bool split)
{
    Rewrite r;
    for (int kind = 0; kind < N_SLOTS; kind++) p->slots[kind] = slots[kind];
    if (p->slots[SLOT_ACTIVATION] < 1) p->slots[SLOT_ACTIVATION] = 1;
    if (!split) {
        p->slots[SLOT_OPERAND] = p->slots[SLOT_GRADIENT] = 0;
        return;
    }
    rewrite_begin(&r, p);
    for (int late = 0; late < 2; late++)
        for (InstrId i = 0; i < r.n; i++)
            if (puts_off(&r.old[i]) == late) rewrite_keep(&r, i, rewrite_old(&r, i));
    rewrite_end(&r);
}

void plan_works(Plan *p)
{
    if (!p->slots[SLOT_ACTIVATION]) return;
    bool split = p->slots[SLOT_OPERAND] > 0;
    InstrId i = p->micro.first, end = i + p->micro.count, at = i;
    while (i < end && p->instrs[i].phase == PHASE_FORWARD) i++;
    p->work[WORK_FORWARD] = (Range){at, i - at};
    at = i;
    while (i < end && !(split && puts_off(&p->instrs[i]))) i++;
    p->work[split ? WORK_INPUT : WORK_BACKWARD] = (Range){at, i - at};
    if (split) p->work[WORK_WEIGHT] = (Range){i, end - i};
}

WorkKind plan_work_of(const Plan *p, InstrId i)
{
    for (int kind = 0; kind < N_WORKS; kind++)
        if (i >= p->work[kind].first && i < p->work[kind].first + p->work[kind].count) return (WorkKind)kind;
    return N_WORKS;
}

int plan_slot_kind(const Plan *p, InstrId first, InstrId last)
{
    WorkKind from = plan_work_of(p, first), to = plan_work_of(p, last);
    if (from == to) return NONE;
    if (to != WORK_WEIGHT) return SLOT_ACTIVATION;
    return from == WORK_INPUT ? SLOT_GRADIENT : SLOT_OPERAND;
}
