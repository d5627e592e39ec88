/* PACK: the compute copy of a weight, (n, k) as the weight lies; products read it either way round, so there is no
   transposed one. ZERO. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"

#define THREADS 256

static unsigned blocks_of(int64_t items)
{
    const int64_t most = 1 << 20;
    int64_t blocks = (items + THREADS - 1) / THREADS;
    return (unsigned)(blocks < most ? blocks : most);
}

static bool on_16(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T> __global__ void pack8_kernel(const float *from, T *to, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n / 8; i += step) {
        float v[8];
        load8(from + i * 8, v);
        store8(to + i * 8, v);
    }
}

template <typename T> __global__ void pack_kernel(const float *from, T *to, int64_t first, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from_float<T>(from[i]);
}

Status cuda_pack(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    const Operand *copy = OUT(call, PACK, copy);
    const float *from = cuda_data<const float>(IN(call, PACK, weight));
    int64_t n = call->attr.pack.n * call->attr.pack.k, first = 0;
    CHECK(!call->attr.pack.transposed, "the cuda backend has no transposed copies");
    CUDA_BY_TYPE(copy->dtype, T, {
        if (on_16(from) && on_16(copy->data) && n >= 8) {
            TRY(CUDA_LAUNCH((pack8_kernel<T>), blocks_of(n / 8), THREADS, 0, from, cuda_data<T>(copy), n));
            first = n / 8 * 8;
        }
        if (first < n)
            return CUDA_LAUNCH((pack_kernel<T>), blocks_of(n - first), THREADS, 0, from, cuda_data<T>(copy), first, n);
    });
    return OK;
}

__global__ void zero16_kernel(uint4 *x, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) x[i] = make_uint4(0, 0, 0, 0);
}

__global__ void zero_kernel(unsigned char *x, int64_t first, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) x[i] = 0;
}

Status cuda_zero(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = OUT(call, ZERO, x);
    int64_t n = rows_in(x->rows, rows) * x->cols * (int64_t)dtype_size(x->dtype), first = 0;
    if (on_16(x->data) && n >= 16) {
        TRY(CUDA_LAUNCH((zero16_kernel), blocks_of(n / 16), THREADS, 0, cuda_data<uint4>(x), n / 16));
        first = n / 16 * 16;
    }
    return first < n
               ? CUDA_LAUNCH((zero_kernel), blocks_of(n - first), THREADS, 0, cuda_data<unsigned char>(x), first, n)
               : OK;
}
