#include "kernels/cpu/cpu.h"

AdamRange cpu_adam_of(const OpCall *call, const Stats *stats)
{
    const Ctl *ctl = op_ctl(call);
    return (AdamRange){
        .beta1 = call->attr.optimizer.beta1,
        .beta2 = call->attr.optimizer.beta2,
        .eps = call->attr.optimizer.eps,
        .bias1 = ctl->bias1,
        .bias2 = ctl->bias2,
        .grad_scale = stats->grad_scale,
        .rate = ctl->learning_rate,
    };
}

typedef struct {
    AdamRange adam;
    const Segment *segments;
    const float *grads;
    float *weights, *m, *v;
    int64_t n, total;
} AdamwWork;

#define GRAIN 64 /* elements: a tensor's alignment, and whole cache lines */

/* The part's share of all elements, segment by segment. */
static void update_part(void *arg, int part)
{
    const AdamwWork *w = arg;
    AdamRange adam = w->adam;
    Span mine = cpu_span(w->total, GRAIN, part, cpu.threads);
    int64_t at = 0;
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        int64_t first = mine.first > at ? mine.first - at : 0, end = mine.end - at < s->size ? mine.end - at : s->size;
        int64_t from = s->offset + first;
        adam.decay = s->decay;
        if (first < end)
            cpu.vec->adam(w->weights + from, w->m + from + s->shift, w->v + from + s->shift, w->grads + from, NULL,
                          end - first, &adam);
        at += (s->size + GRAIN - 1) / GRAIN * GRAIN;
    }
}

Status cpu_adamw(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, ADAMW, stats)->data;
    AdamwWork w = {.adam = cpu_adam_of(call, stats), .grads = IN(call, ADAMW, grads)->data};
    w.segments = op_segments(IN(call, ADAMW, segments), rows, &w.n);
    w.weights = OUT(call, ADAMW, weights)->data;
    w.m = OUT(call, ADAMW, m)->data;
    w.v = OUT(call, ADAMW, v)->data;
    if (!stats->finite) return OK;
    for (int64_t i = 0; i < w.n; i++) w.total += (w.segments[i].size + GRAIN - 1) / GRAIN * GRAIN;
    cpu_parallel(update_part, &w);
    return OK;
}
