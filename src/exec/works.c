/* Works of a stage: a range of its instrs, in the slots of one micro-batch. */
#include <stdlib.h>

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

static Status run_bound(const Exec *e, InstrId i, const int slots[N_SLOTS], const RowCounts *rows)
{
    const Instr *instr = &e->plan->instrs[i];
    OpCall call = e->calls[i];
    for (int k = 0; k < OP_MAX_IN; k++) move(e, &call.in[k], instr->in[k], slots);
    for (int k = 0; k < OP_MAX_OUT; k++) move(e, &call.out[k], instr->out[k], slots);
    return e->ops[i]->run(&call, rows);
}

static void check_slots(const Exec *e, WorkKind kind, const int slots[N_SLOTS])
{
    const int *of = e->plan->slots;
    bool curves = kind == WORK_CURVE_A || kind == WORK_CURVE_G;
    const bool uses[N_SLOTS] = {[SLOT_ACTIVATION] = kind != WORK_WEIGHT && !curves,
                                [SLOT_OPERAND] = of[SLOT_OPERAND] > 0 && !curves,
                                [SLOT_GRADIENT] = kind == WORK_INPUT || kind == WORK_WEIGHT,
                                [SLOT_CURVE_A] = of[SLOT_CURVE_A] > 0,
                                [SLOT_CURVE_G] = of[SLOT_CURVE_G] > 0 && kind != WORK_FORWARD && kind != WORK_CURVE_A};
    for (int k = 0; k < N_SLOTS; k++)
        CHECK(!uses[k] || (slots[k] >= 0 && slots[k] < of[k]), "slot %d of %d in class %d", slots[k], of[k], k);
}

static Status run_link(const Exec *e, const Instr *instr, const int slots[N_SLOTS], bool forward, const RowCounts *rows,
                       const ExecLinks *links)
{
    bool send = instr->op == OP_SEND;
    TensorId x = send ? instr->in[SEND_IN_x] : instr->out[RECEIVE_OUT_x];
    return links->pass(links->self, send, forward, exec_place(e, x, slots), plan_tensor_bytes(e->plan, x, rows));
}

static Status run_instr(Exec *e, InstrId i, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows,
                        const ExecLinks *links)
{
    const Instr *instr = &e->plan->instrs[i];
    double begin = e->tracing ? clock_monotonic() : 0;
    TRY(op_is_link(instr->op) ? run_link(e, instr, slots, kind == WORK_FORWARD, rows, links)
                              : run_bound(e, i, slots, rows));
    if (!e->tracing) return OK;
    double end = clock_monotonic();
    exec_add_record(e, (ExecRecord){i, *rows, begin, end, begin, end}, 0);
    return OK;
}

/* With checks a work goes on behind a value that is not finite, because other places wait for its boundary. */
static Status run_instrs(Exec *e, WorkKind kind, int layer, const int slots[N_SLOTS], const RowCounts *rows,
                         const ExecLinks *links)
{
    const Plan *p = e->plan;
    Range range = p->work[kind];
    char *bad = NULL;
    Status status = OK;
    check_slots(e, kind, slots);
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        const Instr *instr = &p->instrs[i];
        if (layer != NONE && instr->layer != layer) continue;
        CHECK(!op_is_exchange(instr->op) && instr->lane == LANE_COMPUTE, "works run on the compute lane alone");
        TRY_DONE(run_instr(e, i, kind, slots, rows, links));
        if (e->options.check && !bad && exec_check_finite(e, i, rows, slots) != OK) bad = mem_strdup(status_message());
    }
    if (bad) status = fail(E_NUMERIC, "%s", bad);
done:
    free(bad);
    return status;
}

Status exec_run_work(Exec *e, WorkKind kind, const int slots[N_SLOTS], const RowCounts *rows, const ExecLinks *links)
{
    return run_instrs(e, kind, NONE, slots, rows, links);
}

Status exec_run_curvature(Exec *e, WorkKind kind, int layer, const int slots[N_SLOTS], const RowCounts *rows)
{
    return run_instrs(e, kind, layer, slots, rows, NULL);
}

Status exec_upload_slot(const Exec *e, TensorId t, const int slots[N_SLOTS], const void *data, size_t bytes)
{
    return backend_upload(e->memory->backend, exec_place(e, t, slots), data, bytes);
}
