#include "kernels/ref/ref.h"

static void copy_row(const Operand *to, int64_t to_row, const Operand *from, int64_t from_row)
{
    for (int64_t j = 0; j < to->cols; j++)
        ref_store(to, to_row * to->cols + j, ref_load(from, from_row * from->cols + j));
}

/* y[i] = x[index[i]]; rows beyond the real count are 0 */
Status ref_gather(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, GATHER, x), *index = IN(call, GATHER, index), *y = OUT(call, GATHER, y);
    int64_t real = host_real_rows(y, rows, op_ctl(call)), n_x = rows_in(x->rows, rows);
    for (int64_t i = 0; i < real; i++) copy_row(y, i, x, ref_index(index, i, n_x, "gather: index"));
    host_clear_rows(y, real, rows_in(y->rows, rows));
    return OK;
}

/* dx[index[i]] += dy[i], in the order of i, rounded at each addition; dx starts as `add`, or as 0 */
Status ref_scatter(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, SCATTER, dy), *index = IN(call, SCATTER, index), *add = IN(call, SCATTER, add);
    const Operand *dx = OUT(call, SCATTER, dx);
    int64_t n_x = rows_in(dx->rows, rows), real = host_real_rows(dy, rows, op_ctl(call));
    if (!operand_present(add)) host_clear_rows(dx, 0, n_x);
    for (int64_t i = 0; i < real; i++) {
        int64_t to = ref_index(index, i, n_x, "scatter: index") * dx->cols, from = i * dy->cols;
        for (int64_t j = 0; j < dx->cols; j++) ref_store(dx, to + j, ref_load(dx, to + j) + ref_load(dy, from + j));
    }
    return OK;
}
