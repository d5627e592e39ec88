/* Sums in double of one value per thread, in a fixed order: the tree of a warp, then the warps from first to last. */
#ifndef CAIRN_KERNELS_CUDA_SUMS_CUH
#define CAIRN_KERNELS_CUDA_SUMS_CUH

#include "kernels/cuda/kernel.cuh"

/* The sum over a warp, in every lane; all 32 lanes must call. */
__device__ static inline double warp_sum_double(double x)
{
    for (int step = CUDA_WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(CUDA_FULL, x, step);
    return x;
}

/* The sum over a block of whole warps, in every thread; all threads must call. `shared` is (32), in shared memory, and
   may hold the sums of a call before. */
__device__ static inline double block_sum_double(double x, double *shared)
{
    double sum = warp_sum_double(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) shared[threadIdx.x / CUDA_WARP] = sum;
    __syncthreads();
    double total = 0;
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++) total += shared[warp];
    return total;
}

/* Adds the sums of the threads of the only block to a slot of stats: losses and numbers of right answers of some rows.
 */
__device__ static inline void block_add_stats(Stats *stats, int32_t slot, double loss, int64_t correct, double *shared)
{
    double losses = block_sum_double(loss, shared), right = block_sum_double((double)correct, shared);
    if (threadIdx.x != 0) return;
    stats->loss[slot] += losses;
    stats->correct[slot] += (int64_t)right;
}

#endif
