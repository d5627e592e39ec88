/* The life of each activation, and the outputs that take over the memory of an input that dies there. */

#include "plan/plan.h"

static void extend_life(Tensor *t, InstrId first, InstrId last)
{
    if (t->first == NONE || first < t->first) t->first = first;
    if (last > t->last) t->last = last;
}

/* The instrs of the compute lane, `first` to `last`, during which instr i may run. One of another lane may run after
   the instr that its lane has waited for and before the compute lane waits for it. `lane_begin`: see plan_liveness. */
static void instr_span(const Plan *p, InstrId i, InstrId lane_begin[N_LANES], InstrId *first, InstrId *last)
{
    const Instr *instr = &p->instrs[i];
    InstrId end = p->micro.first + p->micro.count;
    *first = *last = i;
    if (instr->lane == LANE_COMPUTE) return;
    for (int w = 0; w < 2; w++)
        if (instr->wait[w] != NONE && p->instrs[instr->wait[w]].lane == LANE_COMPUTE &&
            instr->wait[w] >= lane_begin[instr->lane])
            lane_begin[instr->lane] = instr->wait[w] + 1;
    *first = lane_begin[instr->lane];
    *last = end - 1;
    for (InstrId later = i + 1; later < end; later++)
        for (int w = 0; w < 2 && p->instrs[later].lane == LANE_COMPUTE; w++) {
            InstrId other = p->instrs[later].wait[w];
            if (other < i || p->instrs[other].lane != instr->lane) continue;
            *last = later - 1;
            return;
        }
}

/* Output k of instr i lies in the memory of the input its op names, if that input dies here and is as large.
   `busy_until`: (tensors) the last instr during which another lane may use it. */
static void try_share(Plan *p, InstrId i, int k, const InstrId *busy_until)
{
    const Instr *instr = &p->instrs[i];
    const OperandInfo *info = &op_info(instr->op)->out[k];
    if (info->shares < 0 || instr->out[k] == NONE || instr->in[info->shares] == NONE) return;
    Tensor *out = &p->tensors[instr->out[k]], *in = &p->tensors[instr->in[info->shares]];
    bool can = in->region == REGION_ACT && out->region == REGION_ACT && in->last == i && in->bytes == out->bytes &&
               out->shares == NONE && busy_until[instr->in[info->shares]] < i;
    for (int j = 0; j < k; j++) /* one output per input */
        can = can && (instr->out[j] == NONE || p->tensors[instr->out[j]].shares != instr->in[info->shares]);
    CHECK(can || !info->shares_always, "%s must write '%s' in the memory of '%s', which is still needed",
          op_info(instr->op)->name, out->name, in->name);
    if (can) out->shares = instr->in[info->shares];
}

void plan_liveness(Plan *p)
{
    for (TensorId t = 0; t < p->n_tensors; t++) {
        p->tensors[t].first = p->tensors[t].last = p->tensors[t].shares = NONE;
        p->tensors[t].bytes = plan_tensor_bytes(p, t, &p->capacity);
    }
    InstrId end = p->micro.first + p->micro.count, lane_begin[N_LANES], first, last;
    InstrId *busy_until = mem_array((size_t)p->n_tensors, sizeof *busy_until);
    for (TensorId t = 0; t < p->n_tensors; t++) busy_until[t] = NONE;
    for (int l = 0; l < N_LANES; l++) lane_begin[l] = p->micro.first; /* a lane's next instr runs no earlier */
    for (InstrId i = p->micro.first; i < end; i++) {
        const Instr *instr = &p->instrs[i];
        instr_span(p, i, lane_begin, &first, &last);
        for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
            TensorId t = k < OP_MAX_IN ? instr->in[k] : instr->out[k - OP_MAX_IN];
            if (t == NONE) continue;
            extend_life(&p->tensors[t], first, last);
            if (instr->lane != LANE_COMPUTE && last > busy_until[t]) busy_until[t] = last;
        }
    }
    for (InstrId i = p->micro.first; i < end; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) try_share(p, i, k, busy_until);
    free(busy_until);
}
