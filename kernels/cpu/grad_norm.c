/* Sums of squares over blocks of 1024 elements from each parameter's start: threads fill a table of them, one thread
   adds the table in order. */
#include "kernels/cpu/cpu.h"
#include "kernels/loss_scale.h"

typedef struct {
    const float *x;
    const Segment *segments;
    int64_t n, limit;
    double *sums; /* block by block, segment by segment */
} GradNormWork;

static int64_t blocks_of(const Segment *s) { return (s->size + NORM_BLOCK - 1) / NORM_BLOCK; }

/* At capacity the segments are not known yet: a block each, and the blocks of the whole space. */
static size_t table_bytes(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, GRAD_NORM, grads);
    int64_t n;
    op_segments(IN(call, GRAD_NORM, segments), rows, &n);
    return (size_t)(n + rows_in(x->rows, rows) * x->cols / NORM_BLOCK + 1) * sizeof(double);
}

size_t cpu_grad_norm_scratch(const OpCall *call, const RowCounts *rows) { return cpu_line(table_bytes(call, rows)); }

static void sum_part(void *arg, int part)
{
    const GradNormWork *w = arg;
    int64_t total = 0, at = 0;
    for (int64_t i = 0; i < w->n; i++) total += blocks_of(&w->segments[i]);
    CHECK(total <= w->limit, "grad_norm: %lld blocks, scratch for %lld; segments overlap", (long long)total,
          (long long)w->limit);
    Span mine = cpu_span(total, 1, part, cpu.threads);
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        int64_t blocks = blocks_of(s);
        for (int64_t b = mine.first > at ? mine.first - at : 0; b < blocks && at + b < mine.end; b++) {
            int64_t size = s->size - b * NORM_BLOCK < NORM_BLOCK ? s->size - b * NORM_BLOCK : NORM_BLOCK;
            w->sums[at + b] = cpu.vec->sum_squares(w->x + s->offset + b * NORM_BLOCK, size);
        }
        at += blocks;
    }
}

/* Adds the table in order. `by_number`: a slice's, of all blocks; else those of the segments follow each other. */
static double add_table(const Segment *segments, int64_t n, const double *sums, bool by_number)
{
    double squares = 0;
    const double *next = sums;
    for (int64_t i = 0; i < n; i++) {
        double segment = 0;
        if (by_number) next = sums + segments[i].block;
        for (int64_t b = blocks_of(&segments[i]); b > 0; b--) segment += *next++;
        squares += segment;
    }
    return squares;
}

Status cpu_grad_norm(const OpCall *call, const RowCounts *rows)
{
    GradNormWork w = {.x = IN(call, GRAD_NORM, grads)->data, .sums = call->scratch};
    const double *sums = IN(call, GRAD_NORM, sums)->data;
    w.segments = op_segments(IN(call, GRAD_NORM, segments), rows, &w.n);
    w.limit = (int64_t)(table_bytes(call, rows) / sizeof(double));
    cpu_check_space(call, &(CpuSpace){.bytes = table_bytes(call, rows)});
    if (!sums) cpu_parallel(sum_part, &w);
    double squares = add_table(w.segments, w.n, sums ? sums : w.sums, sums != NULL);
    loss_scale_norm(OUT(call, GRAD_NORM, stats)->data, OUT(call, GRAD_NORM, scaling)->data, squares, call->attr);
    return OK;
}

/* A slice's blocks lie in the table by their numbers; each thread takes its share of each segment's. */
static void sum_slice_part(void *arg, int part)
{
    const GradNormWork *w = arg;
    for (int64_t i = 0; i < w->n; i++) {
        const Segment *s = &w->segments[i];
        Span mine = cpu_span(blocks_of(s), 1, part, cpu.threads);
        for (int64_t b = mine.first; b < mine.end; b++) {
            int64_t size = s->size - b * NORM_BLOCK < NORM_BLOCK ? s->size - b * NORM_BLOCK : NORM_BLOCK;
            w->sums[s->block + b] = cpu.vec->sum_squares(w->x + s->offset + b * NORM_BLOCK, size);
        }
    }
}

Status cpu_block_sums(const OpCall *call, const RowCounts *rows)
{
    GradNormWork w = {.x = IN(call, BLOCK_SUMS, x)->data, .sums = OUT(call, BLOCK_SUMS, sums)->data};
    w.segments = op_segments(IN(call, BLOCK_SUMS, segments), rows, &w.n);
    cpu_parallel(sum_slice_part, &w);
    return OK;
}
