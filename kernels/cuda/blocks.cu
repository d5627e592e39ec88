/* A sharded optimizer's sums of squares. Each rank computes those of its own norm blocks, at their numbers in a table
   of all blocks. An op that needs a norm adds up the table once all ranks' parts are there: block by block and chunk by
   chunk, as GRAD_NORM and LAMB add their own sums, so the bits are the same. */
#include "kernels/cuda/segments.cuh"

#include "kernels/cuda/cuda.h"

__global__ void block_sums_kernel(double *sums, const float *x, SegmentTable table)
{
    SegmentChunk chunk = segment_chunk(table, blockIdx.x);
    if (chunk.n == 0) return;
    const Segment *own = &table.segments[chunk.segment];
    int64_t number = own->block + (chunk.first - own->offset) / NORM_BLOCK;
    for (int b = (int)threadIdx.x / CUDA_WARP; b < CHUNK_BLOCKS; b += SEGMENT_WARPS) {
        NormBlock at = norm_block(chunk, b);
        double sum = norm_block_squares(x, at);
        if (at.n && threadIdx.x % CUDA_WARP == 0) sums[number + b] = sum;
    }
}

Status cuda_block_sums(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, BLOCK_SUMS, x);
    SegmentTable table = segment_table(IN(call, BLOCK_SUMS, segments), x, rows);
    return CUDA_LAUNCH((block_sums_kernel), table.chunks, SEGMENT_THREADS, 0,
                       cuda_data<double>(OUT(call, BLOCK_SUMS, sums)), cuda_data<const float>(x), table);
}

__global__ void chunk_sums_kernel(double *chunks, const double *sums, SegmentTable table)
{
    int64_t number = (int64_t)blockIdx.x * SEGMENT_THREADS + threadIdx.x;
    if (number >= table.chunks) return;
    SegmentChunk chunk = segment_chunk(table, number);
    double total = 0;
    if (chunk.n > 0) {
        const Segment *tensor = &table.segments[chunk.segment];
        const double *first = sums + tensor->block + (chunk.first - tensor->offset) / NORM_BLOCK;
        for (int64_t b = 0; b * NORM_BLOCK < chunk.n; b++) total += first[b];
    }
    chunks[number] = total;
}

Status chunk_sums(double *chunks, const double *sums, const SegmentTable &table)
{
    int32_t blocks = (table.chunks + SEGMENT_THREADS - 1) / SEGMENT_THREADS;
    return CUDA_LAUNCH((chunk_sums_kernel), blocks, SEGMENT_THREADS, 0, chunks, sums, table);
}
