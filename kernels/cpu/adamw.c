#include "kernels/cpu/cpu.h"

/* The part's share of each segment, norm block by norm block. */
static void update_part(void *arg, int part)
{
    const CpuUpdate *w = arg;
    for (const Segment *s = w->segments; s < w->segments + w->n; s++) {
        CpuSpan mine = cpu_span(norm_blocks(s->size), 1, part, cpu.threads);
        Adam adam = adam_of(w->call->attr, op_ctl(w->call), w->stats, s);
        for (int64_t b = mine.first; b < mine.end; b++) {
            int64_t at = s->offset + b * NORM_BLOCK, size = host_block_size(s, b);
            float *p = w->weights + at, *g = w->grads + at;
            cpu.vec->adam(p, w->m + at + s->shift, w->v + at + s->shift, g, w->keep_u ? g : NULL, size, &adam);
            if (!w->p_sums) continue;
            w->p_sums[s->block + b] = cpu.vec->sum_squares(p, size);
            w->u_sums[s->block + b] = cpu.vec->sum_squares(g, size);
        }
    }
}

void cpu_update(const CpuUpdate *w) { cpu_parallel(update_part, (void *)(uintptr_t)w); }

Status cpu_adamw(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, ADAMW, stats)->data;
    CpuUpdate w = {.call = call,
                   .stats = stats,
                   .weights = OUT(call, ADAMW, weights)->data,
                   .m = OUT(call, ADAMW, m)->data,
                   .v = OUT(call, ADAMW, v)->data,
                   .grads = IN(call, ADAMW, grads)->data};
    w.segments = op_segments(IN(call, ADAMW, segments), rows, &w.n);
    if (!stats->finite) return OK;
    cpu_update(&w);
    host_round_copies(OUT(call, ADAMW, copies), rows, w.segments, w.n, w.weights);
    return OK;
}
