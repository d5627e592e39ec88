/* Sums of squares over norm blocks: threads fill a table of them, one thread adds the table in order. */
#include "kernels/cpu/cpu.h"
#include "kernels/loss_scale.h"

typedef struct {
    const Segment *segments; // (n)
    int64_t n;
    const float *x;
    double *sums;
} BlockSumsWork;

/* The part's share of each segment's blocks. */
static void sum_part(void *arg, int part)
{
    const BlockSumsWork *w = arg;
    for (const Segment *s = w->segments; s < w->segments + w->n; s++) {
        CpuSpan mine = cpu_span(norm_blocks(s->size), 1, part, cpu.threads);
        for (int64_t b = mine.first; b < mine.end; b++)
            w->sums[s->block + b] = cpu.vec->sum_squares(w->x + s->offset + b * NORM_BLOCK, host_block_size(s, b));
    }
}

void cpu_check_blocks(const Segment *segments, int64_t n, int64_t most, const char *op)
{
    for (const Segment *s = segments; s < segments + n; s++)
        CHECK(s->block + norm_blocks(s->size) <= most, "%s: block %lld, room for %lld", op,
              (long long)(s->block + norm_blocks(s->size) - 1), (long long)most);
}

static void sum_blocks(const Segment *segments, int64_t n, const float *x, double *sums)
{
    BlockSumsWork w = {segments, n, x, sums};
    cpu_parallel(sum_part, &w);
}

Status cpu_block_sums(const OpCall *call, const RowCounts *rows)
{
    int64_t n;
    const Segment *segments = op_segments(IN(call, BLOCK_SUMS, segments), rows, &n);
    sum_blocks(segments, n, IN(call, BLOCK_SUMS, x)->data, OUT(call, BLOCK_SUMS, sums)->data);
    return OK;
}

/* At capacity the segments are not known yet: a block each, and the blocks of the whole space. */
static int64_t most_blocks(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, GRAD_NORM, grads);
    int64_t n;
    op_segments(IN(call, GRAD_NORM, segments), rows, &n);
    return n + rows_in(x->rows, rows) * x->cols / NORM_BLOCK + 1;
}

size_t cpu_grad_norm_scratch(const OpCall *call, const RowCounts *rows)
{
    return cpu_line((size_t)most_blocks(call, rows) * sizeof(double));
}

Status cpu_grad_norm(const OpCall *call, const RowCounts *rows)
{
    const double *sums = IN(call, GRAD_NORM, sums)->data;
    int64_t n;
    const Segment *segments = op_segments(IN(call, GRAD_NORM, segments), rows, &n);
    double squares[2] = {0, 0};
    host_check_scratch(call, cpu_grad_norm_scratch(call, rows));
    if (!sums) {
        cpu_check_blocks(segments, n, most_blocks(call, rows), "grad_norm");
        sum_blocks(segments, n, IN(call, GRAD_NORM, grads)->data, call->scratch);
        sums = call->scratch;
    }
    for (int64_t i = 0; i < n; i++) squares[segments[i].kfac != 0] += host_add_blocks(&segments[i], sums);
    loss_scale_norm(OUT(call, GRAD_NORM, stats)->data, OUT(call, GRAD_NORM, scaling)->data, squares[0], squares[1],
                    call->attr);
    return OK;
}
