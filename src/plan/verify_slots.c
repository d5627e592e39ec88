/* The verifier's part for stages. It uses neither liveness nor the layout's classes: it looks at the instrs alone. */

#include "plan/plan.h"

static Status bad(const Plan *p, TensorId t, const char *what)
{
    return fail(E_FAIL, "plan: tensor '%s' of a stage: %s", p->tensors[t].name, what);
}

static bool placed(const Tensor *t)
{
    return t->region == REGION_ACT || t->region == REGION_INPUT || t->region == REGION_HOST;
}

/* uses (tensors): the works that touch each, as bits. */
static void find_uses(const Plan *p, unsigned *uses)
{
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        const Instr *instr = &p->instrs[i];
        unsigned bit = 1u << plan_work_of(p, i);
        for (int k = 0; k < OP_MAX_IN; k++)
            if (instr->in[k] != NONE) uses[instr->in[k]] |= bit;
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (instr->out[k] != NONE) uses[instr->out[k]] |= bit;
    }
    for (TensorId t = 0; t < p->n_tensors; t++) /* the host writes inputs before F */
        if (p->tensors[t].region == REGION_INPUT && uses[t]) uses[t] |= 1u << WORK_FORWARD;
}

/* A slot is taken from its first work to the end of its last. */
static bool covers(int slot, unsigned touched)
{
    static const unsigned of[N_SLOTS] = {
        [SLOT_ACTIVATION] = 1u << WORK_FORWARD | 1u << WORK_BACKWARD | 1u << WORK_INPUT,
        [SLOT_OPERAND] = 1u << WORK_FORWARD | 1u << WORK_INPUT | 1u << WORK_WEIGHT,
        [SLOT_GRADIENT] = 1u << WORK_INPUT | 1u << WORK_WEIGHT,
        [SLOT_CURVE_A] = ~0u,
        [SLOT_CURVE_G] = ~(1u << WORK_FORWARD),
    };
    return (touched & ~of[slot]) == 0;
}

static Status check_class(const Plan *p, TensorId t, unsigned touched)
{
    const Tensor *x = &p->tensors[t];
    bool several = (touched & (touched - 1)) != 0;
    if (x->slot == NONE) return several ? bad(p, t, "lives from one work to another and has no slots") : OK;
    if (!covers(x->slot, touched)) return bad(p, t, "its slots are free before its last work");
    return p->slots[x->slot] < 1 ? bad(p, t, "its class has no slots") : OK;
}

/* Memory of the slots of a class in a region. */
typedef struct {
    size_t begin, end; /* of the first slot, then of all */
    size_t stride;
} Area;

static Status grow_area(const Plan *p, TensorId t, Area *a)
{
    const Tensor *x = &p->tensors[t];
    bool empty = a->end == 0;
    if (!empty && x->stride != a->stride) return bad(p, t, "its slots are not as far apart as those of its class");
    a->stride = x->stride;
    if (empty || x->offset < a->begin) a->begin = x->offset;
    if (x->offset + x->bytes > a->end) a->end = x->offset + x->bytes;
    return a->end - a->begin > a->stride ? bad(p, t, "its slots overlap") : OK;
}

static Status check_region(const Plan *p, Region region, const unsigned *uses)
{
    Area areas[N_SLOTS] = {{0}};
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].region == region && uses[t] && p->tensors[t].slot != NONE)
            TRY(grow_area(p, t, &areas[p->tensors[t].slot]));
    for (int kind = 0; kind < N_SLOTS; kind++)
        if (areas[kind].end > 0) areas[kind].end += (size_t)(p->slots[kind] - 1) * areas[kind].stride;
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        if (x->region != region || !uses[t]) continue;
        for (int kind = 0; kind < N_SLOTS; kind++) {
            if (areas[kind].end > p->region_bytes[region]) return bad(p, t, "its slots reach beyond their region");
            if (x->slot != kind && x->offset < areas[kind].end && areas[kind].begin < x->offset + x->bytes)
                return bad(p, t, "lies in the slots of a class that is not its own");
        }
    }
    return OK;
}

/* Between two boundaries of a work lanes wait for each other alone, and the compute lane for all in the end. */
static Status check_lanes(const Plan *p)
{
    InstrId first = NONE, copy = NONE, awaited = NONE;
    for (InstrId i = p->micro.first; i <= p->micro.first + p->micro.count; i++) {
        bool end = i == p->micro.first + p->micro.count || op_is_link(p->instrs[i].op) ||
                   (i > p->micro.first && plan_work_of(p, i) != plan_work_of(p, i - 1));
        if (end && copy > awaited) return fail(E_FAIL, "plan: a work ends before its instr %d has ended", copy);
        if (end) first = i, copy = awaited = NONE;
        if (i == p->micro.first + p->micro.count) break;
        const Instr *instr = &p->instrs[i];
        bool behind = false;
        for (int w = 0; w < 2; w++) {
            if (instr->wait[w] == NONE) continue;
            if (instr->wait[w] < first || op_is_link(p->instrs[instr->wait[w]].op))
                return fail(E_FAIL, "plan: instr %d waits for instr %d, behind a boundary or another work", i,
                            instr->wait[w]);
            behind |= p->instrs[instr->wait[w]].lane == LANE_COMPUTE;
            if (instr->lane == LANE_COMPUTE && instr->wait[w] > awaited) awaited = instr->wait[w];
        }
        if (instr->lane != LANE_COPY) continue;
        if (!behind) return fail(E_FAIL, "plan: copy %d waits for no instr of its work", i);
        copy = i;
    }
    return OK;
}

Status plan_verify_slots(const Plan *p)
{
    Status status = OK;
    if (!p->slots[SLOT_ACTIVATION]) return OK;
    TRY(check_lanes(p));
    int32_t covered = 0;
    for (int kind = 0; kind < N_RANGES; kind++) covered += p->work[kind].count;
    if (covered != p->micro.count) return fail(E_FAIL, "plan: %d of %d instrs are in a work", covered, p->micro.count);
    unsigned *uses = mem_array((size_t)p->n_tensors, sizeof *uses);
    find_uses(p, uses);
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (placed(&p->tensors[t]) && uses[t]) TRY_DONE(check_class(p, t, uses[t]));
    TRY_DONE(check_region(p, REGION_ACT, uses));
    TRY_DONE(check_region(p, REGION_INPUT, uses));
    TRY_DONE(check_region(p, REGION_HOST, uses));
done:
    free(uses);
    return status;
}
