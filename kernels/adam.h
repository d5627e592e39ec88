/* Adam's update of an element, the same on every backend. Sources: Kingma and Ba, 2015; decoupled decay (Loshchilov and
   Hutter, 2019). */
#pragma once

#include "kernels/op.h"

/* An update of a segment's elements. */
typedef struct {
    float beta1, beta2, eps, bias1, bias2, rate, decay, grad_scale;
} Adam;

CAIRN_DEVICE static inline Adam adam_of(OpAttr attr, const Ctl *ctl, const Stats *stats, const Segment *s)
{
    Adam a = {attr.optimizer.beta1,
              attr.optimizer.beta2,
              attr.optimizer.eps,
              ctl->bias1,
              ctl->bias2,
              ctl->learning_rate,
              s->decay,
              s->kfac ? stats->kfac_scale : stats->grad_scale};
    return a;
}

/* Updates m and v and returns u = m·bias1 / (√(v·bias2) + eps) + decay·p. */
CAIRN_DEVICE static inline float adam_update(const Adam *a, float p, float gradient, float *m, float *v)
{
    float g = gradient * a->grad_scale;
    *m = a->beta1 * *m + (1.0f - a->beta1) * g;
    *v = a->beta2 * *v + (1.0f - a->beta2) * g * g;
    return *m * a->bias1 / (sqrtf(*v * a->bias2) + a->eps) + a->decay * p;
}
