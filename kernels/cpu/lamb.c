/* LAMB, in three passes over all parameters: the update u (which replaces the gradient), the norms of p and u by
   blocks of 1024 elements, p −= rate·ratio·u. */
#include <math.h>

#include "kernels/cpu/cpu.h"

typedef struct {
    AdamRange adam;
    const Segment *segments;
    float *weights, *m, *v, *grads;
    int64_t n, blocks;
    double *p_sums, *u_sums; /* block by block, segment by segment */
    float *rates;            /* (n) */
    CpuSpace space;
} LambWork;

static int64_t blocks_of(const Segment *s) { return (s->size + NORM_BLOCK - 1) / NORM_BLOCK; }

static LambWork lamb_work(const OpCall *call, const RowCounts *rows)
{
    LambWork w = {.space.base = call->scratch};
    const Operand *x = OUT(call, LAMB, weights);
    w.segments = op_segments(IN(call, LAMB, segments), rows, &w.n);
    int64_t limit = w.n + rows_in(x->rows, rows) * x->cols / NORM_BLOCK + 1;
    w.p_sums = cpu_take(&w.space, (size_t)limit * sizeof(double));
    w.u_sums = cpu_take(&w.space, (size_t)limit * sizeof(double));
    w.rates = cpu_take(&w.space, (size_t)w.n * sizeof(float));
    w.blocks = limit;
    return w;
}

size_t cpu_lamb_scratch(const OpCall *call, const RowCounts *rows) { return lamb_work(call, rows).space.bytes; }

/* Calls `each` for the part's share of all blocks; `at` is the block's place in the tables. */
static void each_block(const LambWork *w, int part, void (*each)(const LambWork *, int64_t, int64_t, int64_t, int64_t))
{
    Span mine = cpu_span(w->blocks, 1, part, cpu.threads);
    int64_t at = 0;
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        int64_t blocks = blocks_of(s);
        for (int64_t b = mine.first > at ? mine.first - at : 0; b < blocks && at + b < mine.end; b++)
            each(w, i, s->offset + b * NORM_BLOCK,
                 s->size - b * NORM_BLOCK < NORM_BLOCK ? s->size - b * NORM_BLOCK : NORM_BLOCK, at + b);
        at += blocks;
    }
}

static void update_block(const LambWork *w, int64_t segment, int64_t from, int64_t size, int64_t at)
{
    AdamRange adam = w->adam;
    adam.decay = w->segments[segment].decay;
    float *p = w->weights + from, *u = w->grads + from;
    cpu.vec->adam(p, w->m + from, w->v + from, u, u, size, &adam);
    w->p_sums[at] = cpu.vec->sum_squares(p, size);
    w->u_sums[at] = cpu.vec->sum_squares(u, size);
}

static void descend_block(const LambWork *w, int64_t segment, int64_t from, int64_t size, int64_t at)
{
    (void)at;
    cpu.vec->descend(w->weights + from, w->grads + from, w->rates[segment], size);
}

static void update_part(void *arg, int part) { each_block(arg, part, update_block); }
static void descend_part(void *arg, int part) { each_block(arg, part, descend_block); }

static void set_rates(const LambWork *w)
{
    int64_t at = 0;
    for (int64_t i = 0; i < w->n; i++) {
        double p = 0, u = 0;
        for (int64_t end = at + blocks_of(&w->segments[i]); at < end; at++) {
            p += w->p_sums[at];
            u += w->u_sums[at];
        }
        p = sqrt(p);
        u = sqrt(u);
        float ratio = w->segments[i].trust && p > 0 && u > 0 ? (float)(p / u) : 1.0f;
        w->rates[i] = w->adam.rate * ratio;
    }
}

