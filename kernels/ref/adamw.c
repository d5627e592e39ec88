/* One parameter's update u, from moments that it moves on. g = gradient · grad_scale. */
#include "kernels/ref/ref.h"

float ref_adam_update(const RefAdam *a, float p, float gradient, float decay, float *m, float *v)
{
    float g = gradient * a->grad_scale;
    *m = a->beta1 * *m + (1.0f - a->beta1) * g;
    *v = a->beta2 * *v + (1.0f - a->beta2) * g * g;
    return *m * a->bias1 / (sqrtf(*v * a->bias2) + a->eps) + decay * p;
}

RefAdam ref_adam_of(const OpCall *call, const Stats *stats)
{
    const Ctl *ctl = op_ctl(call);
    return (RefAdam){
        call->attr.optimizer.beta1, call->attr.optimizer.beta2, call->attr.optimizer.eps, ctl->bias1, ctl->bias2,
        stats->grad_scale};
}

Status ref_adamw(const OpCall *call, const RowCounts *rows)
{
    const float *grads = IN(call, ADAMW, grads)->data;
    const Stats *stats = IN(call, ADAMW, stats)->data;
    float *weights = OUT(call, ADAMW, weights)->data, *m = OUT(call, ADAMW, m)->data, *v = OUT(call, ADAMW, v)->data;
    float lr = op_ctl(call)->learning_rate;
    RefAdam adam = ref_adam_of(call, stats);
    int64_t n;
    const Segment *segments = op_segments(IN(call, ADAMW, segments), rows, &n);
    if (!stats->finite) return OK;
    for (int64_t s = 0; s < n; s++)
        for (int64_t i = segments[s].offset; i < segments[s].offset + segments[s].size; i++)
            weights[i] -= lr * ref_adam_update(&adam, weights[i], grads[i], segments[s].decay,
                                               &m[i + segments[s].shift], &v[i + segments[s].shift]);
    return OK;
}
