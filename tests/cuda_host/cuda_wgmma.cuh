/* Twins of the PTX in kernels/cuda/gpu/cuda_wgmma.cuh; kernels/cuda/wgmma.cuh includes one of the two and documents
   them. Stricter than the hardware where that is undefined: shared memory is read, and d written, when a warp waits;
   until then d is NaN, and a fault if it changes. Faults too: a product without wgmma_fence, of bytes that copy_async
   wrote and nobody published, by less than four warps; a descriptor of another form than wgmma.cuh's. */
#ifndef CAIRN_TESTS_CUDA_HOST_WGMMA_CUH
#define CAIRN_TESTS_CUDA_HOST_WGMMA_CUH

#include "cuda_host/cuda_host.h"

static constexpr bool wgmma_there = true, wgmma_is_built = true;
static inline void wgmma_absent() {}

uint32_t wgmma_shared_address(const void *p, CudaHostPlace at = CudaHostPlace::here());

/* a: a descriptor, or registers. */
void cuda_host_wgmma(bool f16, bool add, float *d, uint64_t a, const uint32_t *registers, uint64_t b, CudaHostPlace at);

template <bool add>
void wgmma_bf16_64x64x16(float d[32], uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma(false, add, d, a, nullptr, b, at);
}
template <bool add>
void wgmma_f16_64x64x16(float d[32], uint64_t a, uint64_t b, CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma(true, add, d, a, nullptr, b, at);
}
static inline void wgmma_bf16_64x64x16_turned(float d[32], const uint32_t a[4], uint64_t b,
                                              CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma(false, true, d, 0, a, b, at);
}
static inline void wgmma_f16_64x64x16_turned(float d[32], const uint32_t a[4], uint64_t b,
                                             CudaHostPlace at = CudaHostPlace::here())
{
    cuda_host_wgmma(true, true, d, 0, a, b, at);
}

void wgmma_fence();
static inline void wgmma_fence(float *, uint32_t *) { wgmma_fence(); }
void wgmma_commit();
void cuda_host_wgmma_wait(CudaHostPlace at);
static inline void wgmma_wait(float *, CudaHostPlace at = CudaHostPlace::here()) { cuda_host_wgmma_wait(at); }
void wgmma_publish();

#endif
