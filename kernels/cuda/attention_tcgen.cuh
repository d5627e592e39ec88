/* Shared by attention's kernels by tcgen05: a thread has a row of scores, so a warp has 32 rows of tensor memory. */
#ifndef CAIRN_KERNELS_CUDA_ATTENTION_TCGEN_CUH
#define CAIRN_KERNELS_CUDA_ATTENTION_TCGEN_CUH

#include "kernels/cuda/attention_tiles.cuh"

#include "kernels/cuda/tcgen.cuh"

/* A warp's own rows of sums in tensor memory times `factor`, through its 32 rows of shared memory, to the first n rows
   of `to`: columns [from, from + columns) of the head, of which `sums` is the first. */
template <typename T, int D, int columns>
__device__ static inline void attention_store_sums(T *tile, uint32_t sums, float factor, T *to, int stride, int n,
                                                   const Attention<T> &a, int from = 0)
{
    typedef AttentionTile<T, D> Tile;
    int lane = static_cast<int>(threadIdx.x) % CUDA_WARP;
    __syncwarp();
    CUDA_UNROLL
    for (int j = 0; j < columns; j += 16) {
        float x[16];
        tcgen_load16(x, sums + static_cast<uint32_t>(j));
        CUDA_UNROLL
        for (int k = 0; k < 16; k++) x[k] *= factor;
        store8(tile + Tile::at(lane, from + j), x);
        store8(tile + Tile::at(lane, from + j + 8), x + 8);
    }
    tcgen_before_sync();
    __syncwarp();
    Tile::template store_rows<CUDA_WARP, columns>(tile, to, stride, n, a, from);
}

#endif
