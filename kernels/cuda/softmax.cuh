/* Softmax of long rows in one pass over them, a thread block per row: each thread keeps the largest value and the sum
   of exponentials of its columns, then these are merged in a fixed order that depends on nothing but the row's length.
 */
#pragma once

#include <math.h>

#include "kernels/cuda/kernel.cuh"

enum {
    SOFTMAX_THREADS = 1024,
    SOFTMAX_WARPS = SOFTMAX_THREADS / CUDA_WARP,
    SOFTMAX_TILE = SOFTMAX_THREADS * 8 /* columns */
};

/* Σ exp(x − max) over some columns, and the first of the largest. */
struct Softmax {
    float max, sum;
    int32_t best;
};

__device__ static inline Softmax merged(const Softmax &a, const Softmax &b)
{
    if (a.sum == 0) return b;
    if (b.sum == 0) return a;
    if (a.max > b.max || (a.max == b.max && a.best < b.best))
        return {a.max, a.sum + b.sum * expf(b.max - a.max), a.best};
    return {b.max, b.sum + a.sum * expf(a.max - b.max), b.best};
}

/* Maximum and sum of the thread's columns of a row, eight at a time; n is a multiple of 8. */
__device__ static inline Softmax thread_softmax(const float *x, int32_t classes)
{
    Softmax s = {-INFINITY, 0, 0};
    for (int32_t j = (int32_t)threadIdx.x * 8; j < classes; j += SOFTMAX_TILE) {
        float v[8];
        load8(x + j, v);
        int32_t left = classes - j;
        float max = s.max;
        int32_t best = s.best;
        CUDA_UNROLL for (int i = 0; i < 8; i++)
        {
            if (i >= left) v[i] = -INFINITY;
            if (v[i] > max) {
                max = v[i];
                best = j + i;
            }
        }
        if (max > s.max) s = {max, s.sum * expf(s.max - max), best};
        CUDA_UNROLL for (int i = 0; i < 8; i++) if (i < left) s.sum += expf(v[i] - s.max);
    }
    return s;
}

/* Those of the whole row, in every thread: the tree of a warp, then the warps in order. */
__device__ static inline Softmax block_softmax(Softmax s, Softmax *shared)
{
    for (int step = CUDA_WARP / 2; step > 0; step /= 2) {
        Softmax other = {__shfl_xor_sync(CUDA_FULL, s.max, step), __shfl_xor_sync(CUDA_FULL, s.sum, step),
                         __shfl_xor_sync(CUDA_FULL, s.best, step)};
        s = merged(s, other);
    }
    if (threadIdx.x % CUDA_WARP == 0) shared[threadIdx.x / CUDA_WARP] = s;
    __syncthreads();
    s = shared[0];
    for (int warp = 1; warp < SOFTMAX_WARPS; warp++) s = merged(s, shared[warp]);
    return s;
}
