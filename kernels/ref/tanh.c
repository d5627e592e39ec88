#include "kernels/ref/ref.h"

Status ref_tanh(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, TANH, x), *y = OUT(call, TANH, y);
    int64_t n = rows_in(x->rows, rows) * x->cols;
    for (int64_t i = 0; i < n; i++) ref_store(y, i, tanhf(ref_load(x, i)));
    return OK;
}

/* dx = dy·(1 − y²), from the stored y */
Status ref_tanh_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *y = IN(call, TANH_BWD, y), *dy = IN(call, TANH_BWD, dy), *dx = OUT(call, TANH_BWD, dx);
    int64_t n = rows_in(y->rows, rows) * y->cols;
    for (int64_t i = 0; i < n; i++) {
        float t = ref_load(y, i);
        ref_store(dx, i, ref_load(dy, i) * (1.0f - t * t));
    }
    return OK;
}
