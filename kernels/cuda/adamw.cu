/* AdamW over all segments in one launch. Bytes per parameter: 16 read (p, m, v, gradient), 12 written (p, m, v), and a
   compute copy. */

#include "kernels/cuda/segments.cuh"

#include "kernels/cuda/cuda.h"

template <bool WHOLE, typename C>
__device__ static inline void adamw_update_block(const FlatSpace &s, const NormBlock &at, const Adam &adam, C *copies)
{
    float *__restrict__ weights = s.weights + at.first, *__restrict__ ms = s.m + at.first,
                        *__restrict__ vs = s.v + at.first;
    const float *__restrict__ grads = s.grads + at.first;
    for (int i = 0; i < LANE_GROUPS; i++) {
        int j = lane_group(i);
        Four p = load4<WHOLE>(weights, j, at.n), g = load4<WHOLE>(grads, j, at.n);
        Four m = load4<WHOLE>(ms, j, at.n), v = load4<WHOLE>(vs, j, at.n);
        for (int k = 0; k < 4; k++) p.v[k] -= adam.rate * adam_update(&adam, p.v[k], g.v[k], &m.v[k], &v.v[k]);
        store4<WHOLE>(weights, j, at.n, p);
        store4<WHOLE>(ms, j, at.n, m);
        store4<WHOLE>(vs, j, at.n, v);
        copy4<WHOLE>(copies, j, at.n, p);
    }
}

template <typename C>
__global__ void adamw_kernel(FlatSpace s, Copies<C> copies, SegmentTable table, OpAttr attr, const Ctl *ctl,
                             const Stats *stats)
{
    if (!stats->finite) return;
    SegmentChunk chunk = segment_chunk(table, blockIdx.x);
    if (chunk.n == 0) return;
    const Segment &own = table.segments[chunk.segment];
    Adam adam = adam_of(attr, ctl, stats, &own);
    int64_t shift = own.shift;
    s = shifted(s, own);
    for (int b = (int)threadIdx.x / CUDA_WARP; b < CHUNK_BLOCKS; b += SEGMENT_WARPS) {
        NormBlock at = norm_block(chunk, b, shift);
        if (at.whole)
            adamw_update_block<true>(s, at, adam, copies.of(own, at));
        else if (at.n)
            adamw_update_block<false>(s, at, adam, copies.of(own, at));
    }
}

Status cuda_adamw(const OpCall *call, const RowCounts *rows)
{
    const Operand *weights = OUT(call, ADAMW, weights);
    SegmentTable table = segment_table(IN(call, ADAMW, segments), weights, rows);
    FlatSpace s = {cuda_data<float>(weights), cuda_data<float>(OUT(call, ADAMW, m)),
                   cuda_data<float>(OUT(call, ADAMW, v)), cuda_data<float>(IN(call, ADAMW, grads))};
    COPIES_BY_TYPE(OUT(call, ADAMW, copies), rows, C,
                   return CUDA_LAUNCH((adamw_kernel<C>), table.chunks, SEGMENT_THREADS, 0, s, copies, table, call->attr,
                                      op_ctl(call), cuda_data<const Stats>(IN(call, ADAMW, stats))));
}
