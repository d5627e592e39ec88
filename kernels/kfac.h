/* K-FAC's damping, the same on every backend. */
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

/* Of INVERT: the sums of A, and the factors that make A and B of the sums. */
static inline const float *kfac_sums_of_a(const OpCall *call)
{
    const Operand *from = IN(call, INVERT, from);
    return operand_present(from) ? from->data : OUT(call, INVERT, a)->data;
}

static inline void kfac_scales(const OpCall *call, double scale[2])
{
    double tokens = (double)op_ctl(call)->kfac_tokens;
    scale[0] = tokens > 0 ? 1 / tokens : 0;
    scale[1] = tokens;
}

#endif
