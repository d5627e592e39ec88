/* Tensor-core tiles: a warp multiplies a 16×16 tile by a 16×8 tile, its lanes holding pieces ("fragments") of each.
   Under nvcc one PTX instruction each, two of half the length on Turing; in the host executor twins that exchange the
   fragments between lanes (tests/cuda_host/cuda_tiles.cuh) and sum k in order. All 32 lanes of a warp must call,
   together.

   Fragments (PTX ISA, mma.m16n8k16): lane = 4·g + t, g in 0..7, t in 0..3; a register holds two neighbouring values,
   the first in its low half.
   - A (16, 16): a[0] = A[g][2t, 2t+1], a[1] = A[g+8][2t, 2t+1], a[2] = A[g][2t+8, 2t+9], a[3] = A[g+8][2t+8, 2t+9]
   - B (16, 8): b[0] = B[2t, 2t+1][g], b[1] = B[2t+8, 2t+9][g]
   - C, D (16, 8): c[0], c[1] = C[g][2t, 2t+1], c[2], c[3] = C[g+8][2t, 2t+1]

   So the C fragments of two products side by side (columns 0..7 and 8..15), paired with mma_pair, are an A fragment:
   a[0] = (c0[0], c0[1]), a[1] = (c0[2], c0[3]), a[2] = (c1[0], c1[1]), a[3] = (c1[2], c1[3]). And the eight draws of
   dropout_tile_call(…, g, …, t) are those of a lane's values of such two: draws 0, 1, 4, 5 of c0; 2, 3, 6, 7 of c1.

   mma_load4 (ldmatrix) reads four 8×8 matrices of 16-bit values from shared memory: lane i gives the address of row
   i % 8 of matrix i / 8 (16 bytes, aligned to 16). Lane 4·g + t gets in r[m] the values [g][2t, 2t+1] of matrix m;
   transposed, [2t, 2t+1][g].
   - A from a tile stored (m, k): mma_load4, lane i at row i % 16, column i / 16 · 8
   - two B side by side (16 of n; r[0], r[1] the first) from a tile stored (n, k), as keys for q·kᵀ: mma_load4, lane i
     at row i % 8 + i / 16 · 8, column i / 8 % 2 · 8
   - the same from a tile stored (k, n), as values for p·v: mma_load4_transposed, lane i at row i % 16, column
     i / 16 · 8

   copy_async (cp.async) copies 16 bytes from global to shared memory, both aligned to 16, without passing registers;
   where `there` is false it writes zeros and reads nothing. The copies that a thread has started since its last
   copy_async_commit are a group; copy_async_wait<n> waits until at most the newest n of the thread's groups are under
   way. Other threads see the bytes after a __syncthreads that follows the wait. */
#pragma once

#include <type_traits>

#include "kernels/cuda/kernel.cuh"

/* Two values of T, rounded, in one register. */
template <typename T> __device__ static inline uint32_t mma_pair(float low, float high)
{
    static_assert(sizeof(T) == 2, "tiles hold bf16 or fp16");
    T pair[2] = {from_float<T>(low), from_float<T>(high)};
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* What Turing takes in place of longer products and of copies past the registers. product: d = a·b + c over 8 of k. */
template <typename Eight>
__device__ static inline void mma_by_halves(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4],
                                            Eight product)
{
    product(d, a, b[0], c);
    product(d, a + 2, b[1], d);
}
__device__ static inline void copy_by_registers(void *shared, const void *global, bool there)
{
    *static_cast<uint4 *>(shared) = there ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
}

#include <cuda_tiles.cuh> /* of gpu/, or of tests/cuda_host/ */

/* d = a·b + c for tiles of T. */
template <typename T>
__device__ static inline void mma_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    if constexpr (std::is_same<T, __half>::value)
        mma_f16_16x8x16(d, a, b, c);
    else
        mma_bf16_16x8x16(d, a, b, c);
}
