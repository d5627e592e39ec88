#include "kernels/ref/ref.h"

Status ref_adamw(const OpCall *call, const RowCounts *rows)
{
    const float *grads = IN(call, ADAMW, grads)->data;
    const Stats *stats = IN(call, ADAMW, stats)->data;
    float *weights = OUT(call, ADAMW, weights)->data, *m = OUT(call, ADAMW, m)->data, *v = OUT(call, ADAMW, v)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, ADAMW, segments), rows, &n);
    if (!stats->finite) return OK;
    for (const Segment *s = segments; s < segments + n; s++) {
        Adam adam = adam_of(call->attr, op_ctl(call), stats, s);
        for (int64_t i = s->offset; i < s->offset + s->size; i++)
            weights[i] -= adam.rate * adam_update(&adam, weights[i], grads[i], &m[i + s->shift], &v[i + s->shift]);
    }
    host_round_copies(OUT(call, ADAMW, copies), rows, segments, n, weights);
    return OK;
}
