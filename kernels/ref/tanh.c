#include "kernels/ref/ref.h"

Status ref_tanh(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = ref_in(call, "x"), *y = ref_out(call, "y");
    int64_t n = rows_in(x->rows, rows) * x->cols;
    for (int64_t i = 0; i < n; i++) ref_store(y, i, tanhf(ref_load(x, i)));
    return OK;
}

/* dx = dy·(1 − y²), from the stored y */
Status ref_tanh_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *y = ref_in(call, "y"), *dy = ref_in(call, "dy"), *dx = ref_out(call, "dx");
    int64_t n = rows_in(y->rows, rows) * y->cols;
    for (int64_t i = 0; i < n; i++) {
        float t = ref_load(y, i);
        ref_store(dx, i, ref_load(dy, i) * (1.0f - t * t));
    }
    return OK;
}
