/* DROPOUT, which is its own backward on dy. */
#include "kernels/ref/ref.h"

Status ref_dropout(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, DROPOUT, x), *y = OUT(call, DROPOUT, y);
    const int32_t *sequence = IN(call, DROPOUT, seq_index)->data, *pos = IN(call, DROPOUT, pos)->data; // (R)
    Dropout dropout = dropout_of(op_ctl(call), call->attr.dropout.dropout, call->attr.dropout.site);
    RefRows s = ref_rows(call);
    int64_t n = x->cols;
    for (int64_t r = 0; r < rows_in(x->rows, rows); r++) {
        const float *from = ref_read(x, r * n, n, s.x);
        dropout_row(s.factor, &dropout, pos ? (uint32_t)pos[r] : 0, (uint32_t)sequence[r], n);
        for (int64_t j = 0; j < n; j++) s.x[j] = from[j] * s.factor[j];
        ref_write(y, r * n, n, s.x);
    }
    return OK;
}
