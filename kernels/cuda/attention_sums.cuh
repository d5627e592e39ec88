/* Column sums of dqkv, for db, in attention's backward. */
#pragma once

#include "kernels/cuda/attention_tiles.cuh"

/* Sums of a sequence's dq, dk and dv as they are stored, in kernels whose blocks, of `threads`, have a head of a
   sequence. A warp adds 16 rows of shared memory by products with columns of ones, a column for every 16 columns of the
   tile: in lane 4·g + c, q[0] and q[2] are the sums of dq's columns 16·c + g and 16·c + g + 8, kv[0] and kv[2] those of
   dk's, kv[1] and kv[3] those of dv's. That takes 45 instructions a tile for dq, 61 for dk and dv together; additions
   would take some 80 each. Tensor cores cut the last bits of a sum in place of rounding them. */
template <typename T, int D, int threads> struct AttentionSums {
    typedef AttentionTile<T, D> Tile;
    float q[4] = {}, kv[4] = {};

    /* In column 2·i + odd of the product are the sums of the tile's columns 16·i to 16·i + 15, of `columns` from `from`
       on. */
    template <int columns> __device__ static inline void add(float sum[4], const T *tile, int odd, int from)
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, g = lane / 4;
        int start = Tile::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
        CUDA_UNROLL
        for (int i = 0; i < columns / 16; i++) {
            uint32_t turned[4], one = g == 2 * (from / 16 + i) + odd ? mma_pair<T>(1, 1) : 0;
            const uint32_t ones[2] = {one, one};
            mma_load4_transposed(turned, tile + Tile::on(start, from / 16 + i));
            mma_16x8x16<T>(sum, turned, ones, sum);
        }
    }
    /* A tile of 16 rows, from which dq, dk or dv was stored. */
    template <int columns = D> __device__ inline void add_q(const T *tile, int from = 0)
    {
        add<columns>(q, tile, 0, from);
    }
    __device__ inline void add_k(const T *tile) { add<D>(kv, tile, 0, 0); }
    __device__ inline void add_v(const T *tile) { add<D>(kv, tile, 1, 0); }

    /* value(i), of column i % D of q, k or v, to the row of the block's sequence. */
    template <typename Value> __device__ static inline void put(const Attention<T> &a, Value value)
    {
        int hidden = a.heads * a.head_dim;
        float *to = a.sums + (int64_t{blockIdx.x} - 1) * 3 * hidden + static_cast<int>(blockIdx.y) * a.head_dim;
        CUDA_ROLL
        for (int i = static_cast<int>(threadIdx.x); i < 3 * D; i += threads)
            if (i % D < a.head_dim) to[i / D * hidden + i % D] = value(i);
    }

    /* The sum of the warps' sums, in their order. `shared` (warps, 3, D). */
    __device__ inline void leave(const Attention<T> &a, float *shared) const
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, column = lane % 4 * 16 + lane / 4;
        float *mine = shared + static_cast<int>(threadIdx.x) / CUDA_WARP * 3 * D + column;
        CUDA_UNROLL
        for (int i = 0; i < 2 && column < D; i++) {
            mine[8 * i] = q[2 * i];
            mine[D + 8 * i] = kv[2 * i];
            mine[2 * D + 8 * i] = kv[2 * i + 1];
        }
        __syncthreads();
        put(a, [&](int i) {
            float sum = 0;
            CUDA_UNROLL
            for (int w = 0; w < threads / CUDA_WARP; w++) sum += shared[w * 3 * D + i];
            return sum;
        });
    }
    /* What a block without rows leaves; block 0 has no sequence. */
    __device__ static inline void leave_none(const Attention<T> &a)
    {
        if (a.sums && blockIdx.x > 0) put(a, [](int) { return 0.0f; });
    }
};
