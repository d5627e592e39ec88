/* When each activation is alive, and which may lie in the memory of one that dies where it is born. */
#include "plan/plan.h"

static void touch(Tensor *t, InstrId i)
{
    if (t->first == NONE) t->first = i;
    t->last = i;
}

/* Output k of instr i lies in the memory of the input its op names, if that input dies here and is as large. */
static void try_share(Plan *p, InstrId i, int k)
{
    const Instr *instr = &p->instrs[i];
    const OperandInfo *info = &op_info(instr->op)->out[k];
    if (info->shares < 0 || instr->out[k] == NONE || instr->in[info->shares] == NONE) return;
    Tensor *out = &p->tensors[instr->out[k]], *in = &p->tensors[instr->in[info->shares]];
    bool can = in->region == REGION_ACT && out->region == REGION_ACT && in->last == i && in->bytes == out->bytes &&
               out->shares == NONE;
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
    InstrId end = p->micro.first + p->micro.count;
    for (InstrId i = p->micro.first; i < end; i++) {
        for (int k = 0; k < OP_MAX_IN; k++)
            if (p->instrs[i].in[k] != NONE) touch(&p->tensors[p->instrs[i].in[k]], i);
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (p->instrs[i].out[k] != NONE) touch(&p->tensors[p->instrs[i].out[k]], i);
    }
    for (InstrId i = p->micro.first; i < end; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) try_share(p, i, k);
}
