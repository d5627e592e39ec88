#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

/* Σ x² of the block that begins at x; n elements are left. */
static double sum_block(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n && i < NORM_BLOCK; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

double ref_sum_squares(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += NORM_BLOCK) total += sum_block(x + first, n - first);
    return total;
}

Status ref_block_sums(const OpCall *call, const RowCounts *rows)
{
    const float *x = IN(call, BLOCK_SUMS, x)->data;
    double *sums = OUT(call, BLOCK_SUMS, sums)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, BLOCK_SUMS, segments), rows, &n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b * NORM_BLOCK < segments[i].size; b++)
            sums[segments[i].block + b] =
                sum_block(x + segments[i].offset + b * NORM_BLOCK, segments[i].size - b * NORM_BLOCK);
    return OK;
}

Status ref_grad_norm(const OpCall *call, const RowCounts *rows)
{
    const float *grads = IN(call, GRAD_NORM, grads)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, GRAD_NORM, segments), rows, &n);
    double squares[2] = {0, 0};
    const double *sums = IN(call, GRAD_NORM, sums)->data;
    for (int64_t i = 0; i < n; i++)
        squares[segments[i].kfac != 0] +=
            sums ? host_add_blocks(&segments[i], sums) : ref_sum_squares(grads + segments[i].offset, segments[i].size);
    loss_scale_norm(OUT(call, GRAD_NORM, stats)->data, OUT(call, GRAD_NORM, scaling)->data, squares[0], squares[1],
                    call->attr);
    return OK;
}
