/* Sums over rows in grains. An instr that adds to gradients, losses or K-FAC's statistics runs once for each grain of
   the micro-batch, in order, with the operands' rows of that grain. So the sum is a function of the grains in their
   order, whichever of them a micro-batch holds. Rows behind the last grain are one more call without a real row, where
   they must be written. */
#include "exec/exec_internal.h"

void exec_clear_grains(Exec *e) { e->n_grains = 0; }

void exec_add_grain(Exec *e, int64_t tokens, int64_t seqs, int64_t masked)
{
    const RowCounts end = {
        .count = {[ROWS_TOKENS] = tokens, [ROWS_SEQS] = seqs, [ROWS_MASKED] = masked, [ROWS_READ] = seqs + masked}};
    MEM_PUSH(e->grains, e->n_grains, e->cap_grains, end);
}

/* The kind of rows that an instr sums over; ROWS_FIXED: it adds to none of them. */
RowKind exec_summed_rows(const Exec *e, InstrId i)
{
    const Plan *p = e->plan;
    const Instr *instr = &p->instrs[i];
    const OpInfo *info = op_info(instr->op);
    bool adds = false;
    if (instr->phase != PHASE_FORWARD && instr->phase != PHASE_BACKWARD) return ROWS_FIXED;
    for (int k = 0; k < info->n_out; k++) {
        TensorId t = instr->out[k];
        adds |= t != NONE && info->out[k].accumulated &&
                (p->tensors[t].region == REGION_GRAD || p->tensors[t].region == REGION_KFAC ||
                 strcmp(p->tensors[t].name, "stats") == 0);
    }
    /* the first input is what it sums over; the masked rows' LayerNorm names rows of tokens besides, for no dropout */
    return adds && instr->in[0] != NONE ? p->tensors[instr->in[0]].rows.kind : ROWS_FIXED;
}

static void advance(Operand *o, RowKind kind, int64_t rows)
{
    if (o->data && o->rows.kind == kind) o->data = (char *)o->data + (size_t)(rows * o->cols) * dtype_size(o->dtype);
}

/* Rows begin … end of the kind, of which those before `real` hold something. */
static Status run_rows(const Exec *e, InstrId i, const OpCall *whole, const RowCounts *rows, int64_t begin, int64_t end,
                       int64_t real)
{
    OpCall call = *whole;
    const OpInfo *info = op_info(call.op);
    RowCounts part = *rows;
    RowKind kind = e->summed[i];
    Ctl ctl;
    part.count[kind] = end - begin;
    for (int k = 0; k < info->n_in; k++) advance(&call.in[k], kind, begin);
    for (int k = 0; k < info->n_out; k++) advance(&call.out[k], kind, begin);
    if (info->ctl >= 0) {
        int32_t n = (int32_t)(real > begin ? real - begin : 0);
        ctl = *op_ctl(&call);
        *(kind == ROWS_TOKENS   ? &ctl.n_tokens
          : kind == ROWS_SEQS   ? &ctl.n_seqs
          : kind == ROWS_MASKED ? &ctl.n_masked
                                : &ctl.n_read) = n;
        call.in[info->ctl].data = &ctl;
    }
    return e->ops[i]->run(&call, &part);
}

/* Outputs with a row for each of the rows, which must all be written. */
static bool writes_rows(const Exec *e, InstrId i)
{
    const OpInfo *info = op_info(e->calls[i].op);
    for (int k = 0; k < info->n_out; k++)
        if (e->calls[i].out[k].rows.kind != ROWS_FIXED && e->plan->instrs[i].out[k] != NONE) return true;
    return false;
}

Status exec_run_grains(const Exec *e, InstrId i, const OpCall *call, const RowCounts *rows)
{
    RowKind kind = e->summed[i];
    int64_t at = 0, all = rows->count[kind];
    for (int g = 0; g < e->n_grains; g++) {
        int64_t end = e->grains[g].count[kind];
        if (end > at) TRY(run_rows(e, i, call, rows, at, end, end));
        at = end;
    }
    return at < all && writes_rows(e, i) ? run_rows(e, i, call, rows, at, all, at) : OK;
}
