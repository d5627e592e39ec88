#include "kernels/cpu/cpu.h"
#include "kernels/word_mix.h"

typedef struct {
    const Operand *x;
    uint64_t *sums; // (rows)
    int64_t rows;
} DigestWork;

static void digest_part(void *arg, int part)
{
    const DigestWork *w = arg;
    CpuSpan rows = cpu_span(w->rows, 1, part, cpu.threads);
    int64_t bytes = w->x->cols * (int64_t)dtype_size(w->x->dtype);
    for (int64_t r = rows.first; r < rows.end; r++)
        w->sums[r] = cpu.vec->digest_row(host_row(w->x, r), bytes, (uint64_t)(r * row_words(bytes)));
}

Status cpu_digest(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, DIGEST, x);
    DigestWork w = {x, OUT(call, DIGEST, sums)->data, rows_in(x->rows, rows)};
    cpu_parallel(digest_part, &w);
    return OK;
}
