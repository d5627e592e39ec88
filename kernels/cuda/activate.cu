/* ACTIVATE and its backward: one row per sequence, so few that the launch dominates. A thread per group of eight
   elements. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

enum { THREADS = 128, BLOCK = THREADS * GROUP };

__device__ static inline int64_t first_of() { return ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP; }

/* y may lie in x's memory. */
template <typename T> __global__ void activate_kernel(const T *x, T *y, int64_t n, bool relu, bool wide)
{
    float v[GROUP];
    load_group(x + first_of(), n - first_of(), wide, v);
    CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = relu ? (v[k] < 0 ? 0 : v[k]) : tanhf(v[k]);
    store_group(y + first_of(), n - first_of(), wide, v);
}

/* Both slopes are those at the stored y; dx may lie in dy's memory. */
template <typename T>
__global__ void activate_bwd_kernel(const T *y, const T *dy, T *dx, int64_t n, bool relu, bool wide)
{
    float v[GROUP], dv[GROUP];
    load_group(y + first_of(), n - first_of(), wide, v);
    load_group(dy + first_of(), n - first_of(), wide, dv);
    CUDA_UNROLL for (int k = 0; k < GROUP; k++) dv[k] *= relu ? (float)(v[k] > 0) : 1.0f - v[k] * v[k];
    store_group(dx + first_of(), n - first_of(), wide, dv);
}

Status cuda_activate(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, ACTIVATE, x), *y = OUT(call, ACTIVATE, y);
    int64_t n = rows_in(x->rows, rows) * x->cols;
    CUDA_BY_TYPE(x->dtype, T,
                 return CUDA_LAUNCH((activate_kernel<T>), cuda_blocks(n, BLOCK), THREADS, 0, cuda_data<const T>(x),
                                    cuda_data<T>(y), n, call->attr.activate.kind == ACTIVATE_RELU,
                                    on_16(x->data, y->data)));
}

Status cuda_activate_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *y = IN(call, ACTIVATE_BWD, y), *dy = IN(call, ACTIVATE_BWD, dy), *dx = OUT(call, ACTIVATE_BWD, dx);
    int64_t n = rows_in(y->rows, rows) * y->cols;
    CUDA_BY_TYPE(y->dtype, T,
                 return CUDA_LAUNCH((activate_bwd_kernel<T>), cuda_blocks(n, BLOCK), THREADS, 0, cuda_data<const T>(y),
                                    cuda_data<const T>(dy), cuda_data<T>(dx), n,
                                    call->attr.activate.kind == ACTIVATE_RELU, on_16(y->data, dy->data, dx->data)));
}
