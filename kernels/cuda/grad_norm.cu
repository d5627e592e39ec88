/* The gradient's norm over all segments and the optimizer's factor for gradients, all on the device. One pass
   over the gradients leaves a sum of squares per chunk; one block adds these, K-FAC's apart. Bytes: 4 per parameter. */
#include "kernels/cuda/segments.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/loss_scale.h"

/* sums (chunks): Σ x² of each chunk, norm block by norm block. */
__global__ void grad_squares_kernel(double *sums, const float *grads, SegmentTable table)
{
    CUDA_SHARED(double, blocks, [CHUNK_BLOCKS]);
    SegmentChunk chunk = segment_chunk(table, blockIdx.x);
    for (int b = (int)threadIdx.x / CUDA_WARP; b < CHUNK_BLOCKS; b += SEGMENT_WARPS) {
        double sum = norm_block_squares(grads, norm_block(chunk, b));
        if (threadIdx.x % CUDA_WARP == 0) blocks[b] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    double total = 0;
    for (int b = 0; b < CHUNK_BLOCKS; b++) total += blocks[b];
    sums[blockIdx.x] = total;
}

enum { NORM_THREADS = 1024 };

__global__ void grad_norm_kernel(Stats *stats, LossScaling *scaling, const double *sums, SegmentTable table,
                                 OpAttr attr)
{
    CUDA_SHARED(double, shared, [32]);
    double mine[2] = {0, 0};
    for (int32_t i = (int32_t)threadIdx.x; i < table.chunks && table.n > 0; i += NORM_THREADS)
        mine[table.segments[segment_chunk(table, i).segment].kfac != 0] += sums[i];
    double squares = block_sum_double(mine[0], shared), of_kfac = block_sum_double(mine[1], shared);
    if (threadIdx.x == 0) loss_scale_norm(stats, scaling, squares, of_kfac, attr);
}

/* A stage of a pipeline has the whole model's segments and sums, beside its own gradients alone. */
static SegmentTable norm_table(const OpCall *call, const RowCounts *rows)
{
    const Operand *sums = IN(call, GRAD_NORM, sums);
    Operand space = *IN(call, GRAD_NORM, grads);
    if (operand_present(sums)) space.rows = sums->rows, space.cols = NORM_BLOCK;
    return segment_table(IN(call, GRAD_NORM, segments), &space, rows);
}

size_t cuda_grad_norm_scratch(const OpCall *call, const RowCounts *rows)
{
    return (size_t)norm_table(call, rows).chunks * sizeof(double);
}

Status cuda_grad_norm(const OpCall *call, const RowCounts *rows)
{
    const Operand *grads = IN(call, GRAD_NORM, grads);
    SegmentTable table = norm_table(call, rows);
    double *sums = static_cast<double *>(cuda_scratch(call, cuda_grad_norm_scratch(call, rows)));
    const double *blocks = cuda_data<const double>(IN(call, GRAD_NORM, sums)); /* of a sharded optimizer */
    TRY(blocks ? chunk_sums(sums, blocks, table)
               : CUDA_LAUNCH((grad_squares_kernel), table.chunks, SEGMENT_THREADS, 0, sums,
                             cuda_data<const float>(grads), table));
    return CUDA_LAUNCH((grad_norm_kernel), 1, NORM_THREADS, 0, cuda_data<Stats>(OUT(call, GRAD_NORM, stats)),
                       cuda_data<LossScaling>(OUT(call, GRAD_NORM, scaling)), sums, table, call->attr);
}
