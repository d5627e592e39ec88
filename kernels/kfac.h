/* K-FAC's damping and its tries, the same on every backend. */
#pragma once

#include <float.h>

#include "kernels/op.h"

#define KFAC_DAMPING_LEAST 1e-7
#define KFAC_TRIES         6 /* the damping, and five times ten times as much */

/* Factors of the sums of A and B; traces are those of the sums. */
CAIRN_DEVICE static inline void kfac_scales(const Ctl *ctl, double scale[2])
{
    scale[0] = ctl->kfac_tokens > 0 ? 1 / (double)ctl->kfac_tokens : 0;
    scale[1] = (double)ctl->kfac_tokens;
}

/* What is added to the diagonals of A and B, of whose sums the traces are given. False: a trace is 0 or not finite. */
CAIRN_DEVICE static inline bool kfac_damping(OpAttr attr, const double traces[2], const double scale[2],
                                             double gamma[2])
{
    double a = traces[0] * scale[0] / (double)attr.kfac.k, b = traces[1] * scale[1] / (double)attr.kfac.n;
    double pi = sqrt(a / b), root = sqrt((double)attr.kfac.damping);
    if (!(a > 0) || !(b > 0) || !(pi > 0) || !(pi <= DBL_MAX)) return false;
    gamma[0] = fmax(root * pi, KFAC_DAMPING_LEAST);
    gamma[1] = fmax(root / pi, KFAC_DAMPING_LEAST);
    return gamma[0] <= FLT_MAX && gamma[1] <= FLT_MAX;
}

/* The sum of the diagonal of `sums` (n, n). */
static inline double kfac_trace(const float *sums, int64_t n)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++) trace += (double)sums[i * n + i];
    return trace;
}

/* to = (sums·scale + gamma·I)⁻¹, (n, n); `to` may be `sums`. False: a pivot is not positive. */
typedef bool KfacInverse(const void *scratch, const float *sums, int64_t n, double scale, double gamma, float *to);

static inline bool kfac_try_inverse(KfacInverse *inverse, const void *scratch, const float *sums, int64_t n,
                                    double scale, double gamma, float *to)
{
    for (int tried = 0; tried < KFAC_TRIES; tried++, gamma *= 10)
        if (inverse(scratch, sums, n, scale, gamma, to)) return true;
    return false;
}

/* INVERT with a backend's inverse. */
static inline void kfac_invert(const OpCall *call, KfacInverse *inverse, const void *scratch)
{
    const Operand *from = IN(call, INVERT, from);
    float *a = (float *)OUT(call, INVERT, a)->data, *b = (float *)OUT(call, INVERT, b)->data;
    float *ready = (float *)OUT(call, INVERT, ready)->data;
    const float *sums = operand_present(from) ? (const float *)from->data : a;
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    double scale[2], gamma[2];
    kfac_scales(op_ctl(call), scale);
    if (call->attr.kfac.of_output) {
        *ready = *ready > 0 && kfac_try_inverse(inverse, scratch, b, n, scale[1], (double)*ready, b);
        return;
    }
    double traces[2] = {kfac_trace(sums, k), kfac_trace(b, n)};
    bool good = kfac_damping(call->attr, traces, scale, gamma);
    good = good && kfac_try_inverse(inverse, scratch, sums, k, scale[0], gamma[0], a);
    *ready = good ? (float)gamma[1] : 0;
}
