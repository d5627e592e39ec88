/* The gradient's norm over all segments, and what the optimizer multiplies gradients with. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

const Segment *ref_segments(const OpCall *call, const RowCounts *rows, int64_t *n)
{
    const Operand *segments = ref_in(call, "segments");
    *n = (int64_t)((size_t)(rows_in(segments->rows, rows) * segments->cols) * dtype_size(segments->dtype) /
                   sizeof(Segment));
    return segments->data;
}

static double sum_block(const float *x, int64_t n)
{
    double block = 0;
    for (int64_t i = 0; i < n && i < NORM_BLOCK; i++) block += (double)x[i] * (double)x[i];
    return block;
}

double ref_sum_squares(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += NORM_BLOCK) total += sum_block(x + first, n - first);
    return total;
}

double ref_add_blocks(const Segment *tensor, const double *sums)
{
    double total = 0;
    for (int64_t b = 0; b * NORM_BLOCK < tensor->size; b++) total += sums[tensor->block + b];
    return total;
}

Status ref_block_sums(const OpCall *call, const RowCounts *rows)
{
    const float *x = ref_in(call, "x")->data;
    double *sums = ref_out(call, "sums")->data;
    int64_t n;
    const Segment *segments = ref_segments(call, rows, &n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b * NORM_BLOCK < segments[i].size; b++)
            sums[segments[i].block + b] =
                sum_block(x + segments[i].offset + b * NORM_BLOCK, segments[i].size - b * NORM_BLOCK);
    return OK;
}

Status ref_grad_norm(const OpCall *call, const RowCounts *rows)
{
    const float *grads = ref_in(call, "grads")->data;
    int64_t n;
    const Segment *segments = ref_segments(call, rows, &n);
    double squares = 0;
    const double *sums = ref_in(call, "sums")->data;
    for (int64_t i = 0; i < n; i++)
        squares +=
            sums ? ref_add_blocks(&segments[i], sums) : ref_sum_squares(grads + segments[i].offset, segments[i].size);
    loss_scale_norm(ref_out(call, "stats")->data, ref_out(call, "scaling")->data, squares, call->attr);
    return OK;
}
