/* The gradient's norm over all segments, and what the optimizer multiplies gradients with. */
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
    const Ctl *ctl = ref_ctl(call);
    Stats *stats = ref_out(call, "stats")->data;
    int64_t n;
    const Segment *segments = ref_segments(call, rows, &n);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += ref_sum_squares(grads + segments[i].offset, segments[i].size);
    double norm = sqrt(squares) / (double)ctl->loss_scale, limit = call->attr.grad_norm.max_norm;
    double clip = limit > 0 && norm > limit ? norm / limit : 1.0;
    stats->grad_norm = norm;
    stats->finite = isfinite(norm) ? 1 : 0;
    stats->grad_scale = stats->finite ? (float)(1.0 / ((double)ctl->loss_scale * clip)) : 0.0f;
    return OK;
}
