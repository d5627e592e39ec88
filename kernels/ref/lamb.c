#include "kernels/ref/ref.h"

/* Writes a segment's u into grads. */
static void lamb_update(const OpCall *call, const Segment *s, const Stats *stats, const float *weights, float *grads,
                        float *m, float *v)
{
    Adam adam = adam_of(call->attr, op_ctl(call), stats, s);
    for (int64_t i = s->offset; i < s->offset + s->size; i++)
        grads[i] = adam_update(&adam, weights[i], grads[i], &m[i + s->shift], &v[i + s->shift]);
}

static void lamb_descend(const Segment *s, float rate, float *weights, const float *u)
{
    for (int64_t i = s->offset; i < s->offset + s->size; i++) weights[i] -= rate * u[i];
}

Status ref_lamb(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB, stats)->data;
    float *weights = OUT(call, LAMB, weights)->data, *grads = OUT(call, LAMB, grads)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB, segments), rows, &n);
    if (!stats->finite) return OK;
    for (const Segment *s = segments; s < segments + n; s++) {
        lamb_update(call, s, stats, weights, grads, OUT(call, LAMB, m)->data, OUT(call, LAMB, v)->data);
        double p_squares = ref_sum_squares(weights + s->offset, s->size);
        float rate =
            host_lamb_rate(s, op_ctl(call)->learning_rate, p_squares, ref_sum_squares(grads + s->offset, s->size));
        lamb_descend(s, rate, weights, grads);
    }
    host_round_copies(OUT(call, LAMB, copies), rows, segments, n, weights);
    return OK;
}

/* ---- a slice: in two halves, the norms between them summed over all ranks ---- */

Status ref_lamb_step(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_STEP, stats)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB_STEP, segments), rows, &n);
    if (!stats->finite) return OK;
    for (const Segment *s = segments; s < segments + n; s++)
        lamb_update(call, s, stats, IN(call, LAMB_STEP, weights)->data, OUT(call, LAMB_STEP, grads)->data,
                    OUT(call, LAMB_STEP, m)->data, OUT(call, LAMB_STEP, v)->data);
    return OK;
}

Status ref_lamb_descend(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_DESCEND, stats)->data;
    const Segment *all = IN(call, LAMB_DESCEND, all)->data;
    const double *p_sums = IN(call, LAMB_DESCEND, p_sums)->data, *u_sums = IN(call, LAMB_DESCEND, u_sums)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, LAMB_DESCEND, segments), rows, &n);
    if (!stats->finite) return OK;
    for (const Segment *s = segments; s < segments + n; s++) {
        const Segment *tensor = &all[s->tensor];
        float rate = host_lamb_rate(tensor, op_ctl(call)->learning_rate, host_add_blocks(tensor, p_sums),
                                    host_add_blocks(tensor, u_sums));
        lamb_descend(s, rate, OUT(call, LAMB_DESCEND, weights)->data, IN(call, LAMB_DESCEND, u)->data);
    }
    return OK;
}
