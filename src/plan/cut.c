/* The cut of a stage: `micro` becomes a range for each kind of work, and a tensor that lives from one work to another
   gets a slot for each micro-batch that is in flight. */
#include "plan/rewrite.h"

static bool puts_off(const Instr *i) { return i->op == OP_LINEAR_WGRAD || i->op == OP_EMBED_BWD; }

/* Of the instrs behind the boundary that is sent back. */
static WorkKind late_work(const Instr *i, bool split)
{
    if (i->op == OP_CURVATURE) return i->attr.curvature.of_input ? WORK_CURVE_A : WORK_CURVE_G;
    return split && puts_off(i) ? WORK_WEIGHT : WORK_BACKWARD;
}

static bool keeps_for_curvature(const Rewrite *r)
{
    for (InstrId i = 0; i < r->n; i++)
        if (r->old[i].op == OP_CURVATURE) return true;
    return false;
}

void plan_cut(Plan *p, const int slots[N_SLOTS], bool split)
{
    static const WorkKind order[] = {WORK_BACKWARD, WORK_WEIGHT, WORK_CURVE_A, WORK_CURVE_G};
    Rewrite r;
    rewrite_begin(&r, p);
    bool curved = keeps_for_curvature(&r);
    for (int kind = 0; kind < N_SLOTS; kind++) {
        bool needed = kind == SLOT_ACTIVATION || (kind < N_ORDER_SLOTS ? split : curved);
        p->slots[kind] = !needed ? 0 : slots[kind] > 1 ? slots[kind] : 1;
    }
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (InstrId i = 0; i < r.n; i++)
            if (late_work(&r.old[i], split) == order[k]) rewrite_keep(&r, i, rewrite_old(&r, i));
    rewrite_end(&r);
}

void plan_works(Plan *p)
{
    if (!p->slots[SLOT_ACTIVATION]) return;
    bool split = p->slots[SLOT_OPERAND] > 0;
    WorkKind kind = WORK_FORWARD;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        const Instr *instr = &p->instrs[i];
        if (!op_is_exchange(instr->op)) /* which stays behind what it sums */
            kind = instr->phase == PHASE_FORWARD ? WORK_FORWARD : late_work(instr, split);
        Range *range = &p->work[kind == WORK_BACKWARD && split ? WORK_INPUT : kind];
        if (range->count++ == 0) range->first = i;
    }
}

WorkKind plan_work_of(const Plan *p, InstrId i)
{
    for (int kind = 0; kind < N_RANGES; kind++)
        if (i >= p->work[kind].first && i < p->work[kind].first + p->work[kind].count) return (WorkKind)kind;
    return N_RANGES;
}

int plan_slot_kind(const Plan *p, InstrId first, InstrId last)
{
    WorkKind from = plan_work_of(p, first), to = plan_work_of(p, last);
    if (from == to) return NONE;
    if (to == WORK_CURVE_A || to == WORK_CURVE_G) return from == WORK_FORWARD ? SLOT_CURVE_A : SLOT_CURVE_G;
    if (to != WORK_WEIGHT) return SLOT_ACTIVATION;
    return from == WORK_INPUT ? SLOT_GRADIENT : SLOT_OPERAND;
}
