/* Shared by GRAD_NORM, ADAMW, LAMB and a sharded optimizer's ops: how thread blocks find their parameters in the flat
   space.

   A launch has one thread block per chunk of 16384 elements, counted from each segment's start, and a warp per norm
   block of 1024 elements (docs/contracts.md 5). The segments lie in device memory in the order of their offsets,
   without overlap, so chunk b of segment i gets the number i + ⌊offset/16384⌋ + b: numbers of one segment end before
   those of the next begin, the largest is known from the sizes of the table and of the space, and a few in between
   are unused. The host counts nothing. */
#pragma once

#include "kernels/cuda/sums.cuh"

#include "kernels/adam.h"

static const int CHUNK_BLOCKS = 16, SEGMENT_WARPS = 8;
static const int64_t CHUNK = NORM_BLOCK * CHUNK_BLOCKS; /* elements */
static const int SEGMENT_THREADS = SEGMENT_WARPS * CUDA_WARP;
static const int LANE_GROUPS = NORM_BLOCK / (4 * CUDA_WARP); /* groups of four elements per lane and norm block */

struct SegmentTable {
    const Segment *segments; // (n)
    int32_t n, chunks;       /* chunk numbers are below `chunks` */
};

/* `space`: any operand of the size of the flat space. Data may be absent. */
static inline SegmentTable segment_table(const Operand *segments, const Operand *space, const RowCounts *rows)
{
    int64_t n;
    const Segment *table = op_segments(segments, rows, &n);
    int64_t chunks = n + rows_in(space->rows, rows) * space->cols / CHUNK + 1;
    CHECK(chunks < INT32_MAX, "%lld chunks of the flat space; at most 2^31 − 1", (long long)chunks);
    return {table, (int32_t)n, (int32_t)chunks};
}

/* The flat arrays of an optimizer. Of a sharded one m and v are those of the slice, at a segment's `shift`. */
struct FlatSpace {
    float *weights, *m, *v, *grads;
};

__device__ static inline FlatSpace shifted(FlatSpace s, const Segment &segment)
{
    s.m += segment.shift;
    s.v += segment.shift;
    return s;
}

/* ---- a thread block's part ---- */

struct SegmentChunk {
    int64_t first, n; /* elements of the flat space; n is 0 for an unused number */
    int32_t segment;
};

__device__ static inline int64_t segment_first_chunk(const SegmentTable &t, int32_t i)
{
    return i + t.segments[i].offset / CHUNK;
}

__device__ static inline SegmentChunk segment_chunk(const SegmentTable &t, int64_t number)
{
    int32_t low = 0, high = t.n; /* the last segment whose first chunk is not above the number */
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (segment_first_chunk(t, middle) <= number)
            low = middle;
        else
            high = middle;
    }
    if (t.n == 0) return {0, 0, 0};
    Segment s = t.segments[low];
    int64_t from = (number - segment_first_chunk(t, low)) * CHUNK;
    if (from < 0 || from >= s.size) return {0, 0, low};
    return {s.offset + from, s.size - from < CHUNK ? s.size - from : CHUNK, low};
}

/* A warp's norm block: `n` elements from `first` on; WHOLE forms need 1024 of them on 16 bytes, in every array. */
struct NormBlock {
    int64_t first;
    int n;
    bool whole;
};

__device__ static inline NormBlock norm_block(const SegmentChunk &c, int block, int64_t shift = 0)
{
    int64_t first = c.first + block * NORM_BLOCK, left = c.n - block * NORM_BLOCK;
    int n = left < 0 ? 0 : left < NORM_BLOCK ? (int)left : NORM_BLOCK;
    return {first, n, n == NORM_BLOCK && first % 4 == 0 && shift % 4 == 0};
}

/* ---- four neighbouring elements, one access where the norm block is whole ---- */

struct alignas(16) Four {
    float v[4];
};

/* Place of group i of a lane in its norm block. */
__device__ static inline int lane_group(int i) { return 4 * (i * CUDA_WARP + (int)(threadIdx.x % CUDA_WARP)); }

template <bool WHOLE> __device__ static inline Four load4(const float *from, int at, int n)
{
    if constexpr (WHOLE) {
        return *reinterpret_cast<const Four *>(from + at);
    } else {
        Four x;
        for (int k = 0; k < 4; k++) x.v[k] = at + k < n ? from[at + k] : 0.0f;
        return x;
    }
}
template <bool WHOLE> __device__ static inline void store4(float *to, int at, int n, const Four &x)
{
    if constexpr (WHOLE) {
        *reinterpret_cast<Four *>(to + at) = x;
    } else {
        for (int k = 0; k < 4 && at + k < n; k++) to[at + k] = x.v[k];
    }
}

/* Compute copies of the tensors in the first n elements of the flat space. */
template <typename C> struct Copies {
    C *to; // (n)
    int64_t n;

    /* Those of a segment's norm block; NULL: it has none. */
    __device__ inline C *of(const Segment &segment, const NormBlock &at) const
    {
        return segment.offset + segment.size <= n ? to + at.first : nullptr;
    }
};

template <typename C> struct alignas(4 * sizeof(C)) FourCopies {
    C v[4];
};
template <bool WHOLE, typename C> __device__ static inline void copy4(C *to, int at, int n, const Four &x)
{
    FourCopies<C> copies;
    if (!to) return;
    CUDA_UNROLL for (int k = 0; k < 4; k++) copies.v[k] = from_float<C>(x.v[k]);
    if constexpr (WHOLE) {
        *reinterpret_cast<FourCopies<C> *>(to + at) = copies;
    } else {
        for (int k = 0; k < 4 && at + k < n; k++) to[at + k] = copies.v[k];
    }
}

/* Runs the statement(s) with `copies` as those of the operand, which may be absent, and C as their type. */
#define COPIES_BY_TYPE(operand_, rows_, C, ...)                                                                        \
    CUDA_BY_TYPE(operand_present(operand_) ? (operand_)->dtype : F32, C, {                                             \
        Copies<C> copies = {cuda_data<C>(operand_),                                                                    \
                            operand_present(operand_) ? rows_in((operand_)->rows, rows_) * (operand_)->cols : 0};      \
        __VA_ARGS__;                                                                                                   \
    })

__device__ static inline double sum_squares(double sum, const Four &x)
{
    for (int k = 0; k < 4; k++) sum = fma((double)x.v[k], (double)x.v[k], sum);
    return sum;
}

/* A lane's part of the sum of squares of a norm block. */
template <bool WHOLE> __device__ static inline double lane_squares(const float *x, int n)
{
    Four all[LANE_GROUPS];
    CUDA_UNROLL for (int i = 0; i < LANE_GROUPS; i++) all[i] = load4<WHOLE>(x, lane_group(i), n);
    double sum = 0;
    CUDA_UNROLL for (int i = 0; i < LANE_GROUPS; i++) sum = sum_squares(sum, all[i]);
    return sum;
}

/* The sum of squares of a norm block of x, in every lane of its warp. */
__device__ static inline double norm_block_squares(const float *x, const NormBlock &at)
{
    double sum = 0;
    if (at.n) sum = at.whole ? lane_squares<true>(x + at.first, at.n) : lane_squares<false>(x + at.first, at.n);
    return warp_sum(sum);
}

/* In blocks.cu: chunks (table.chunks) from a table of block sums; 0 for an unused number. */
Status chunk_sums(double *chunks, const double *sums, const SegmentTable &table);
