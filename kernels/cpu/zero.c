#include "kernels/cpu/cpu.h"

typedef struct {
    char *to;
    size_t bytes;
} ZeroWork;

static void zero_part(void *arg, int part)
{
    const ZeroWork *w = arg;
    CpuSpan bytes = cpu_span((int64_t)w->bytes, 4096, part, cpu.threads);
    memset(w->to + bytes.first, 0, (size_t)(bytes.end - bytes.first));
}

Status cpu_zero(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = OUT(call, ZERO, x);
    ZeroWork w = {x->data, (size_t)(rows_in(x->rows, rows) * x->cols) * dtype_size(x->dtype)};
    if (w.bytes < 65536)
        memset(w.to, 0, w.bytes);
    else
        cpu_parallel(zero_part, &w);
    return OK;
}
