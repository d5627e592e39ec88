/* Sums in double of one value per thread, in a fixed order: the tree of a warp, then the warps from first to last. */
#pragma once

#include "kernels/cuda/kernel.cuh"

/* The sum over a block of whole warps, in every thread; all threads must call. `shared` is (32), in shared memory, and
   may hold the sums of an earlier call. */
__device__ static inline double block_sum_double(double x, double *shared)
{
    double sum = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) shared[threadIdx.x / CUDA_WARP] = sum;
    __syncthreads();
    double total = 0;
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++) total += shared[warp];
    return total;
}

/* Adds the sums of the only block's threads to a slot of stats: losses, and rows that were classified correctly. */
__device__ static inline void block_add_stats(Stats *stats, int32_t slot, double loss, int64_t correct, double *shared)
{
    double losses = block_sum_double(loss, shared), n_correct = block_sum_double((double)correct, shared);
    if (threadIdx.x != 0) return;
    stats->loss[slot] += losses;
    stats->correct[slot] += (int64_t)n_correct;
}
