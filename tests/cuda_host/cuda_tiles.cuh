/* Twins of the PTX in kernels/cuda/gpu/cuda_tiles.cuh; kernels/cuda/mma.cuh includes one of the two and documents them.
 */
#pragma once

#include "cuda_host/cuda_host.h"

void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                      CudaHostPlace at = CudaHostPlace::here());
void mma_f16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                     CudaHostPlace at = CudaHostPlace::here());
/* Turing's: the first 8 of k of the other. */
void mma_f16_16x8x8(float d[4], const uint32_t a[2], uint32_t b, const float c[4],
                    CudaHostPlace at = CudaHostPlace::here());

void mma_load4(uint32_t r[4], const void *row, CudaHostPlace at = CudaHostPlace::here());
void mma_load4_transposed(uint32_t r[4], const void *row, CudaHostPlace at = CudaHostPlace::here());

/* The bytes move when the thread waits for their group, so that reading them earlier shows. */
void copy_async(void *shared, const void *global, bool there = true, CudaHostPlace at = CudaHostPlace::here());
void copy_async_commit();
void cuda_host_copy_wait(int newest);
template <int n> void copy_async_wait() { cuda_host_copy_wait(n); }

/* Copied bytes are private until the thread that copied them publishes them: the tensor cores do not see them
   (cuda_wgmma.cuh). */
void cuda_host_copies_publish();
bool cuda_host_copy_is_private(const void *p);
