/* LAMB, in three passes over all parameters: the update u, which replaces the gradient, with the norms of p and u by
   blocks; the rates; p −= rate·u. A slice makes the first and the last pass in an op each. */
#include "kernels/cpu/cpu.h"

typedef struct {
    double *p_sums, *u_sums; // (blocks)
    float *rates;            // (segments)
    int64_t blocks;
    HostScratch space;
} LambScratch;

static LambScratch lamb_scratch(const OpCall *call, const RowCounts *rows)
{
    LambScratch s = {.space.base = call->scratch};
    const Operand *x = OUT(call, LAMB, weights);
    int64_t n;
    op_segments(IN(call, LAMB, segments), rows, &n);
    s.blocks = n + rows_in(x->rows, rows) * x->cols / NORM_BLOCK + 1;
    s.p_sums = host_take(&s.space, s.blocks, sizeof(double));
    s.u_sums = host_take(&s.space, s.blocks, sizeof(double));
    s.rates = host_take(&s.space, n, sizeof(float));
    return s;
}

size_t cpu_lamb_scratch(const OpCall *call, const RowCounts *rows) { return lamb_scratch(call, rows).space.bytes; }

static void set_rates(float *rates, const Segment *all, int64_t n, float rate, const double *p_sums,
                      const double *u_sums)
{
    for (int64_t i = 0; i < n; i++)
        rates[i] = host_lamb_rate(&all[i], rate, host_add_blocks(&all[i], p_sums), host_add_blocks(&all[i], u_sums));
}

typedef struct {
    const Segment *segments; // (n)
    int64_t n;
    float *weights;
    const float *u, *rates; /* rates of all tensors */
} DescendWork;

static void descend_part(void *arg, int part)
{
    const DescendWork *w = arg;
    for (const Segment *s = w->segments; s < w->segments + w->n; s++) {
        CpuSpan mine = cpu_span(s->size, NORM_BLOCK, part, cpu.threads);
        int64_t at = s->offset + mine.first;
        if (mine.first < mine.end)
            cpu.vec->descend(w->weights + at, w->u + at, w->rates[s->tensor], mine.end - mine.first);
    }
}

Status cpu_lamb(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB, stats)->data;
    LambScratch s = lamb_scratch(call, rows);
    CpuUpdate w = {.call = call,
                   .stats = stats,
                   .weights = OUT(call, LAMB, weights)->data,
                   .m = OUT(call, LAMB, m)->data,
                   .v = OUT(call, LAMB, v)->data,
                   .grads = OUT(call, LAMB, grads)->data,
                   .keep_u = true,
                   .p_sums = s.p_sums,
                   .u_sums = s.u_sums};
    w.segments = op_segments(IN(call, LAMB, segments), rows, &w.n);
    host_check_scratch(call, s.space.bytes);
    cpu_check_blocks(w.segments, w.n, s.blocks, "lamb");
    if (!stats->finite) return OK;
    cpu_update(&w);
    set_rates(s.rates, w.segments, w.n, op_ctl(call)->learning_rate, s.p_sums, s.u_sums);
    cpu_parallel(descend_part, &(DescendWork){w.segments, w.n, w.weights, w.grads, s.rates});
    host_round_copies(OUT(call, LAMB, copies), rows, w.segments, w.n, w.weights);
    return OK;
}

/* ---- a slice: in two halves, the norms between them summed over all ranks ---- */

Status cpu_lamb_step(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_STEP, stats)->data;
    CpuUpdate w = {.call = call,
                   .stats = stats,
                   .weights = IN(call, LAMB_STEP, weights)->data,
                   .m = OUT(call, LAMB_STEP, m)->data,
                   .v = OUT(call, LAMB_STEP, v)->data,
                   .grads = OUT(call, LAMB_STEP, grads)->data,
                   .keep_u = true};
    w.segments = op_segments(IN(call, LAMB_STEP, segments), rows, &w.n);
    if (stats->finite) cpu_update(&w);
    return OK;
}

size_t cpu_lamb_descend_scratch(const OpCall *call, const RowCounts *rows)
{
    int64_t n;
    op_segments(IN(call, LAMB_DESCEND, all), rows, &n);
    return cpu_line((size_t)n * sizeof(float));
}

Status cpu_lamb_descend(const OpCall *call, const RowCounts *rows)
{
    const Stats *stats = IN(call, LAMB_DESCEND, stats)->data;
    int64_t n;
    const Segment *all = op_segments(IN(call, LAMB_DESCEND, all), rows, &n);
    DescendWork w = {.weights = OUT(call, LAMB_DESCEND, weights)->data,
                     .u = IN(call, LAMB_DESCEND, u)->data,
                     .rates = call->scratch};
    w.segments = op_segments(IN(call, LAMB_DESCEND, segments), rows, &w.n);
    host_check_scratch(call, cpu_lamb_descend_scratch(call, rows));
    if (!stats->finite) return OK;
    set_rates(call->scratch, all, n, op_ctl(call)->learning_rate, IN(call, LAMB_DESCEND, p_sums)->data,
              IN(call, LAMB_DESCEND, u_sums)->data);
    cpu_parallel(descend_part, &w);
    return OK;
}
