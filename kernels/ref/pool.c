/* A vector for each sequence: the mean of its rows, or its first row alone, as it is or of length 1. */
#include "kernels/ref/ref.h"

#define SHORTEST 1e-12 /* a vector's length counts as this at least */

typedef struct {
    int64_t first, n;
} PooledRows;

/* The rows of x, of `rows`, that sequence s is made from. POOL and POOL_BWD end with the same operands. */
static PooledRows pooled_rows(const OpCall *call, const Operand *spans, const Operand *first, int64_t s, int64_t rows)
{
    const char *op = op_info(call->op)->name;
    if (operand_present(first)) return (PooledRows){ref_index(first, s, rows, op), 1};
    const int32_t *span = (const int32_t *)spans->data + 2 * s; // (S, 2)
    CHECK(span[0] >= 0 && span[0] < span[1] && span[1] <= rows, "%s: sequence %lld has rows %d to %d of %lld", op,
          (long long)s, span[0], span[1], (long long)rows);
    return (PooledRows){span[0], span[1] - span[0]};
}

/* Sums are double, over rows in their order. */
Status ref_pool(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, POOL, x), *y = OUT(call, POOL, y), *inverse = OUT(call, POOL, inverse);
    int64_t cols = x->cols, real = host_real_rows(y, rows, op_ctl(call)), all = rows_in(y->rows, rows);
    float *buffer = ref_rows(call).x;
    double *sums = ref_rows(call).dgamma;
    for (int64_t s = 0; s < real; s++) {
        PooledRows of = pooled_rows(call, IN(call, POOL, spans), IN(call, POOL, first), s, rows_in(x->rows, rows));
        float *to = host_row(y, s);
        double squares = 0, length = 1;
        for (int64_t i = 0; i < of.n; i++) {
            const float *row = ref_read(x, (of.first + i) * cols, cols, buffer);
            for (int64_t j = 0; j < cols; j++) sums[j] = (i > 0 ? sums[j] : 0) + (double)row[j];
        }
        for (int64_t j = 0; j < cols; j++) {
            sums[j] /= (double)of.n;
            squares += sums[j] * sums[j];
        }
        if (call->attr.pool.normalize) length = sqrt(squares);
        if (length < SHORTEST) length = SHORTEST;
        for (int64_t j = 0; j < cols; j++) to[j] = (float)(sums[j] / length);
        ((float *)inverse->data)[s] = (float)(1 / length);
    }
    host_clear_rows(y, real, all);
    host_clear_rows(inverse, real, all);
    return OK;
}

/* dx = (dy − y·(y·dy))·inverse / n in each of a sequence's n rows; without `normalize` dy / n. */
Status ref_pool_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, POOL_BWD, dy), *dx = OUT(call, POOL_BWD, dx);
    int64_t cols = dy->cols, real = host_real_rows(dy, rows, op_ctl(call)), all = rows_in(dx->rows, rows);
    float *own = ref_rows(call).x;
    host_clear_rows(dx, 0, all);
    for (int64_t s = 0; s < real; s++) {
        PooledRows of = pooled_rows(call, IN(call, POOL_BWD, spans), IN(call, POOL_BWD, first), s, all);
        const float *g = host_row(dy, s), *y = host_row(IN(call, POOL_BWD, y), s);
        double inverse = (double)((const float *)IN(call, POOL_BWD, inverse)->data)[s] / (double)of.n, along = 0;
        for (int64_t j = 0; call->attr.pool.normalize && j < cols; j++) along += (double)y[j] * (double)g[j];
        for (int64_t j = 0; j < cols; j++) own[j] = (float)(((double)g[j] - (double)y[j] * along) * inverse);
        ref_write(dx, of.first * cols, cols, own);
        for (int64_t i = 1; i < of.n; i++)
            memcpy(host_row(dx, of.first + i), host_row(dx, of.first), (size_t)cols * dtype_size(dx->dtype));
    }
    return OK;
}
