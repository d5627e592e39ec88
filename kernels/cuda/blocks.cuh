/* Sums of squares of norm blocks, and of chunks of them: blocks.cu. */
#ifndef CAIRN_KERNELS_CUDA_BLOCKS_CUH
#define CAIRN_KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/segments.cuh"

/* A lane's part of the sum of squares of a norm block. */
template <bool WHOLE> __device__ static inline double lane_squares(const float *x, int n)
{
    Four all[LANE_GROUPS];
    CUDA_UNROLL for (int i = 0; i < LANE_GROUPS; i++) all[i] = load4<WHOLE>(x, lane_group(i), n);
    double sum = 0;
    CUDA_UNROLL for (int i = 0; i < LANE_GROUPS; i++) sum = sum_squares(sum, all[i]);
    return sum;
}

/* chunks (table.chunks) from a table of block sums; 0 for an unused number. */
Status chunk_sums(double *chunks, const double *sums, const SegmentTable &table);

#endif
