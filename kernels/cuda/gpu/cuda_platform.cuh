/* The part of the .cu files that is for nvcc alone. The build puts this folder on the include path; for the host
   executor tests/cuda_host/ has a file of the same name. Everything else in kernels/cuda/ is the same for both. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CUDA_SHARED(type, name, ...) __shared__ type name __VA_ARGS__ /* CUDA_SHARED(float, sums, [32]) */
#define CUDA_SHARED_DYNAMIC(type, name)                                                                                \
    extern __shared__ __align__(16) unsigned char cuda_shared_bytes[];                                                 \
    type *name = reinterpret_cast<type *>(cuda_shared_bytes)
#define CUDA_LAUNCH(kernel, grid, block, shared, ...)                                                                  \
    (!cuda_can_launch<(CUDA_STRIP kernel)>(grid, shared)                                                               \
         ? OK                                                                                                          \
         : (CUDA_STRIP kernel<<<(grid), (block), (shared), (cudaStream_t)device_stream(NULL)>>>(__VA_ARGS__),          \
            cuda_launched(__FILE__, __LINE__)))
#define CUDA_STRIP(...) __VA_ARGS__
#define CUDA_UNROLL     _Pragma("unroll")
#define CUDA_ROLL       _Pragma("unroll 1")
/* Blocks of a multiprocessor, for __launch_bounds__: Turing has 1024 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#    define CUDA_BLOCKS(threads, blocks) ((threads) * (blocks) > 1024 ? 1024 / (threads) : (blocks))
#else
#    define CUDA_BLOCKS(threads, blocks) (blocks)
#endif
/* The variable x has its value before what follows. Else ptxas computes it behind the next branch, for which it copies
   what x is computed from. */
#define CUDA_NOW(x) asm volatile("" : "+f"(x))
/* A library's call that works on the compute stream. */
#define CUDA_SUBMIT(expression) (expression)

#include "kernels/cuda/device.h"

/* Lists every kernel that some CUDA_LAUNCH names, when the program starts. */
template <auto kernel> struct CudaKernel {
    static const bool listed;
};
template <auto kernel> const bool CudaKernel<kernel>::listed = cuda_list_kernel(reinterpret_cast<const void *>(kernel));
template <auto kernel> static inline bool cuda_can_launch(dim3 grid, size_t shared)
{
    return CudaKernel<kernel>::listed &&
           cuda_launchable(reinterpret_cast<const void *>(kernel), grid.x, grid.y, grid.z, shared);
}

/* 2^x by the hardware's approximation; exactly 0 far below. */
__device__ static inline float cuda_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The module's entry, and the backend's name. */
#define CAIRN_CUDA_ENTRY cairn_backend_cuda
#define CAIRN_CUDA_NAME  "cuda"

/* The properties of a device to plan for in place of the real one; NULL: the real one. */
static inline const char *cuda_imagined_device(void) { return NULL; }
