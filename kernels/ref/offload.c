/* OFFLOAD and FETCH: the compute lane copies where they stand in the plan, for this backend has no other lane. */
#include "kernels/ref/ref.h"

Status ref_transfer(const OpCall *call, const RowCounts *rows)
{
    const Operand *from = &call->in[0];
    memcpy(call->out[0].data, from->data, (size_t)(rows_in(from->rows, rows) * from->cols) * dtype_size(from->dtype));
    return OK;
}