Status cpu_lamb(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB, stats)->data;
    LambWork w = lamb_work(call, rows);
    int64_t limit = w.blocks;
    cpu_check_space(call, &w.space);
    w.adam = cpu_adam_of(call, stats);
    w.weights = OUT(call, LAMB, weights)->data;
    w.m = OUT(call, LAMB, m)->data;
    w.v = OUT(call, LAMB, v)->data;
    w.grads = OUT(call, LAMB, grads)->data;
    if (!stats->finite) return OK;
    w.blocks = 0;
    for (int64_t i = 0; i < w.n; i++) w.blocks += blocks_of(&w.segments[i]);
    CHECK(w.blocks <= limit, "lamb: %lld blocks, scratch for %lld; segments overlap", (long long)w.blocks,
          (long long)limit);
    cpu_parallel(update_part, &w);
    set_rates(&w);
    cpu_parallel(descend_part, &w);
    return OK;
}

/* ---- the same for a slice, in two halves: the norms between them come from all ranks ---- */

typedef struct {
    AdamRange adam;
    const Segment *segments;
    float *weights, *m, *v, *grads;
    const float *rates; /* (all segments) */
    int64_t n;
} LambSliceWork;

static void step_part(void *arg, int part)
{
    const LambSliceWork *w = arg;
    AdamRange adam = w->adam;
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        Span mine = cpu_span(s->size, NORM_BLOCK, part, cpu.threads);
        int64_t from = s->offset + mine.first, moment = from + s->shift;
        float *u = w->grads + from;
        adam.decay = s->decay;
        if (mine.first < mine.end)
            cpu.vec->adam(w->weights + from, w->m + moment, w->v + moment, u, u, mine.end - mine.first, &adam);
    }
}

Status cpu_lamb_step(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_STEP, stats)->data;
    LambSliceWork w = {.adam = cpu_adam_of(call, stats), .weights = IN(call, LAMB_STEP, weights)->data};
    w.segments = op_segments(IN(call, LAMB_STEP, segments), rows, &w.n);
    w.m = OUT(call, LAMB_STEP, m)->data;
    w.v = OUT(call, LAMB_STEP, v)->data;
    w.grads = OUT(call, LAMB_STEP, grads)->data;
    if (stats->finite) cpu_parallel(step_part, &w);
    return OK;
}

static void descend_slice_part(void *arg, int part)
{
    const LambSliceWork *w = arg;
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        Span mine = cpu_span(s->size, NORM_BLOCK, part, cpu.threads);
        int64_t from = s->offset + mine.first;
        if (mine.first < mine.end)
            cpu.vec->descend(w->weights + from, w->grads + from, w->rates[s->tensor], mine.end - mine.first);
    }
}

size_t cpu_lamb_descend_scratch(const OpCall *call, const RowCounts *rows)
{
    int64_t n;
    op_segments(IN(call, LAMB_DESCEND, all), rows, &n);
    return cpu_line((size_t)n * sizeof(float));
}

static double add_blocks(const Segment *tensor, const double *sums)
{
    double sum = 0;
    for (int64_t b = 0; b < blocks_of(tensor); b++) sum += sums[tensor->block + b];
    return sum;
}

Status cpu_lamb_descend(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_DESCEND, stats)->data;
    const double *p_sums = IN(call, LAMB_DESCEND, p_sums)->data, *u_sums = IN(call, LAMB_DESCEND, u_sums)->data;
    float *rates = call->scratch;
    int64_t n;
    const Segment *all = op_segments(IN(call, LAMB_DESCEND, all), rows, &n);
    LambSliceWork w = {.rates = rates, .weights = OUT(call, LAMB_DESCEND, weights)->data};
    w.segments = op_segments(IN(call, LAMB_DESCEND, segments), rows, &w.n);
    w.grads = IN(call, LAMB_DESCEND, u)->data;
    cpu_check_space(call, &(CpuSpace){.bytes = (size_t)n * sizeof(float)});
    if (!stats->finite) return OK;
    for (int64_t i = 0; i < n; i++) {
        double p = sqrt(add_blocks(&all[i], p_sums)), u = sqrt(add_blocks(&all[i], u_sums));
        float ratio = all[i].trust && p > 0 && u > 0 ? (float)(p / u) : 1.0f;
        rates[i] = op_ctl(call)->learning_rate * ratio;
    }
    cpu_parallel(descend_slice_part, &w);
    return OK;
}
