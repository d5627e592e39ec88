/* Attention's tiles in shared memory, products of tiles, and what is computed of a tile's values. fp32 has the layout
   of tensor cores' tiles (attention.cuh) with fused multiply-adds. Head sizes are padded to D = 32, 64 or 128 with
   zeros in shared memory alone. */
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

/* ---- tiles in shared memory ---- */

template <typename T> struct alignas(16) AttentionChunk {
    T v[16 / sizeof(T)];
};
template <typename T> struct alignas(2 * sizeof(T)) AttentionPair {
    T v[2];
};
/* Two neighbouring values, rounded. */
template <typename T> __device__ static inline void attention_put(T *to, float low, float high)
{
    if constexpr (sizeof(T) == 2)
        *reinterpret_cast<uint32_t *>(to) = mma_pair<T>(low, high);
    else
        *reinterpret_cast<AttentionPair<T> *>(to) = {{low, high}};
}
template <typename T> __device__ static inline AttentionChunk<T> *as_chunk(T *p)
{
    return reinterpret_cast<AttentionChunk<T> *>(p);
}
template <typename T> __device__ static inline const AttentionChunk<T> *as_chunk(const T *p)
{
    return reinterpret_cast<const AttentionChunk<T> *>(p);
}

/* Rows of D values; the 16-byte chunks of a row are permuted by its number, so that a column of chunks lies in
   different banks. */
