/* To pinned memory of the host and back, by the copy engines: no kernel runs. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"

static Status copy_rows(const Operand *to, const Operand *from, const RowCounts *rows)
{
    return cuda_copy(to->data, from->data, (size_t)(rows_in(from->rows, rows) * from->cols) * dtype_size(from->dtype));
}

Status cuda_offload(const OpCall *call, const RowCounts *rows)
{
    return copy_rows(cuda_out(call, "host"), cuda_in(call, "x"), rows);
}

Status cuda_fetch(const OpCall *call, const RowCounts *rows)
{
    return copy_rows(cuda_out(call, "x"), cuda_in(call, "host"), rows);
}
