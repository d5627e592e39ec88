/* LAMB (You et al., 2020) in two launches. The first replaces the gradient by Adam's update u and leaves Σ p² and
   Σ u² of every chunk in scratch. In the second each thread block adds the sums of its own segment, all blocks of a
   segment in the same order, and takes its step of rate·‖p‖/‖u‖ along u. Bytes per parameter: 16 read and 12 written,
   then 8 read and 4 written, and a compute copy. */
#include <math.h>

#include "kernels/cuda/segments.cuh"

#include "kernels/cuda/cuda.h"

/* Σ p² and Σ u² */
struct alignas(16) Squares {
    double p, u;
};

template <bool WHOLE>
__device__ static inline Squares lamb_update_block(const FlatSpace &s, const NormBlock &at, const Adam &adam)
{
    const float *__restrict__ weights = s.weights + at.first;
    float *__restrict__ ms = s.m + at.first, *__restrict__ vs = s.v + at.first, *__restrict__ us = s.grads + at.first;
    Squares sum = {0, 0};
    for (int i = 0; i < LANE_GROUPS; i++) {
        int j = lane_group(i);
        Four p = load4<WHOLE>(weights, j, at.n), u = load4<WHOLE>(us, j, at.n);
        Four m = load4<WHOLE>(ms, j, at.n), v = load4<WHOLE>(vs, j, at.n);
        for (int k = 0; k < 4; k++) u.v[k] = j + k < at.n ? adam_update(&adam, p.v[k], u.v[k], &m.v[k], &v.v[k]) : 0.0f;
        store4<WHOLE>(us, j, at.n, u);
        store4<WHOLE>(ms, j, at.n, m);
        store4<WHOLE>(vs, j, at.n, v);
        sum = {sum_squares(sum.p, p), sum_squares(sum.u, u)};
    }
    return sum;
}

/* sums (chunks) may be absent. */
__global__ void lamb_update_kernel(Squares *sums, FlatSpace s, SegmentTable table, OpAttr attr, const Ctl *ctl,
                                   const Stats *stats)
{
    CUDA_SHARED(Squares, blocks, [CHUNK_BLOCKS]);
    if (!stats->finite) return;
    SegmentChunk chunk = segment_chunk(table, blockIdx.x);
    if (chunk.n == 0) return;
    const Segment &own = table.segments[chunk.segment];
    Adam adam = adam_of(attr, ctl, stats, &own);
    int64_t shift = own.shift;
    s = shifted(s, own);
    for (int b = (int)threadIdx.x / CUDA_WARP; b < CHUNK_BLOCKS; b += SEGMENT_WARPS) {
        NormBlock at = norm_block(chunk, b, shift);
        Squares sum = {0, 0};
        if (at.whole)
            sum = lamb_update_block<true>(s, at, adam);
        else if (at.n)
            sum = lamb_update_block<false>(s, at, adam);
        sum = {warp_sum(sum.p), warp_sum(sum.u)};
        if (threadIdx.x % CUDA_WARP == 0) blocks[b] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0 || !sums) return;
    Squares total = {0, 0};
    for (int b = 0; b < CHUNK_BLOCKS; b++) total = {total.p + blocks[b].p, total.u + blocks[b].u};
    sums[blockIdx.x] = total;
}

/* Sums of the chunks of `table`: Σ p² of number i is p[i·step], Σ u² is u[i·step]. */
struct ChunkSquares {
    const double *p, *u;
    int step;
    SegmentTable table;
};

/* ‖p‖/‖u‖ of a tensor, or 1, in every thread. */
__device__ static inline float trust_ratio(const ChunkSquares &sums, int32_t tensor, double *shared)
{
    const Segment *all = &sums.table.segments[tensor];
    if (!all->trust) return 1.0f;
    int64_t chunks = (all->size + CHUNK - 1) / CHUNK, first = segment_first_chunk(sums.table, tensor);
    Squares mine = {0, 0};
    for (int64_t i = threadIdx.x; i < chunks; i += SEGMENT_THREADS) {
        int64_t at = (first + i) * sums.step;
        mine = {mine.p + sums.p[at], mine.u + sums.u[at]};
    }
    double p = sqrt(block_sum_double(mine.p, shared)), u = sqrt(block_sum_double(mine.u, shared));
    return p > 0 && u > 0 ? (float)(p / u) : 1.0f;
}

template <bool WHOLE, typename C>
__device__ static inline void lamb_descend_block(const FlatSpace &s, const NormBlock &at, float rate, C *copies)
{
    float *__restrict__ weights = s.weights + at.first;
    const float *__restrict__ us = s.grads + at.first;
    CUDA_UNROLL for (int i = 0; i < LANE_GROUPS; i++)
    {
        int j = lane_group(i);
        Four p = load4<WHOLE>(weights, j, at.n), u = load4<WHOLE>(us, j, at.n);
        for (int k = 0; k < 4; k++) p.v[k] -= rate * u.v[k];
        store4<WHOLE>(weights, j, at.n, p);
        copy4<WHOLE>(copies, j, at.n, p);
    }
}

