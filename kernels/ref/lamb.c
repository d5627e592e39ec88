/* LAMB (You et al., 2020): AdamW's update, scaled per tensor by ‖p‖/‖u‖. u stands where the gradient stood. */
#include "kernels/ref/ref.h"

Status ref_lamb(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = ref_in(call, "stats")->data;
    float *weights = ref_out(call, "weights")->data, *m = ref_out(call, "m")->data, *v = ref_out(call, "v")->data;
    float *grads = ref_out(call, "grads")->data;
    float lr = ref_ctl(call)->learning_rate;
    RefAdam adam = ref_adam_of(call);
    int64_t n;
    const Segment *segments = ref_segments(call, rows, &n);
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
