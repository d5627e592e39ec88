/* DROPOUT, which is its own backward on dy. A thread per group of eight columns, which is one Philox call. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

enum { THREADS = 128 };

/* y may lie in x's memory. */
template <typename T>
__global__ void dropout_kernel(const T *x, const int32_t *seq_index, const int32_t *pos, const Ctl *ctl, T *y,
                               int64_t rows, int64_t cols, RowDropout site, bool wide)
{
    int64_t groups = (cols + GROUP - 1) / GROUP, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t r = i / groups, column = i % groups * GROUP;
    if (r >= rows) return;
    float v[GROUP];
    load_group(x + r * cols + column, cols - column, wide, v);
    drop_group(v, dropout_now(site, ctl), column, pos ? pos[r] : 0, seq_index[r]);
    store_group(y + r * cols + column, cols - column, wide, v);
}

Status cuda_dropout(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, DROPOUT, x), *y = OUT(call, DROPOUT, y);
    int64_t n = rows_in(x->rows, rows), threads = n * ((x->cols + GROUP - 1) / GROUP);
    CUDA_BY_TYPE(x->dtype, T,
                 return CUDA_LAUNCH((dropout_kernel<T>), cuda_blocks(threads, THREADS), THREADS, 0,
                                    cuda_data<const T>(x), cuda_data<const int32_t>(IN(call, DROPOUT, seq_index)),
                                    cuda_data<const int32_t>(IN(call, DROPOUT, pos)), op_ctl(call), cuda_data<T>(y), n,
                                    x->cols, row_dropout(call->attr.dropout.dropout, call->attr.dropout.site),
                                    x->cols % GROUP == 0 && on_16(x->data, y->data)));
}
