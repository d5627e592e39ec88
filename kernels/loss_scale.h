/* fp16's loss scale, and the stats that follow from the gradient's norm, the same in every backend. The scale lies
   beside the moments on the device, where losses read it and GRAD_NORM updates it, so that no step waits for the host.
 */
#pragma once

#include <float.h>

#include "kernels/op.h"

/* Factor of the losses' gradients; `scaling` is NULL except in fp16. */
CAIRN_DEVICE static inline float loss_scale_of(const LossScaling *scaling) { return scaling ? scaling->scale : 1.0f; }

/* After an update or a skipped one: an overflow halves the scale, `growth_interval` updates without one double it;
   growth_interval 0: fixed. */
CAIRN_DEVICE static inline void loss_scale_next(LossScaling *s, bool finite, int32_t growth_interval)
{
    if (growth_interval <= 0) return;
    if (!finite) {
        s->scale = s->scale > 2 * LOSS_SCALE_LEAST ? s->scale / 2 : LOSS_SCALE_LEAST;
        s->good = 0;
        s->skipped++;
    } else if (++s->good >= growth_interval) {
        s->scale = s->scale < LOSS_SCALE_MOST / 2 ? s->scale * 2 : LOSS_SCALE_MOST;
        s->good = 0;
    }
}

/* Scale and clipping as one factor. */
CAIRN_DEVICE static inline float loss_scale_factor(double scale, double norm, double limit)
{
    return (float)(1.0 / (scale * (limit > 0 && norm > limit ? norm / limit : 1.0)));
}

/* `squares`, `kfac_squares`: Σ of the squares of the scaled gradients, of those that K-FAC preconditions apart. */
CAIRN_DEVICE static inline void loss_scale_norm(Stats *stats, LossScaling *scaling, double squares, double kfac_squares,
                                                OpAttr attr)
{
    double scale = (double)loss_scale_of(scaling), norm = sqrt(squares) / scale, of_kfac = sqrt(kfac_squares) / scale;
    double limit = (double)attr.grad_norm.max_norm;
    bool finite = norm <= DBL_MAX && of_kfac <= DBL_MAX; /* false for infinity and NaN */
    stats->grad_norm = norm;
    stats->kfac_norm = of_kfac;
    stats->finite = finite;
    stats->grad_scale = finite ? loss_scale_factor(scale, norm, limit) : 0.0f;
    stats->kfac_scale = finite ? loss_scale_factor(scale, of_kfac, limit) : 0.0f;
    if (scaling) loss_scale_next(scaling, finite, attr.grad_norm.growth_interval);
}
