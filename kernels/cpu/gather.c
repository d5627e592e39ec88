#include "kernels/cpu/cpu.h"

typedef struct {
    const Operand *from, *to;
    const int32_t *index;
    int64_t n, clear; /* rows to move; rows of `to` to clear before, or from n on */
} GatherWork;

static void gather_part(void *arg, int part)
{
    const GatherWork *w = arg;
    CpuSpan rows = cpu_span(w->n, 1, part, cpu.threads);
    size_t bytes = (size_t)w->to->cols * dtype_size(w->to->dtype);
    for (int64_t i = rows.first; i < rows.end; i++) memcpy(host_row(w->to, i), host_row(w->from, w->index[i]), bytes);
}

Status cpu_gather(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, GATHER, x), *index = IN(call, GATHER, index), *y = OUT(call, GATHER, y);
    GatherWork w = {.from = x, .to = y, .index = index->data, .n = host_real_rows(y, rows, op_ctl(call))};
    cpu_check_index(index, w.n, rows_in(x->rows, rows), "gather: index");
    cpu_parallel(gather_part, &w);
    host_clear_rows(y, w.n, rows_in(y->rows, rows));
    return OK;
}

static void clear_part(void *arg, int part)
{
    const GatherWork *w = arg;
    CpuSpan rows = cpu_span(w->clear, 1, part, cpu.threads);
    host_clear_rows(w->to, rows.first, rows.end);
}

/* Each part takes a range of columns of every row, so that equal indices add up in order. */
static void scatter_part(void *arg, int part)
{
    const GatherWork *w = arg;
    CpuSpan cols = cpu_span(w->to->cols, 64, part, cpu.threads);
    size_t skip = (size_t)cols.first * dtype_size(w->to->dtype);
    if (cols.first == cols.end) return;
    for (int64_t i = 0; i < w->n; i++)
        cpu.vec->add_row((char *)host_row(w->to, w->index[i]) + skip, (const char *)host_row(w->from, i) + skip,
                         cols.end - cols.first, cpu_is_bf16(w->to->dtype));
}

Status cpu_scatter(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, SCATTER, dy), *index = IN(call, SCATTER, index), *dx = OUT(call, SCATTER, dx);
    GatherWork w = {.from = dy, .to = dx, .index = index->data, .n = host_real_rows(dy, rows, op_ctl(call))};
    int64_t n_x = rows_in(dx->rows, rows);
    cpu_check_index(index, w.n, n_x, "scatter: index");
    w.clear = operand_present(IN(call, SCATTER, add)) ? 0 : n_x;
    cpu_parallel(clear_part, &w);
    cpu_parallel(scatter_part, &w);
    return OK;
}
