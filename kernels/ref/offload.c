/* OFFLOAD and FETCH. This backend has no copy lane: it copies in the order of the plan. */
#include "kernels/ref/ref.h"

Status ref_transfer(const OpCall *call, const RowCounts *rows)
{
    const Operand *from = &call->in[0];
    memcpy(call->out[0].data, from->data, (size_t)(rows_in(from->rows, rows) * from->cols) * dtype_size(from->dtype));
    return OK;
}
