/* OFFLOAD and FETCH: the copy engines move rows to pinned host memory and back; no kernel runs. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"

Status cuda_transfer(const OpCall *call, const RowCounts *rows)
{
    const Operand *from = &call->in[0];
    return cuda_copy(call->out[0].data, from->data,
                     (size_t)(rows_in(from->rows, rows) * from->cols) * dtype_size(from->dtype));
}
