/* K-FAC's damping and its tries, the same on every backend. */
#ifndef CAIRN_KERNELS_KFAC_H
#define CAIRN_KERNELS_KFAC_H

#include <math.h>

#include "kernels/op.h"

#define KFAC_DAMPING_LEAST 1e-7
#define KFAC_TRIES         6 /* the damping, and five times ten times as much */

/* What is added to the diagonals of A and B, whose traces are given. False: a trace is 0 or not finite. */
static inline bool kfac_damping(const OpCall *call, double trace_a, double trace_b, double gamma[2])
{
    double pi = sqrt((trace_a / (double)call->attr.kfac.k) / (trace_b / (double)call->attr.kfac.n));
    double root = sqrt((double)call->attr.kfac.damping);
    if (!(trace_a > 0) || !(trace_b > 0) || !isfinite(pi) || !(pi > 0)) return false;
    gamma[0] = fmax(root * pi, KFAC_DAMPING_LEAST);
    gamma[1] = fmax(root / pi, KFAC_DAMPING_LEAST);
    return isfinite(gamma[0]) && isfinite(gamma[1]);
}

/* `sums` (n, n) times `scale`. */
static inline double kfac_trace(const float *sums, int64_t n, double scale)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++) trace += (double)sums[i * n + i];
    return trace * scale;
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
    float *a = OUT(call, INVERT, a)->data, *b = OUT(call, INVERT, b)->data, *ready = OUT(call, INVERT, ready)->data;
    const float *sums = operand_present(from) ? from->data : a;
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    double tokens = (double)op_ctl(call)->kfac_tokens, scale = tokens > 0 ? 1 / tokens : 0, gamma[2];
    bool good = kfac_damping(call, kfac_trace(sums, k, scale), kfac_trace(b, n, tokens), gamma);
    good = good && kfac_try_inverse(inverse, scratch, sums, k, scale, gamma[0], a);
    *ready = good && kfac_try_inverse(inverse, scratch, b, n, tokens, gamma[1], b);
}

#endif
