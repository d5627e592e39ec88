/* Twins of the PTX in kernels/cuda/gpu/cuda_wgmma.cuh; kernels/cuda/wgmma.cuh includes one of the two and documents
   them. Stricter than the hardware where that is undefined: shared memory is read, and d written, when a warp waits;
   until then d is NaN, and a fault if it changes. Faults too: a product without wgmma_fence, of bytes that were copied
   or written and not published, by less than four warps; a descriptor of another form than wgmma.cuh's. */
#pragma once

#include "cuda_host/cuda_host.h"

static constexpr bool wgmma_there = true, wgmma_is_built = true;
static inline void wgmma_absent() {}

uint32_t wgmma_shared_address(const void *p, CudaHostPlace at = CudaHostPlace::here());

/* d (64, n) = a·b, or added. a: a descriptor, or registers. */
struct CudaHostWgmma {
    bool f16, add, a_turned, b_turned;
    int n;
    const uint32_t *registers; /* NULL: a is in shared memory */
};
void cuda_host_wgmma(const CudaHostWgmma &kind, float *d, uint64_t a, uint64_t b, CudaHostPlace at);

template <int n, bool add> void wgmma_bf16(float *d, uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({false, add, false, false, n, nullptr}, d, a, b, at);
}
template <int n, bool add> void wgmma_f16(float *d, uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({true, add, false, false, n, nullptr}, d, a, b, at);
}
static inline void wgmma_bf16_turned(float *d, const uint32_t *a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({false, true, false, true, 64, a}, d, 0, b, at);
}
static inline void wgmma_f16_turned(float *d, const uint32_t *a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({true, true, false, true, 64, a}, d, 0, b, at);
}
static inline void wgmma_bf16_both_turned(float *d, uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({false, true, true, true, 64, nullptr}, d, a, b, at);
}
static inline void wgmma_f16_both_turned(float *d, uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma({true, true, true, true, 64, nullptr}, d, a, b, at);
}

void wgmma_fence();
template <int> void wgmma_fence(float *, uint32_t *) { wgmma_fence(); }
void wgmma_commit();
void cuda_host_wgmma_wait(CudaHostPlace at);
template <int> void wgmma_wait(float *, CudaHostPlace at = CudaHostPlace::here()) { cuda_host_wgmma_wait(at); }
void wgmma_publish();
template <int> void wgmma_meet(CudaHostPlace at = CudaHostPlace::here()) { __syncthreads(at); }
