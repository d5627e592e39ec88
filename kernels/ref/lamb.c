/* LAMB (You et al., 2020): AdamW's update, scaled per tensor by ‖p‖/‖u‖. u replaces the gradient. */
#include "kernels/ref/ref.h"

Status ref_lamb(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB, stats)->data;
    float *weights = OUT(call, LAMB, weights)->data, *m = OUT(call, LAMB, m)->data, *v = OUT(call, LAMB, v)->data;
    float *grads = OUT(call, LAMB, grads)->data;
    float lr = op_ctl(call)->learning_rate;
    RefAdam adam = ref_adam_of(call, stats);
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB, segments), rows, &n);
    if (!stats->finite) return OK;
    for (int64_t s = 0; s < n; s++) {
        const Segment *segment = &segments[s];
        float *p = weights + segment->offset, *u = grads + segment->offset;
        for (int64_t i = 0; i < segment->size; i++)
            u[i] = ref_adam_update(&adam, p[i], u[i], segment->decay, &m[segment->offset + i], &v[segment->offset + i]);
        double p_norm = sqrt(ref_sum_squares(p, segment->size)), u_norm = sqrt(ref_sum_squares(u, segment->size));
        float ratio = segment->trust && p_norm > 0 && u_norm > 0 ? (float)(p_norm / u_norm) : 1.0f;
        float rate = lr * ratio;
        for (int64_t i = 0; i < segment->size; i++) p[i] -= rate * u[i];
    }
    return OK;
}

/* ---- the same for a slice, in two halves: the norms between them come from all ranks ---- */

Status ref_lamb_step(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_STEP, stats)->data;
    const float *weights = IN(call, LAMB_STEP, weights)->data;
    float *m = OUT(call, LAMB_STEP, m)->data, *v = OUT(call, LAMB_STEP, v)->data,
          *grads = OUT(call, LAMB_STEP, grads)->data;
    RefAdam adam = ref_adam_of(call, stats);
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB_STEP, segments), rows, &n);
    if (!stats->finite) return OK;
    for (int64_t s = 0; s < n; s++) {
        const Segment *x = &segments[s];
        for (int64_t i = x->offset; i < x->offset + x->size; i++)
            grads[i] = ref_adam_update(&adam, weights[i], grads[i], x->decay, &m[i + x->shift], &v[i + x->shift]);
    }
    return OK;
}

Status ref_lamb_descend(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_DESCEND, stats)->data;
    const float *u = IN(call, LAMB_DESCEND, u)->data;
    const Segment *all = IN(call, LAMB_DESCEND, all)->data;
    const double *p_sums = IN(call, LAMB_DESCEND, p_sums)->data, *u_sums = IN(call, LAMB_DESCEND, u_sums)->data;
    float *weights = OUT(call, LAMB_DESCEND, weights)->data, lr = op_ctl(call)->learning_rate;
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB_DESCEND, segments), rows, &n);
    if (!stats->finite) return OK;
    for (int64_t s = 0; s < n; s++) {
        const Segment *x = &segments[s], *tensor = &all[x->tensor];
        double p_norm = sqrt(ref_add_blocks(tensor, p_sums)), u_norm = sqrt(ref_add_blocks(tensor, u_sums));
        float rate = lr * (tensor->trust && p_norm > 0 && u_norm > 0 ? (float)(p_norm / u_norm) : 1.0f);
        for (int64_t i = x->offset; i < x->offset + x->size; i++) weights[i] -= rate * u[i];
    }
    return OK;
}
