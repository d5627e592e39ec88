/* A product by plain loops, a thread per element of c: for the odd shape that cuBLASLt does not take. And one over
   nothing. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/product.h"

template <typename T, typename C>
__global__ void loops_kernel(const T *a, const T *b, C *c, const void *bias, bool bias_f32, int64_t m, int64_t n,
                             int64_t k, int64_t a_row, int64_t a_step, int64_t b_column, int64_t b_step, int64_t ldc,
                             bool accumulate)
{
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (j >= n) return;
    for (; i < m; i += (int64_t)gridDim.y * blockDim.y) {
        float sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum = fmaf(to_float(a[i * a_row + l * a_step]), to_float(b[j * b_column + l * b_step]), sum);
        if (bias) sum += bias_f32 ? static_cast<const float *>(bias)[j] : to_float(static_cast<const C *>(bias)[j]);
        if (accumulate) sum += to_float(c[i * ldc + j]);
        c[i * ldc + j] = from_float<C>(sum);
    }
}

template <typename T, typename C> static Status loops(const Product *p)
{
    const ProductShape *s = &p->shape;
    dim3 block(32, 8), grid(cuda_blocks(s->n, 32), min(cuda_blocks(s->m, 8), 65535u));
    return CUDA_LAUNCH((loops_kernel<T, C>), grid, block, 0, static_cast<const T *>(p->a), static_cast<const T *>(p->b),
                       static_cast<C *>(p->c), s->bias == BIAS_NONE ? nullptr : p->bias, s->bias == BIAS_F32, s->m,
                       s->n, s->k, s->a_transposed ? 1 : s->lda, s->a_transposed ? s->lda : 1,
                       s->b_transposed ? s->ldb : 1, s->b_transposed ? 1 : s->ldb, s->ldc, s->accumulate && !p->begins);
}

Status product_by_loops(const Product *p)
{
    CUDA_BY_TYPE(p->shape.in, T, return p->shape.out == F32 ? loops<T, float>(p) : loops<T, T>(p));
}

Status product_empty(const Product *p)
{
    const ProductShape *s = &p->shape;
    CHECK(!p->begins || s->ldc == s->n, "a product that begins a part of a matrix");
    return p->begins ? cuda_clear(p->c, (size_t)(s->m * s->n) * dtype_size(s->out)) : OK;
}