template <typename T, int D> static constexpr int attention_step = D * sizeof(T) <= 128 ? 64 : 8192 / (D * sizeof(T));
template <typename T, int D, int stage_rows = attention_step<T, D>> struct AttentionTile {
    static constexpr int chunk = 16 / sizeof(T), chunks = D / chunk;
    static constexpr int step = stage_rows;
    static_assert(chunks >= 4 && step % 16 == 0, "the permutation is for rows of 64 bytes and more");

    __device__ static inline int at(int row, int column)
    {
        int swap = chunks >= 8 ? row & 7 : row >> 1 & 3;
        return row * D + (column / chunk ^ swap) * chunk + column % chunk;
    }
    /* at(row, column + 16·i) for a column below 16: without a register for each. */
    __device__ static inline int on(int start, int i) { return start ^ 16 * i; }

    /* Starts copying `n` rows, at most `room`, of x and of y (unless NULL) into two tiles, y's `room` rows behind x's,
       by all `threads` of the block. Rows from n to the next multiple of 16 become zeros. A thread has one column of
       chunks, whose place in a row stays the same in each of its rows, so an address costs one addition. */
    template <int threads = ATTENTION_THREADS>
    __device__ static inline void copy(T *tile, const T *x, int x_stride, const T *y, int y_stride, int n, int room,
                                       const Attention<T> &a)
    {
        constexpr int apart = threads / chunks; /* rows of a thread */
        int row = static_cast<int>(threadIdx.x) / chunks, column = static_cast<int>(threadIdx.x) % chunks * chunk;
        int rows = min((n + 15) / 16 * 16, room), columns = a.head_dim - column;
        int in_x = row * x_stride + column, in_y = row * y_stride + column;
        T *to = tile + at(row, column);
        if (columns <= 0) n = 0;
        auto each = [&](auto copy_chunk) {
            CUDA_ROLL
            for (; row < rows; row += apart) {
                copy_chunk(to, x + in_x);
                if (y) copy_chunk(to + room * D, y + in_y);
                in_x += apart * x_stride;
                in_y += apart * y_stride;
                to = apart % 8 == 0 ? to + apart * D : tile + at(row + apart, column);
            }
        };
        if (a.aligned)
            each([&](T *into, const T *from) { copy_async(into, from, row < n); });
        else
            each([&](T *into, const T *from) {
                CUDA_ROLL
                for (int j = 0; j < chunk; j++) into[j] = row < n && j < columns ? from[j] : T{};
            });
    }

    /* Starts copying `rows` rows of x into a tile, by all `threads` of the block: rows from n on, and columns that the
       head lacks, become zeros. Heads are `aligned`. */
    template <int rows, int threads>
    __device__ static inline void copy_aligned(T *tile, const T *x, int stride, int n, const Attention<T> &a)
    {
        constexpr int apart = threads / chunks; /* rows of a thread */
        static_assert(apart % 8 == 0, "a thread's chunk has the same place in each of its rows");
        int row = static_cast<int>(threadIdx.x) / chunks, column = static_cast<int>(threadIdx.x) % chunks * chunk;
        if (column >= a.head_dim) n = 0;
        tile += at(row, column);
        x += row * stride + column;
        CUDA_UNROLL
        for (int i = 0; i < rows; i += apart) copy_async(tile + i * D, x + i * stride, row + i < n);
    }

    /* Starts copying rows i·step … of x and of y, each (length, its stride), into stage i & 1 of two: x's, then y's.
       One group for copy_async_wait. */
    template <int threads = ATTENTION_THREADS>
    __device__ static inline void copy_stage(T *stages, int i, const T *x, int x_stride, const T *y, int y_stride,
                                             int length, const Attention<T> &a)
    {
        T *stage = stages + (i & 1) * 2 * step * D;
        int row = i * step;
        copy<threads>(stage, x + row * x_stride, x_stride, y + row * y_stride, y_stride, length - row, step, a);
        copy_async_commit();
    }
    /* copy_stage by copy_aligned. */
    template <int threads>
    __device__ static inline void copy_stage_aligned(T *stages, int i, const T *x, int x_stride, const T *y,
                                                     int y_stride, int length, const Attention<T> &a)
    {
        T *stage = stages + (i & 1) * 2 * step * D;
        int row = i * step;
        copy_aligned<step, threads>(stage, x + row * x_stride, x_stride, length - row, a);
        copy_aligned<step, threads>(stage + step * D, y + row * y_stride, y_stride, length - row, a);
        copy_async_commit();
    }

    /* x·factor of a warp's rows, through its 16 rows of shared memory, to the first n rows of `to`; x begins at column
       `from`. factor[0] is of row g, factor[1] of row g + 8. */
    template <int columns = D>
    __device__ static inline void store(T *tile, const float x[columns / 8][4], const float factor[2], T *to,
                                        int stride, int n, const Attention<T> &a, int from = 0)
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, start = at(lane / 4, lane % 4 * 2) ^ from;
        __syncwarp();
        CUDA_UNROLL
        for (int i = 0; i < columns / 8; i++) CUDA_UNROLL
        for (int second = 0; second < 2; second++)
            attention_put(tile + (start ^ 8 * i) + 8 * D * second, x[i][2 * second] * factor[second],
                          x[i][2 * second + 1] * factor[second]);
        __syncwarp();
        constexpr int rows = 16, across = columns / chunk, apart = CUDA_WARP / across; /* rows at a time */
        int row = lane / across, column = from + lane % across * chunk;
        if (!a.aligned) {
            CUDA_ROLL
            for (; row < min(n, rows); row += apart)
                store_chunk(to + row * stride, column, *as_chunk(tile + at(row, column)), a);
            return;
        }
        if (column >= a.head_dim) return;
        start = at(row, column);
        to += row * stride + column;
        CUDA_UNROLL
        for (int i = 0; i < rows; i += apart)
            if (row + i < n) *as_chunk(to + i * stride) = *as_chunk(tile + (start ^ at(i, 0) % D) + i * D);
    }

    /* A chunk of a head's row, as far as it has columns. */
    __device__ static inline void store_chunk(T *row, int column, AttentionChunk<T> x, const Attention<T> &a)
    {
        if (!a.aligned) {
            CUDA_UNROLL
            for (int j = 0; j < chunk; j++)
                if (column + j < a.head_dim) row[column + j] = x.v[j];
        } else if (column < a.head_dim)
            *as_chunk(row + column) = x;
    }

    /* Zeros in this head's columns of rows [first, end) of x, by all threads. */
    template <int threads = ATTENTION_THREADS>
    __device__ static inline void clear(T *x, int stride, int first, int end, const Attention<T> &a)
    {
        CUDA_ROLL
        for (int i = static_cast<int>(threadIdx.x); i < (end - first) * chunks; i += threads)
            store_chunk(x + int64_t{first + i / chunks} * stride, i % chunks * chunk, {}, a);
    }

    /* How ATTENTION begins: where the block's `own` rows are, and zeros in the rows of no sequence. False: it has none
       of its own. */
    template <int own = ATTENTION_ROWS, int threads = ATTENTION_THREADS>
    __device__ static inline bool begin(const Attention<T> &a, AttentionPlace *p)
    {
        if (!attention_place<own>(a, p)) return false;
        int head = static_cast<int>(blockIdx.y);
        clear<threads>(a.to + head * a.head_dim, a.heads * a.head_dim, p->gap_start, p->gap_end, a);
        CUDA_ROLL
        for (int row = p->gap_start + static_cast<int>(threadIdx.x); row < p->gap_end; row += threads)
            a.lse[int64_t{row} * a.heads + head] = 0;
        return p->first < p->length;
    }
    /* How ATTENTION_BWD begins where a block has a head of a whole sequence. */
    template <int threads> __device__ static inline bool begin_whole(const Attention<T> &a, AttentionPlace *p)
    {
        if (!attention_sequence(a, p)) return false;
        int hidden = a.heads * a.head_dim;
        T *dq = a.to + static_cast<int>(blockIdx.y) * a.head_dim, *dk = dq + hidden, *dv = dk + hidden;
        clear<threads>(dq, 3 * hidden, p->gap_start, p->gap_end, a);
        clear<threads>(dk, 3 * hidden, p->gap_start, p->gap_end, a);
        clear<threads>(dv, 3 * hidden, p->gap_start, p->gap_end, a);
        return p->length > 0;
    }
};

