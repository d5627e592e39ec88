/* Products whose results nobody reads: operands to time algorithms with, and the first product of each type. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/product.h"

#include <initializer_list>

template <typename T> __global__ void small_numbers_kernel(T *x, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        x[i] = from_float<T>((float)(int32_t)((uint32_t)i * 2654435761u ^ (uint32_t)(i >> 7) * 40503u) * 0x1p-37f);
}

const void *product_random(Dtype dtype, int64_t elements, const void *operand, void **own)
{
    if (device_alloc(NULL, (size_t)elements * dtype_size(dtype), own) == OK)
        CUDA_BY_TYPE(dtype, T, {
            if (CUDA_LAUNCH((small_numbers_kernel<T>), 1024, 256, 0, static_cast<T *>(*own), elements) == OK)
                return *own;
        });
    device_release(NULL, *own, 0);
    *own = NULL;
    return operand;
}

#define SIDE 128 /* of the first products' matrices */

Status product_first(void)
{
    const size_t matrix = SIDE * SIDE * sizeof(float), workspace = product_workspace();
    void *memory = NULL;
    Status status = OK;
    TRY(device_alloc(NULL, workspace + 3 * matrix, &memory));
    char *a = static_cast<char *>(memory) + workspace;
    for (Dtype dtype : {F32, BF16, F16}) {
        Product p = {};
        p.shape.m = p.shape.n = p.shape.k = p.shape.lda = p.shape.ldb = p.shape.ldc = SIDE;
        p.shape.b_transposed = true;
        p.shape.in = p.shape.out = dtype;
        p.a = a, p.b = a + matrix, p.c = a + 2 * matrix;
        p.workspace = memory;
        if (status == OK) status = product_run(&p);
    }
    if (status == OK) status = device_wait(NULL);
    device_release(NULL, memory, 0);
    return status;
}
