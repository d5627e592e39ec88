/* The begin pass: what a step clears, and which gradients its first micro-batch begins in place of adding to them. */

#include "plan/rewrite.h"

static void zero(Plan *p, TensorId t)
{
    if (t != NONE) plan_emit(p, OP_ZERO, PHASE_BEGIN, NONE, (OpAttr){0}, NO_IDS, IDS(t));
}

/* Marks the instrs. Fills the places of the tensors that they begin and returns their number. */
static int mark_instrs(Plan *p, Interval *begun)
{
    int n_seen = 0, n_begun = 0;
    Interval *seen = mem_array((size_t)p->n_instrs * OP_MAX_OUT + 1, sizeof *seen); /* that an instr has added to */
    for (InstrId i = 0; i < p->n_instrs; i++) {
        Instr *instr = &p->instrs[i];
        for (int k = 0; k < OP_MAX_OUT; k++) {
            if (instr->out[k] == NONE || p->tensors[instr->out[k]].region != REGION_GRAD) continue;
            Interval x = tensor_bytes(&p->tensors[instr->out[k]]);
            if (op_info(instr->op)->out[k].begun && !interval_meets(seen, n_seen, x)) {
                instr->begins |= (uint8_t)(1u << k);
                begun[n_begun++] = x;
            }
            seen[n_seen++] = x;
        }
    }
    free(seen);
    return n_begun;
}

static void clear_part(Plan *p, Interval x)
{
    if (x.begin == x.end) return;
    size_t at = (size_t)x.begin, n = (size_t)(x.end - x.begin) / sizeof(float);
    TensorId t = plan_tensor(p, REGION_GRAD, F32, rows_fixed((int64_t)n), 1, "grads.at%zu", at / sizeof(float));
    p->tensors[t].offset = at;
    zero(p, t);
}

/* All of `grads` but what instrs begin. */
static void clear_others(Plan *p, TensorId grads, Interval *begun, int n)
{
    Interval all = tensor_bytes(&p->tensors[grads]);
    qsort(begun, (size_t)n, sizeof *begun, interval_order);
    int64_t at = all.begin;
    for (int i = 0; i < n; i++) {
        clear_part(p, (Interval){at, begun[i].begin});
        at = begun[i].end;
    }
    clear_part(p, (Interval){at, all.end});
}

void plan_begin(Plan *p, TensorId stats, TensorId grads, TensorId audit, bool begins)
{
    p->micro = (Range){0, p->n_instrs};
    plan_works(p);
    begins = begins && grads != NONE;
    Interval *begun = mem_array((size_t)p->n_instrs * OP_MAX_OUT + 1, sizeof *begun);
    int n = begins ? mark_instrs(p, begun) : 0;
    p->begin.first = p->n_instrs;
    zero(p, stats);
    if (begins)
        clear_others(p, grads, begun, n);
    else
        zero(p, grads);
    zero(p, audit);
    p->begin.count = p->n_instrs - p->begin.first;
    p->clear.first = p->n_instrs;
    if (begins) zero(p, grads);
    p->clear.count = p->n_instrs - p->clear.first;
    p->update = p->pack = (Range){p->n_instrs, 0};
    free(begun);
}
