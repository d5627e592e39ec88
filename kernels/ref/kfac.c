/* K-FAC. Inverses and preconditioned gradients are computed in double and rounded once. */
#include "kernels/kfac.h"
#include "kernels/ref/ref.h"

/* ---- CURVATURE ---- */

size_t ref_curvature_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return (size_t)call->attr.curvature.n * sizeof(float);
}

Status ref_curvature(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, CURVATURE, x);
    float *factor = OUT(call, CURVATURE, factor)->data;
    int64_t n = call->attr.curvature.n;
    if (op_ctl(call)->kfac_tokens == 0) return OK;
    host_check_scratch(call, ref_curvature_scratch(call, rows));
    for (int64_t r = 0; r < host_real_rows(x, rows, op_ctl(call)); r++) {
        const float *row = ref_read(x, r * x->cols + call->attr.curvature.first, n, call->scratch);
        for (int64_t i = 0; i < n; i++) ref_axpy(factor + i * n, row[i], row, n);
    }
    return OK;
}

/* ---- INVERT ---- */

size_t ref_invert_scratch(const OpCall *call, const RowCounts *rows)
{
    int64_t n = op_inverse_side(call);
    (void)rows;
    return (size_t)(n * n + n) * sizeof(double);
}

/* The lower triangle of m (n, n) becomes L with L·Lᵀ = m. False: a pivot is not positive. */
static bool cholesky(double *m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double d = m[j * n + j];
        for (int64_t p = 0; p < j; p++) d -= m[j * n + p] * m[j * n + p];
        if (!(d > 0) || !isfinite(d)) return false;
        m[j * n + j] = sqrt(d);
        for (int64_t i = j + 1; i < n; i++) {
            double s = m[i * n + j];
            for (int64_t p = 0; p < j; p++) s -= m[i * n + p] * m[j * n + p];
            m[i * n + j] = s / m[j * n + j];
        }
    }
    return true;
}

/* to = (L·Lᵀ)⁻¹, column by column. */
static void invert_from(const double *l, double *column, int64_t n, float *to)
{
    for (int64_t c = 0; c < n; c++) {
        for (int64_t i = 0; i < n; i++) {
            double s = i == c;
            for (int64_t p = c; p < i; p++) s -= l[i * n + p] * column[p];
            column[i] = i < c ? 0 : s / l[i * n + i];
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            double s = column[i];
            for (int64_t p = i + 1; p < n; p++) s -= l[p * n + i] * column[p];
            column[i] = s / l[i * n + i];
            if (i >= c) to[i * n + c] = to[c * n + i] = (float)column[i];
        }
    }
}

static bool invert(const void *space, const float *sums, int64_t n, double scale, double gamma, float *to)
{
    double *l = (double *)(uintptr_t)space;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) l[i * n + j] = (double)sums[j * n + i] * scale + (i == j ? gamma : 0);
    if (!cholesky(l, n)) return false;
    invert_from(l, l + n * n, n, to);
    return true;
}

Status ref_invert(const OpCall *call, const RowCounts *rows)
{
    host_check_scratch(call, ref_invert_scratch(call, rows));
    kfac_invert(call, invert, call->scratch);
    return OK;
}

/* ---- ADOPT ---- */

static void copy_values(const Operand *to, const Operand *from, const RowCounts *rows)
{
    memcpy(to->data, from->data, (size_t)(rows_in(to->rows, rows) * to->cols) * sizeof(float));
}

Status ref_adopt(const OpCall *call, const RowCounts *rows)
{
    if (*(const float *)IN(call, ADOPT, ready)->data == 0) return OK;
    copy_values(OUT(call, ADOPT, a_inv), IN(call, ADOPT, a), rows);
    copy_values(OUT(call, ADOPT, b_inv), IN(call, ADOPT, b), rows);
    *(float *)OUT(call, ADOPT, has)->data = 1;
    return OK;
}

/* ---- PRECONDITION ---- */

size_t ref_precondition_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return (size_t)(call->attr.kfac.k * call->attr.kfac.n + call->attr.kfac.n) * sizeof(double);
}

Status ref_precondition(const OpCall *call, const RowCounts *rows)
{
    const float *a = IN(call, PRECONDITION, a_inv)->data, *b = IN(call, PRECONDITION, b_inv)->data;
    const Operand *bias = OUT(call, PRECONDITION, db);
    float *dw = OUT(call, PRECONDITION, dw)->data, *db = operand_present(bias) ? bias->data : NULL;
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    double *half = call->scratch, *of_bias = half + n * k; // (n, k): b_inv·dw; (n)
    if (*(const float *)IN(call, PRECONDITION, has)->data == 0) return OK;
    host_check_scratch(call, ref_precondition_scratch(call, rows));
    memset(half, 0, (size_t)(n * k + n) * sizeof *half);
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < n; p++) {
            for (int64_t j = 0; j < k; j++) half[i * k + j] += (double)b[i * n + p] * (double)dw[p * k + j];
            if (db) of_bias[i] += (double)b[i * n + p] * (double)db[p];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++) sum += half[i * k + p] * (double)a[p * k + j];
            dw[i * k + j] = (float)sum;
        }
    for (int64_t i = 0; db && i < n; i++) db[i] = (float)of_bias[i];
    return OK;
}
