/* Products by warpgroups, Hopper's alone (PTX wgmma.mma_async, sm_90a): four neighbouring warps, the first of which has
   a number divisible by four, multiply tiles of bf16 or fp16 into fp32. The tensor cores read shared memory themselves,
   and work on while the warps do something else.

   d (64, 64) += a (64, 16) · b (16, 64). Warp w of the four has rows 16·w … 16·w + 15 of a and d, in registers laid out
   as in mma.cuh: with lane 4·g + c, d[4·j], d[4·j + 1] = d[g][8·j + 2·c, 2·c + 1], d[4·j + 2], d[4·j + 3] the same of
   row g + 8; and a[0..3] as A there. So x[t][n][r] of attention.cuh is d[8·t + 4·n + r], and mma_pair of two
   neighbours of d makes an a of 16 columns.
   - wgmma_64xNx16<T, n, add>(d, a, b): a and b are in shared memory, stored (64, k) and (n, k): d (64, n) = a·bᵀ, or
     added. n is 64 or 32; d then has n / 2 registers.
   - wgmma_64x64x16_turned<T>(d, a, b): a is in registers, b in shared memory, stored (k, 64); d += a·b.
   - wgmma_64x64x16_both_turned<T>(d, a, b): a and b are in shared memory, stored (k, 64); d += aᵀ·b.

   A tile in shared memory has rows of 64 values, 128 bytes, begins on 1024 bytes (wgmma_align), and its 16-byte chunk c
   of row r is stored at c ^ r % 8: AttentionTile<T, 64> is such a tile. wgmma_tile gives its descriptor for the first k
   of 16; the 16 after these are two chunks to the right (+ WGMMA_RIGHT), or sixteen rows below (+ WGMMA_BELOW).

   Order. Products are asynchronous, in the order of their issue. All threads of the four warps take part in each call.
   - What threads wrote into shared memory, copy_async too, the tensor cores see after the writer's wgmma_publish and a
     __syncthreads. What they read may be written again after the readers' wgmma_wait and a __syncthreads.
   - wgmma_fence comes before the first product after registers of d or a were accessed; it takes those that were
     written: d, and a of `tiles` products.
   - wgmma_commit closes a series of products. Until wgmma_wait nobody accesses their d and a. wgmma_wait<n> takes a d
     that is then complete; with several there is a call for each.
   - wgmma_meet<threads> is a barrier of the block's threads, all of them, as __syncthreads; but warps may meet in
     different calls, which CUDA C++ forbids for __syncthreads. */
#pragma once

#include <type_traits>

#include "kernels/cuda/kernel.cuh"

#include <cuda_wgmma.cuh> /* of gpu/, or of tests/cuda_host/ */

#define WGMMA_THREADS 128
#define WGMMA_ALIGN   1024
#define WGMMA_RIGHT   (32 >> 4)
#define WGMMA_BELOW   (2048 >> 4)

/* The first place from p on where a tile may begin: at most WGMMA_ALIGN − 16 bytes behind, p being on 16. */
template <typename T> __device__ static inline T *wgmma_align(T *p)
{
    return p + (0u - wgmma_shared_address(p)) % WGMMA_ALIGN / sizeof(T);
}

/* The descriptor ("matrix descriptor format" in the PTX ISA): bits 0–13 address, 16–29 leading byte offset, which is
   not used for these shapes and then 1, 32–45 stride byte offset, from eight rows to the next eight, all in 16 bytes;
   49–51 base offset, 0 on 1024 bytes; 62–63 1: 128-byte swizzle. */
__device__ static inline uint64_t wgmma_tile(const void *tile)
{
    return (wgmma_shared_address(tile) & 0x3ffffu) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
           uint64_t{1} << 62;
}

template <typename T, int n, bool add> __device__ static inline void wgmma_64xNx16(float *d, uint64_t a, uint64_t b)
{
    static_assert(n == 32 || n == 64, "columns of d");
    if constexpr (std::is_same<T, __half>::value)
        wgmma_f16<n, add>(d, a, b);
    else
        wgmma_bf16<n, add>(d, a, b);
}
template <typename T> __device__ static inline void wgmma_64x64x16_turned(float *d, const uint32_t *a, uint64_t b)
{
    if constexpr (std::is_same<T, __half>::value)
        wgmma_f16_turned(d, a, b);
    else
        wgmma_bf16_turned(d, a, b);
}
template <typename T> __device__ static inline void wgmma_64x64x16_both_turned(float *d, uint64_t a, uint64_t b)
{
    if constexpr (std::is_same<T, __half>::value)
        wgmma_f16_both_turned(d, a, b);
    else
        wgmma_bf16_both_turned(d, a, b);
}

/* d (64, n) = a·bᵀ over 64 values of k, a (64, 64) and b (n, 64) in tiles. */
template <typename T, int n> __device__ static inline void wgmma_64xNx64(float *d, uint64_t a, uint64_t b)
{
    wgmma_64xNx16<T, n, false>(d, a, b);
    CUDA_UNROLL
    for (int k = 1; k < 4; k++) wgmma_64xNx16<T, n, true>(d, a + k * WGMMA_RIGHT, b + k * WGMMA_RIGHT);
}
/* d (64, 64) += aᵀ·b over 64 values of k. */
template <typename T> __device__ static inline void wgmma_64x64x64_both_turned(float *d, uint64_t a, uint64_t b)
{
    CUDA_UNROLL
    for (int k = 0; k < 4; k++) wgmma_64x64x16_both_turned<T>(d, a + k * WGMMA_BELOW, b + k * WGMMA_BELOW);
}
/* d (64, 64) += a·b over 16·tiles values of k, a in registers. */
template <typename T, int tiles>
__device__ static inline void wgmma_64x64_turned(float *d, const uint32_t (*a)[4], uint64_t b)
{
    CUDA_UNROLL
    for (int t = 0; t < tiles; t++) wgmma_64x64x16_turned<T>(d, a[t], b + t * WGMMA_BELOW);
}
