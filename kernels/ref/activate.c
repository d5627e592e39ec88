#include "kernels/ref/ref.h"

Status ref_activate(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, ACTIVATE, x), *y = OUT(call, ACTIVATE, y);
    bool relu = call->attr.activate.kind == ACTIVATE_RELU;
    int64_t n = rows_in(x->rows, rows) * x->cols;
    for (int64_t i = 0; i < n; i++) {
        float v = ref_load(x, i);
        ref_store(y, i, relu ? (v < 0 ? 0 : v) : tanhf(v)); /* a NaN stays one */
    }
    return OK;
}

/* Both slopes are those at the stored y. */
Status ref_activate_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *y = IN(call, ACTIVATE_BWD, y), *dy = IN(call, ACTIVATE_BWD, dy), *dx = OUT(call, ACTIVATE_BWD, dx);
    bool relu = call->attr.activate.kind == ACTIVATE_RELU;
    int64_t n = rows_in(y->rows, rows) * y->cols;
    for (int64_t i = 0; i < n; i++) {
        float v = ref_load(y, i);
        ref_store(dx, i, ref_load(dy, i) * (relu ? (float)(v > 0) : 1.0f - v * v));
    }
    return OK;
}