/* ---- products ---- */

/* A warp's 16 own rows; with `held` in registers as A fragments, else read again for each product. */
template <typename T, int D, bool held> struct AttentionOwn {
    typedef AttentionTile<T, D> Tile;
    const T *tile = nullptr;
    uint32_t a[held ? D / 16 : 1][4];

    __device__ inline void read(uint32_t fragment[4], int k) const
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP;
        mma_load4(fragment, tile + Tile::on(Tile::at(lane % 16, lane / 16 * 8), k));
    }
    __device__ inline void load_rows(const T *rows)
    {
        tile = rows;
        if constexpr (held) CUDA_UNROLL
        for (int k = 0; k < D / 16; k++) read(a[k], k);
    }
    /* x = own · otherᵀ */
    __device__ inline void multiply(float x[2][4], const T *other) const
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP;
        int start = Tile::at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
        CUDA_UNROLL
        for (int i = 0; i < 8; i++) x[i / 4][i % 4] = 0;
        CUDA_UNROLL
        for (int k = 0; k < D / 16; k++) {
            uint32_t b[4], fresh[4];
            mma_load4(b, other + Tile::on(start, k));
            if (!held) read(fresh, k);
            const uint32_t *mine = held ? a[held ? k : 0] : fresh;
            mma_16x8x16<T>(x[0], mine, b, x[0]);
            mma_16x8x16<T>(x[1], mine, b + 2, x[1]);
        }
    }
};

template <int D, bool held> struct AttentionOwn<float, D, held> {
    typedef AttentionTile<float, D> Tile;
    const float *tile;

    __device__ inline void load_rows(const float *rows) { tile = rows; }
    __device__ inline void multiply(float x[2][4], const float *other) const
    {
        int lane = static_cast<int>(threadIdx.x) % CUDA_WARP, g = lane / 4, c = lane % 4;
        CUDA_UNROLL
        for (int i = 0; i < 8; i++) x[i / 4][i % 4] = 0;
        CUDA_ROLL
        for (int column = 0; column < D; column += 4) {
            AttentionChunk<float> mine[2], theirs[4];
            CUDA_UNROLL
            for (int i = 0; i < 2; i++) mine[i] = *as_chunk(tile + Tile::at(g + 8 * i, column));
            CUDA_UNROLL
            for (int i = 0; i < 4; i++) theirs[i] = *as_chunk(other + Tile::at(i / 2 * 8 + 2 * c + i % 2, column));
            CUDA_UNROLL
            for (int i = 0; i < 8; i++) CUDA_UNROLL
            for (int j = 0; j < 4; j++)
                x[i / 4][i % 4] = fmaf(mine[i % 4 / 2].v[j], theirs[i / 4 * 2 + i % 2].v[j], x[i / 4][i % 4]);
        }
    }
};

/* sum (16, D) += x · other, 16 rows; tensor cores take x rounded to T. */
template <typename T, int D>
__device__ static inline void attention_add(float sum[D / 8][4], const float x[2][4], const T *other)
{
    typedef AttentionTile<T, D> Tile;
    int lane = static_cast<int>(threadIdx.x) % CUDA_WARP;
    if constexpr (sizeof(T) == 2) {
        const uint32_t a[4] = {mma_pair<T>(x[0][0], x[0][1]), mma_pair<T>(x[0][2], x[0][3]),
                               mma_pair<T>(x[1][0], x[1][1]), mma_pair<T>(x[1][2], x[1][3])};
        int start = Tile::at(lane % 16, lane / 16 * 8);
        CUDA_UNROLL
        for (int i = 0; i < D / 16; i++) {
            uint32_t b[4];
            mma_load4_transposed(b, other + Tile::on(start, i));
            mma_16x8x16<T>(sum[2 * i], a, b, sum[2 * i]);
            mma_16x8x16<T>(sum[2 * i + 1], a, b + 2, sum[2 * i + 1]);
        }
    } else {
        CUDA_ROLL
        for (int t = 0; t < 4; t++) /* lane 4·g + t holds the columns 8·n + 2·t + r of rows g, g + 8 of x */
            CUDA_UNROLL
        for (int k = 0; k < 4; k++) {
            int n = k / 2, r = k % 2, holder = (lane & ~3) | t;
            float above = __shfl_sync(CUDA_FULL, x[n][r], holder);
            float below = __shfl_sync(CUDA_FULL, x[n][2 + r], holder);
            CUDA_UNROLL
            for (int i = 0; i < D / 8; i++) {
                AttentionPair<T> y = *reinterpret_cast<const AttentionPair<T> *>(
                    other + Tile::at(8 * n + 2 * t + r, 8 * i + 2 * (lane % 4)));
                CUDA_UNROLL
                for (int j = 0; j < 2; j++) {
                    sum[i][j] = fmaf(above, y.v[j], sum[i][j]);
                    sum[i][2 + j] = fmaf(below, y.v[j], sum[i][2 + j]);
                }
            }
        }
    }
}

