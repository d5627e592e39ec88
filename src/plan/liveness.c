/* The life of each activation, and which may lie in the memory of one that ends where it begins. */
#include <stdlib.h>

#include "plan/plan.h"

static void touch(Tensor *t, InstrId first, InstrId last)
{
    if (t->first == NONE || first < t->first) t->first = first;
    if (last > t->last) t->last = last;
}

/* Instr i works on its tensors from `first` to `last` of the compute lane: one of another lane at any time after the
   instr that its lane has waited for and before the compute lane waits for it. `begun`: see plan_liveness. */
static void when(const Plan *p, InstrId i, InstrId begun[N_LANES], InstrId *first, InstrId *last)
{
    const Instr *instr = &p->instrs[i];
    InstrId end = p->micro.first + p->micro.count;
    *first = *last = i;
    if (instr->lane == LANE_COMPUTE) return;
    for (int w = 0; w < 2; w++)
        if (instr->wait[w] != NONE && p->instrs[instr->wait[w]].lane == LANE_COMPUTE &&
            instr->wait[w] >= begun[instr->lane])
            begun[instr->lane] = instr->wait[w] + 1;
    *first = begun[instr->lane];
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
   `elsewhere`: (tensors) until when another lane works on it. */
static void try_share(Plan *p, InstrId i, int k, const InstrId *elsewhere)
{
    const Instr *instr = &p->instrs[i];
    const OperandInfo *info = &op_info(instr->op)->out[k];
    if (info->shares < 0 || instr->out[k] == NONE || instr->in[info->shares] == NONE) return;
    Tensor *out = &p->tensors[instr->out[k]], *in = &p->tensors[instr->in[info->shares]];
    bool can = in->region == REGION_ACT && out->region == REGION_ACT && in->last == i && in->bytes == out->bytes &&
               out->shares == NONE && elsewhere[instr->in[info->shares]] < i;
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
    InstrId end = p->micro.first + p->micro.count, begun[N_LANES], first, last;
    InstrId *elsewhere = mem_array((size_t)p->n_tensors, sizeof *elsewhere);
    for (TensorId t = 0; t < p->n_tensors; t++) elsewhere[t] = NONE;
    for (int l = 0; l < N_LANES; l++) begun[l] = p->micro.first; /* a lane's next instr runs no earlier */
    for (InstrId i = p->micro.first; i < end; i++) {
        const Instr *instr = &p->instrs[i];
        when(p, i, begun, &first, &last);
        for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
            TensorId t = k < OP_MAX_IN ? instr->in[k] : instr->out[k - OP_MAX_IN];
            if (t == NONE) continue;
            touch(&p->tensors[t], first, last);
            if (instr->lane != LANE_COMPUTE && last > elsewhere[t]) elsewhere[t] = last;
        }
    }
    for (InstrId i = p->micro.first; i < end; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) try_share(p, i, k, elsewhere);
    free(elsewhere);
}
