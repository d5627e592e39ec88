/* PACK: the compute copy of a weight, (n, k) as the weight lies; products read it either way round, so there is no
   transposed copy. ZERO and ADD. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

enum { THREADS = 256, BLOCK = THREADS * GROUP };

template <typename T> __global__ void pack_kernel(const float *weight, T *copy, int64_t n, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP;
    float v[GROUP];
    load_group(weight + i, n - i, wide, v);
    store_group(copy + i, n - i, wide, v);
}

Status cuda_pack(const OpCall *call, const RowCounts *)
{
    const Operand *weight = IN(call, PACK, weight), *copy = OUT(call, PACK, copy);
    int64_t n = call->attr.pack.n * call->attr.pack.k;
    CHECK(!call->attr.pack.transposed, "the cuda backend has no transposed copies");
    CUDA_BY_TYPE(copy->dtype, T,
                 return CUDA_LAUNCH((pack_kernel<T>), cuda_blocks(n, BLOCK), THREADS, 0, cuda_data<const float>(weight),
                                    cuda_data<T>(copy), n, on_16(weight->data, copy->data)));
}

Status cuda_zero(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = OUT(call, ZERO, x);
    return cuda_clear(x->data, (size_t)(rows_in(x->rows, rows) * x->cols) * dtype_size(x->dtype));
}

/* y may be NULL; z may be x or y: each thread reads its group before it writes it. */
__global__ void add_kernel(const float *x, const float *y, float *z, int64_t n, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * GROUP;
    float a[GROUP], b[GROUP];
    load_group(x + i, n - i, wide, a);
    if (y) {
        load_group(y + i, n - i, wide, b);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) a[k] += b[k];
    }
    store_group(z + i, n - i, wide, a);
}

Status cuda_add(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, ADD, x), *y = IN(call, ADD, y), *z = OUT(call, ADD, z);
    int64_t n = rows_in(x->rows, rows) * x->cols;
    return CUDA_LAUNCH((add_kernel), cuda_blocks(n, BLOCK), THREADS, 0, cuda_data<const float>(x),
                       cuda_data<const float>(y), cuda_data<float>(z), n, on_16(x->data, z->data) && on_16(y->data));
}
