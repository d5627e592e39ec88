/* The cut of a stage: `micro` becomes a range for each kind of work, and a tensor that lives from one work to another
   gets a slot for each micro-batch that is in flight. Copies of offloaded tensors run beside the compute lane within a
   work, between two boundaries: so a graph has them whole, and no work waits for another's. */
#include "plan/rewrite.h"

static bool puts_off(const Instr *i) { return i->op == OP_LINEAR_WGRAD || i->op == OP_EMBED_BWD; }

/* The work of an instr behind the boundary that is sent back. */
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

/* An instr that is waited for may have moved to a later work. */
static Instr cut_instr(const Rewrite *r, InstrId i, bool split)
{
    Instr instr = rewrite_old(r, i);
    for (int w = 0; w < 2; w++) {
        InstrId other = r->old[i].wait[w];
        if (other != NONE && late_work(&r->old[other], split) != late_work(&r->old[i], split)) instr.wait[w] = NONE;
    }
    return instr;
}

static WorkKind work_of(const Instr *i, bool split)
{
    return i->phase == PHASE_FORWARD ? WORK_FORWARD : late_work(i, split);
}

/* The instrs from `first` on that are of one work, without a boundary between them. */
static InstrId piece_end(const Plan *p, InstrId first, bool split)
{
    InstrId i = first;
    while (i < p->n_instrs && !op_is_link(p->instrs[i].op) &&
           work_of(&p->instrs[i], split) == work_of(&p->instrs[first], split))
        i++;
    return i;
}

/* The instr that waited for the FETCH of what instr i reads may have moved to a later work. */
static void wait_for_fetched(Plan *p, InstrId first, InstrId i)
{
    for (InstrId fetch = first; fetch < i; fetch++)
        for (int k = 0; k < OP_MAX_IN && p->instrs[fetch].op == OP_FETCH; k++)
            if (p->instrs[i].in[k] == p->instrs[fetch].out[FETCH_OUT_x]) plan_wait_for(p, &p->instrs[i], fetch);
}

/* Waits for instrs of other pieces go; a copy waits for the instr before it, and the last one's end is waited for. */
static void join_copies(Plan *p, InstrId first, InstrId end)
{
    InstrId compute = NONE, copy = NONE, joined = NONE;
    for (InstrId i = first; i < end; i++) {
        Instr *instr = &p->instrs[i];
        for (int w = 0; w < 2; w++)
            if (instr->wait[w] != NONE && instr->wait[w] < first) instr->wait[w] = NONE;
        if (instr->lane != LANE_COMPUTE) {
            CHECK(compute != NONE, "a copy at the begin of a work");
            plan_wait_for(p, instr, compute);
            copy = i;
            continue;
        }
        compute = i;
        if (copy > joined) wait_for_fetched(p, joined == NONE ? first : joined + 1, i);
        for (int w = 0; w < 2; w++)
            if (instr->wait[w] > joined) joined = instr->wait[w];
    }
    if (copy == NONE || joined >= copy) return;
    CHECK(compute > copy, "a copy at the end of a work");
    plan_wait_for(p, &p->instrs[compute], copy);
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
            if (late_work(&r.old[i], split) == order[k]) rewrite_keep(&r, i, cut_instr(&r, i, split));
    rewrite_end(&r);
    for (InstrId i = 0, end; i < p->n_instrs; i = end) {
        end = piece_end(p, i, split);
        if (end == i)
            p->instrs[end++].wait[0] = NONE; /* a boundary, which waited for OFFLOADs alone */
        else
            join_copies(p, i, end);
    }
}

void plan_works(Plan *p)
{
    if (!p->slots[SLOT_ACTIVATION]) return;
    bool split = p->slots[SLOT_OPERAND] > 0;
    WorkKind kind = WORK_FORWARD;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        const Instr *instr = &p->instrs[i];
        if (!op_is_exchange(instr->op)) /* which stays behind what it sums */
            kind = work_of(instr, split);
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