/* SLICE: the segments of `table` are pieces of tensors. */
template <bool SLICE, typename C>
__global__ void lamb_descend_kernel(FlatSpace s, Copies<C> copies, ChunkSquares sums, SegmentTable table,
                                    const Ctl *ctl, const Stats *stats)
{
    CUDA_SHARED(double, shared, [32]);
    if (!stats->finite) return;
    SegmentChunk chunk = segment_chunk(table, blockIdx.x);
    if (chunk.n == 0) return;
    const Segment &own = table.segments[chunk.segment];
    int32_t tensor = SLICE ? (int32_t)own.tensor : chunk.segment;
    float rate = ctl->learning_rate * trust_ratio(sums, tensor, shared);
    for (int b = (int)threadIdx.x / CUDA_WARP; b < CHUNK_BLOCKS; b += SEGMENT_WARPS) {
        NormBlock at = norm_block(chunk, b);
        if (at.whole)
            lamb_descend_block<true>(s, at, rate, copies.of(own, at));
        else if (at.n)
            lamb_descend_block<false>(s, at, rate, copies.of(own, at));
    }
}

size_t cuda_lamb_scratch(const OpCall *call, const RowCounts *rows)
{
    return (size_t)segment_table(IN(call, LAMB, segments), OUT(call, LAMB, weights), rows).chunks * sizeof(Squares);
}

Status cuda_lamb(const OpCall *call, const RowCounts *rows)
{
    const Operand *weights = OUT(call, LAMB, weights);
    const Stats *stats = cuda_data<const Stats>(IN(call, LAMB, stats));
    SegmentTable table = segment_table(IN(call, LAMB, segments), weights, rows);
    FlatSpace s = {cuda_data<float>(weights), cuda_data<float>(OUT(call, LAMB, m)),
                   cuda_data<float>(OUT(call, LAMB, v)), cuda_data<float>(OUT(call, LAMB, grads))};
    Squares *sums = static_cast<Squares *>(cuda_scratch(call, cuda_lamb_scratch(call, rows)));
    TRY(CUDA_LAUNCH((lamb_update_kernel), table.chunks, SEGMENT_THREADS, 0, sums, s, table, call->attr, op_ctl(call),
                    stats));
    ChunkSquares squares = {&sums->p, &sums->u, 2, table};
    COPIES_BY_TYPE(OUT(call, LAMB, copies), rows, C,
                   return CUDA_LAUNCH((lamb_descend_kernel<false, C>), table.chunks, SEGMENT_THREADS, 0, s, copies,
                                      squares, table, op_ctl(call), stats));
}

/* ---- of a slice ---- */

Status cuda_lamb_step(const OpCall *call, const RowCounts *rows)
{
    const Operand *weights = IN(call, LAMB_STEP, weights);
    SegmentTable table = segment_table(IN(call, LAMB_STEP, segments), weights, rows);
    FlatSpace s = {cuda_data<float>(weights), cuda_data<float>(OUT(call, LAMB_STEP, m)),
                   cuda_data<float>(OUT(call, LAMB_STEP, v)), cuda_data<float>(OUT(call, LAMB_STEP, grads))};
    return CUDA_LAUNCH((lamb_update_kernel), table.chunks, SEGMENT_THREADS, 0, static_cast<Squares *>(nullptr), s,
                       table, call->attr, op_ctl(call), cuda_data<const Stats>(IN(call, LAMB_STEP, stats)));
}

static SegmentTable all_tensors(const OpCall *call, const RowCounts *rows)
{
    return segment_table(IN(call, LAMB_DESCEND, all), OUT(call, LAMB_DESCEND, weights), rows);
}

size_t cuda_lamb_descend_scratch(const OpCall *call, const RowCounts *rows)
{
    return 2 * (size_t)all_tensors(call, rows).chunks * sizeof(double);
}

Status cuda_lamb_descend(const OpCall *call, const RowCounts *rows)
{
    const Operand *weights = OUT(call, LAMB_DESCEND, weights);
    SegmentTable table = segment_table(IN(call, LAMB_DESCEND, segments), weights, rows), all = all_tensors(call, rows);
    FlatSpace s = {cuda_data<float>(weights), nullptr, nullptr, cuda_data<float>(IN(call, LAMB_DESCEND, u))};
    double *p = static_cast<double *>(cuda_scratch(call, cuda_lamb_descend_scratch(call, rows))), *u = p + all.chunks;
    TRY(chunk_sums(p, cuda_data<const double>(IN(call, LAMB_DESCEND, p_sums)), all));
    TRY(chunk_sums(u, cuda_data<const double>(IN(call, LAMB_DESCEND, u_sums)), all));
    ChunkSquares squares = {p, u, 1, all};
    Copies<float> none = {};
    return CUDA_LAUNCH((lamb_descend_kernel<true, float>), table.chunks, SEGMENT_THREADS, 0, s, none, squares, table,
                       op_ctl(call), cuda_data<const Stats>(IN(call, LAMB_DESCEND, stats)));
}
