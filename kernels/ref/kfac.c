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

static int64_t larger_side(const OpCall *call)
{
    return call->attr.kfac.k > call->attr.kfac.n ? call->attr.kfac.k : call->attr.kfac.n;
}

size_t ref_invert_scratch(const OpCall *call, const RowCounts *rows)
{
    int64_t n = larger_side(call);
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

/* to = (sums·scale + gamma·I)⁻¹; `to` may be `sums`. */
static bool invert(const float *sums, int64_t n, double scale, double gamma, double *scratch, float *to)
{
    for (int tried = 0; tried < KFAC_TRIES; tried++, gamma *= 10) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++)
                scratch[i * n + j] = (double)sums[j * n + i] * scale + (i == j ? gamma : 0);
        if (!cholesky(scratch, n)) continue;
        invert_from(scratch, scratch + n * n, n, to);
        return true;
    }
    return false;
}

Status ref_invert(const OpCall *call, const RowCounts *rows)
{
    const float *sums = kfac_sums_of_a(call);
    float *a = OUT(call, INVERT, a)->data, *b = OUT(call, INVERT, b)->data, *ready = OUT(call, INVERT, ready)->data;
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    double scale[2], gamma[2];
    host_check_scratch(call, ref_invert_scratch(call, rows));
    kfac_scales(call, scale);
    bool good = kfac_damping(call, kfac_trace(sums, k, scale[0]), kfac_trace(b, n, scale[1]), gamma);
    good = good && invert(sums, k, scale[0], gamma[0], call->scratch, a);
    *ready = good && invert(b, n, scale[1], gamma[1], call->scratch, b);
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
