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

double ref_sum_squares(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += REF_NORM_BLOCK) {
        int64_t end = first + REF_NORM_BLOCK < n ? first + REF_NORM_BLOCK : n;
        double block = 0;
        for (int64_t i = first; i < end; i++) block += (double)x[i] * (double)x[i];
        total += block;
    }
    return total;
}

Status ref_grad_norm(const OpCall *call, const RowCounts *rows)
{
    const float *grads = ref_in(call, "grads")->data;
    int64_t n;
    const Segment *segments = ref_segments(call, rows, &n);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += ref_sum_squares(grads + segments[i].offset, segments[i].size);
    loss_scale_norm(ref_out(call, "stats")->data, ref_out(call, "scaling")->data, squares, call->attr);
    return OK;
}
