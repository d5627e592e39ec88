#include "kernels/ref/ref.h"

float ref_adam_update(const Adam *a, float p, float gradient, float *m, float *v)
{
    float g = gradient * a->grad_scale;
    *m = a->beta1 * *m + (1.0f - a->beta1) * g;
    *v = a->beta2 * *v + (1.0f - a->beta2) * g * g;
    return *m * a->bias1 / (sqrtf(*v * a->bias2) + a->eps) + a->decay * p;
}

Status ref_adamw(const OpCall *call, const RowCounts *rows)
{
    const float *grads = IN(call, ADAMW, grads)->data;
    const Stats *stats = IN(call, ADAMW, stats)->data;
    float *weights = OUT(call, ADAMW, weights)->data, *m = OUT(call, ADAMW, m)->data, *v = OUT(call, ADAMW, v)->data;
    Adam adam = host_adam(call);
    int64_t n;
    const Segment *segments = op_segments(IN(call, ADAMW, segments), rows, &n);
    if (!stats->finite) return OK;
    for (const Segment *s = segments; s < segments + n; s++) {
        host_adam_segment(&adam, s, stats);
        for (int64_t i = s->offset; i < s->offset + s->size; i++)
            weights[i] -= adam.rate * ref_adam_update(&adam, weights[i], grads[i], &m[i + s->shift], &v[i + s->shift]);
    }
    host_round_copies(OUT(call, ADAMW, copies), rows, segments, n, weights);
    return OK;
}
