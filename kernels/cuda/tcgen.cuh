/* Products of the fifth generation of tensor cores, Blackwell's alone (PTX tcgen05, sm_100a): one thread starts them,
   they take operands from shared memory, and their results lie in tensor memory, of 128 lanes of 512 columns of 32 bits
   for each multiprocessor. An address there has the lane in its upper half and the column in its lower.

   d (128, 64) += a (128, 16) · b (16, 64), of bf16 or fp16 into fp32; column j of row i of d is in lane i, column j.
   - tcgen_128x64x16<T>(d, a, b, add): a and b are in shared memory, stored (128, k) and (64, k). Without `add` d is
     written, not read.
   - tcgen_128x64x16_turned<T>(d, a, b, add): a is in tensor memory, two neighbouring values a column, the first in the
     low half; b in shared memory, stored (k, 64).
   - tcgen_128x64x16_both_turned<T>(d, a, b, add): a and b are in shared memory, a in two tiles of (k, 64), b stored
     (k, 64).
   A tile in shared memory is one of wgmma.cuh: the same rows, alignment, permutation and steps (WGMMA_RIGHT,
   WGMMA_BELOW). tcgen_tile gives its descriptor, tcgen_tiles that of two tiles `apart` bytes from each other.

   Tensor memory. A warp allocates columns, a power of two of 32 … 512, and the same warp frees them before the block
   ends; tcgen_alloc writes the address into shared memory, and waits while other blocks have the columns. Warp w reads
   and writes lanes 32·(w % 4) … + 31 alone, all its threads together, each its own lane: tcgen_load16, tcgen_load64,
   tcgen_store8 and tcgen_store16 of so many neighbouring columns. A load is complete when it returns, stores are after
   tcgen_stored.

   Order. Products are asynchronous; those that one thread adds to the same d run in the order of their issue.
   tcgen_elect, called by all lanes of a warp, is true in one of them, in the same each time: so the compiler knows that
   one thread starts the products.
   - tcgen_commit lets `barrier`, in shared memory, complete a phase once all products that this thread has started are
     complete; tcgen_wait waits for the phase, whose parity is 0, 1, 0, 1 …. One thread calls tcgen_barrier_init before.
   - Products see what threads wrote into shared memory, copy_async too, after the writer's tcgen_publish and a
     __syncthreads.
   - Between accesses to tensor memory by different threads, products and tcgen_alloc too, are tcgen_before_sync in the
     one, a __syncthreads and tcgen_after_sync in the other; behind a product its tcgen_wait and tcgen_after_sync. */
#ifndef CAIRN_KERNELS_CUDA_TCGEN_CUH
#define CAIRN_KERNELS_CUDA_TCGEN_CUH

#include <type_traits>

#include "kernels/cuda/wgmma.cuh"

#include <cuda_tcgen.cuh> /* of gpu/, or of tests/cuda_host/ */

#define TCGEN_ROWS 128

/* The descriptor ("shared memory descriptor" of tcgen05 in the PTX ISA): as wgmma_tile's, but bits 46–48 1, 61–63 2:
   128-byte swizzle. Where rows are of k and longer than 128 bytes ("canonical layouts", MN-major, 128-byte swizzle:
   ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO))), the leading byte offset is the way to the next tile. */
__device__ static inline uint64_t tcgen_tiles(const void *tile, uint32_t apart)
{
    return (wgmma_shared_address(tile) & 0x3ffffu) >> 4 | uint64_t{apart >> 4} << 16 | uint64_t{1024 >> 4} << 32 |
           uint64_t{1} << 46 | uint64_t{2} << 61;
}
__device__ static inline uint64_t tcgen_tile(const void *tile) { return tcgen_tiles(tile, 1 << 4); }

/* The instruction descriptor (the PTX ISA's table for .kind::f16): bits 4–5 1: d in fp32; 7–9 and 10–12 types of a and
   b, 0 fp16, 1 bf16; 15: a is stored (k, m); 16: b is stored (k, n); 17–22 n / 8; 24–28 m / 16. */
template <typename T> __device__ static inline uint32_t tcgen_instruction(bool a_turned, bool b_turned)
{
    uint32_t type = std::is_same<T, __half>::value ? 0 : 1;
    return 1u << 4 | type << 7 | type << 10 | uint32_t{a_turned} << 15 | uint32_t{b_turned} << 16 | (64u >> 3) << 17 |
           (TCGEN_ROWS >> 4) << 24;
}

template <typename T> __device__ static inline void tcgen_128x64x16(uint32_t d, uint64_t a, uint64_t b, bool add)
{
    tcgen_product(d, a, b, tcgen_instruction<T>(false, false), add);
}
template <typename T> __device__ static inline void tcgen_128x64x16_turned(uint32_t d, uint32_t a, uint64_t b, bool add)
{
    tcgen_product_of_tensor(d, a, b, tcgen_instruction<T>(false, true), add);
}
template <typename T>
__device__ static inline void tcgen_128x64x16_both_turned(uint32_t d, uint64_t a, uint64_t b, bool add)
{
    tcgen_product(d, a, b, tcgen_instruction<T>(true, true), add);
}

/* The warp's own lanes of the columns from `address` on. */
__device__ static inline uint32_t tcgen_own(uint32_t address, int warp)
{
    return address + (static_cast<uint32_t>(warp) % 4 << 21);
}

#endif