/* ---- values ---- */

/* Columns from n on, n < 16, become −∞: no probability. */
__device__ static inline void attention_mask(float x[2][4], int n)
{
    int c = static_cast<int>(threadIdx.x) % 4;
    CUDA_UNROLL
    for (int i = 0; i < 8; i++)
        if (i / 4 * 8 + 2 * c + i % 2 >= n) x[i / 4][i % 4] = -INFINITY;
}

/* Rows from n on become −∞. */
__device__ static inline void attention_mask_rows(float x[2][4], int n)
{
    int g = static_cast<int>(threadIdx.x) % CUDA_WARP / 4;
    CUDA_UNROLL
    for (int i = 0; i < 8; i++)
        if (g + i % 4 / 2 * 8 >= n) x[i / 4][i % 4] = -INFINITY;
}

/* Over the four lanes that hold a row. */
__device__ static inline float attention_row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(CUDA_FULL, x, 1));
    return fmaxf(x, __shfl_xor_sync(CUDA_FULL, x, 2));
}
__device__ static inline float attention_row_sum(float x)
{
    x += __shfl_xor_sync(CUDA_FULL, x, 1);
    return x + __shfl_xor_sync(CUDA_FULL, x, 2);
}

/* do·o of a row, in both of two neighbouring lanes: each adds every other 16 bytes. */
template <typename T, int D>
__device__ static inline float attention_row_dot(const Attention<T> &a, const T *dout, const T *o, bool there)
{
    constexpr int chunk = AttentionTile<T, D>::chunk;
    float dot = 0;
    CUDA_ROLL
    for (int column = static_cast<int>(threadIdx.x) % 2 * chunk; there && column < a.head_dim; column += 2 * chunk) {
        AttentionChunk<T> x = {}, y = {};
        if (a.aligned) {
            x = *as_chunk(o + column);
            y = *as_chunk(dout + column);
        } else {
            for (int i = 0; i < chunk && column + i < a.head_dim; i++) {
                x.v[i] = o[column + i];
                y.v[i] = dout[column + i];
            }
        }
        CUDA_UNROLL
        for (int i = 0; i < chunk; i++) dot = fmaf(to_float(x.v[i]), to_float(y.v[i]), dot);
    }
    return dot + __shfl_xor_sync(CUDA_FULL, dot, 1);
}

/* log-sum-exp in base 2 and do·o of a sequence's first `rows` rows, by all threads; ∞ and 0 behind its end. */
template <typename T, int D, int threads>
__device__ static inline void attention_stats(float2 *stats, int rows, const Attention<T> &a, const AttentionPlace &p)
{
    int head = static_cast<int>(blockIdx.y), hidden = a.heads * a.head_dim;
    const T *dout = a.dout + int64_t{p.start} * hidden + head * a.head_dim;
    const T *o = a.o + int64_t{p.start} * hidden + head * a.head_dim;
    CUDA_ROLL
    for (int row = static_cast<int>(threadIdx.x) / 2; row < rows; row += threads / 2) {
        bool there = row < p.length;
        float dot = attention_row_dot<T, D>(a, dout + row * hidden, o + row * hidden, there);
        if (threadIdx.x % 2 == 0)
            stats[row] = make_float2(there ? a.lse[int64_t{p.start + row} * a.heads + head] * LOG2_E : INFINITY, dot);
    }
}

/* The maxima of rows g and g + 8 rise from `top` to the largest `high` of the four lanes; what was added so far, total
   and sum, shrinks by it. An exponent is then score · to_log2 + base. */
template <int D>
__device__ static inline void attention_raise(float top[2], const float high[2], float total[2], float sum[D / 8][4],
                                              float to_log2, float base[2])
{
    CUDA_UNROLL
    for (int second = 0; second < 2; second++) {
        float most = attention_row_max(high[second]), shrink = cuda_exp2((top[second] - most) * to_log2);
        top[second] = most;
        base[second] = -most * to_log2;
        total[second] *= shrink;
        CUDA_UNROLL
        for (int j = 0; j < D / 8; j++) {
            sum[j][2 * second] *= shrink;
            sum[j][2 * second + 1] *= shrink;
        }
    }
}
