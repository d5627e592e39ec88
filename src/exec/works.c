/* Works of a stage: a range of its instrs, in the slots of one micro-batch. */

#include "exec/exec_internal.h"

/* A call is bound to slot 0. */
static void move(const Exec *e, Operand *o, TensorId t, const int slots[N_SLOTS])
{
    const Tensor *x = t == NONE ? NULL : &e->plan->tensors[t];
    if (x && x->slot != NONE) o->data = (char *)o->data + (size_t)slots[x->slot] * x->stride;
}

void *exec_place(const Exec *e, TensorId t, const int *slots)
{
    Operand o = {.data = exec_data(e, t)};
    if (slots) move(e, &o, t, slots);
    return o.data;
}

void exec_move_call(const Exec *e, InstrId i, OpCall *call)
{
    const Instr *instr = &e->plan->instrs[i];
    *call = e->calls[i];
    for (int k = 0; k < OP_MAX_IN; k++) move(e, &call->in[k], instr->in[k], e->slots);
    for (int k = 0; k < OP_MAX_OUT; k++) move(e, &call->out[k], instr->out[k], e->slots);
}

/* The slots of the classes that the work may touch; 0 in place of others, which may be anything. */
static void take_slots(const Exec *e, WorkKind kind, const int slots[N_SLOTS], int own[N_SLOTS])
{
    const int *of = e->plan->slots;
    bool curves = kind == WORK_CURVE_A || kind == WORK_CURVE_G;
    const bool uses[N_SLOTS] = {[SLOT_ACTIVATION] = kind != WORK_WEIGHT && !curves,
                                [SLOT_OPERAND] = of[SLOT_OPERAND] > 0 && !curves,
                                [SLOT_GRADIENT] = kind == WORK_INPUT || kind == WORK_WEIGHT,
                                [SLOT_CURVE_A] = of[SLOT_CURVE_A] > 0,
                                [SLOT_CURVE_G] = of[SLOT_CURVE_G] > 0 && kind != WORK_FORWARD && kind != WORK_CURVE_A};
    for (int k = 0; k < N_SLOTS; k++) {
        CHECK(!uses[k] || (slots[k] >= 0 && slots[k] < of[k]), "slot %d of %d in class %d", slots[k], of[k], k);
        own[k] = uses[k] || (k >= N_ORDER_SLOTS && of[k] > 0) ? slots[k] : 0;
    }
}

static Status pass_link(Exec *e, InstrId i, const RowCounts *rows)
{
    const Instr *instr = &e->plan->instrs[i];
    bool send = instr->op == OP_SEND;
    TensorId x = send ? instr->in[SEND_IN_x] : instr->out[RECEIVE_OUT_x];
    return e->links->pass(e->links->self, send, e->forward, exec_place(e, x, e->slots),
                          plan_tensor_bytes(e->plan, x, rows));
}

/* The next boundary or sum from an instr on, or the end. */
static InstrId next_link(const Plan *p, InstrId i, InstrId end)
{
    while (i < end && !op_is_link(p->instrs[i].op) && !op_is_exchange(p->instrs[i].op)) i++;
    return i;
}

/* A boundary, a sum, a watched instr, or all instrs up to the next boundary or sum; *next is the one after. */
static Status run_from(Exec *e, InstrId i, InstrId end, const RowCounts *rows, InstrId *next)
{
    const Plan *p = e->plan;
    *next = i + 1;
    if (op_is_link(p->instrs[i].op)) return exec_run_noted(e, i, rows, LANE_COMPUTE, pass_link);
    if (op_is_exchange(p->instrs[i].op)) return exec_reduce(e, i, rows);
    if (!exec_watched(e)) *next = next_link(p, i, end);
    Status status = exec_watched(e) ? exec_run_watched(e, i, rows) : exec_run_range(e, (Range){i, *next - i}, rows);
    return e->events ? exec_end_lanes(e, status) : status;
}

/* With checks a work continues behind a value that is not finite, because other places wait for its boundary. */
static Status run_instrs(Exec *e, Range range, const RowCounts *rows)
{
    char *bad = NULL;
    Status status = OK;
    for (InstrId i = range.first, next; i < range.first + range.count; i = next) {
        TRY_DONE(run_from(e, i, range.first + range.count, rows, &next));
        if (e->options.check && !bad && exec_check_finite(e, i, rows) != OK) bad = mem_strdup(status_message());
        if (e->options.poison) TRY_DONE(exec_poison_dead(e, i)); /* watched: one instr */
    }
    if (bad) status = fail(E_NUMERIC, "%s", bad);
done:
    free(bad);
    return status;
}

Status exec_prepare_work(Exec *e, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows)
{
    const Device *d = e->memory->backend->device;
    Range range = e->plan->work[kind];
    int own[N_SLOTS];
    Status status = OK;
    if (!d || !d->capture_begin || exec_watched(e)) return OK;
    take_slots(e, kind, slots, own);
    e->slots = own;
    for (InstrId i = range.first, end = range.first + range.count, next; i < end && status == OK; i = next) {
        next = next_link(e->plan, i, end);
        if (next > i) status = exec_prepare_graph(e, (Range){i, next - i}, rows);
        if (next == i) next++;
    }
    e->slots = NULL;
    return status;
}

Status exec_run_work(Exec *e, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows, const ExecLinks *links,
                     bool last)
{
    int own[N_SLOTS];
    take_slots(e, kind, slots, own);
    e->slots = own;
    e->links = links;
    e->forward = kind == WORK_FORWARD;
    e->reducing = last && e->comm_lane && e->comm_lane->beside;
    Status status = run_instrs(e, e->plan->work[kind], rows);
    e->slots = NULL;
    e->links = NULL;
    e->reducing = false;
    return status;
}

Status exec_run_curvature(Exec *e, WorkKind kind, int layer, const int slots[N_SLOTS], const RowCounts *rows)
{
    Range all = e->plan->work[kind];
    int own[N_SLOTS];
    Status status = OK;
    take_slots(e, kind, slots, own);
    e->slots = own;
    for (InstrId i = all.first; i < all.first + all.count && status == OK; i++)
        if (e->plan->instrs[i].layer == layer) status = run_instrs(e, (Range){i, 1}, rows);
    e->slots = NULL;
    return status;
}

Status exec_upload_slot(const Exec *e, TensorId t, const int slots[N_SLOTS], const void *data, size_t bytes)
{
    return backend_upload(e->memory->backend, exec_place(e, t, slots), data, bytes);
}
