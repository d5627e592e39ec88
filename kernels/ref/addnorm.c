/* Residual, dropout and LayerNorm in one: s = dropout(d) + x, xhat = (s − mean)·rstd, y = γ·xhat + β. Form Y keeps the
   stored y, and backward takes xhat = (y − β)/γ from it; form XHAT keeps xhat, and y is made from the stored xhat. */
#include "kernels/ref/ref.h"

float ref_normalise(float *s, int64_t n, float eps)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++) sum += s[j];
    double mean = sum / (double)n;
    for (int64_t j = 0; j < n; j++) squares += (s[j] - mean) * (s[j] - mean);
    float rstd = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
    for (int64_t j = 0; j < n; j++) s[j] = (float)((s[j] - mean) * (double)rstd);
    return rstd;
}

void ref_normalise_bwd(float *ds, const float *dy, const float *xhat, float rstd, const float *gamma, int64_t n)
{
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < n; j++) {
        ds[j] = dy[j] * gamma[j];
        sum += ds[j];
        dot += (double)ds[j] * (double)xhat[j];
    }
    double mean = sum / (double)n, mean_dot = dot / (double)n;
    for (int64_t j = 0; j < n; j++) ds[j] = (float)((double)rstd * (ds[j] - mean - xhat[j] * mean_dot));
}

Status ref_addnorm(const OpCall *call, const RowCounts *rows)
{
    const Operand *d = IN(call, ADDNORM, d), *x = IN(call, ADDNORM, x);
    const float *gamma = IN(call, ADDNORM, gamma)->data, *beta = IN(call, ADDNORM, beta)->data;       // (H)
    const int32_t *position = IN(call, ADDNORM, pos)->data, *sequence = IN(call, ADDNORM, seq)->data; // (T)
    const Operand *y = OUT(call, ADDNORM, y), *xhat = OUT(call, ADDNORM, xhat);
    float *rstd = OUT(call, ADDNORM, rstd)->data; // (T)
    Dropout dropout = dropout_of(op_ctl(call), call->attr.norm.dropout, call->attr.norm.site);
    bool from_xhat = call->attr.norm.form == NORM_FORM_XHAT;
    RefRows s = ref_rows(call);
    int64_t n = d->cols;
    for (int64_t r = 0; r < rows_in(d->rows, rows); r++) {
        dropout_row(s.factor, &dropout, (uint32_t)position[r], (uint32_t)sequence[r], n);
        const float *from = ref_read(d, r * n, n, s.buffer);
        for (int64_t j = 0; j < n; j++) s.x[j] = from[j] * s.factor[j];
        if (operand_present(x)) {
            const float *residual = ref_read(x, r * n, n, s.buffer);
            for (int64_t j = 0; j < n; j++) s.x[j] += residual[j];
        }
        rstd[r] = ref_normalise(s.x, n, call->attr.norm.eps);
        if (from_xhat) {
            for (int64_t j = 0; j < n; j++) s.x[j] = ref_rounded(y->dtype, s.x[j]);
            if (operand_present(xhat)) ref_write(xhat, r * n, n, s.x);
        }
        for (int64_t j = 0; j < n; j++) s.x[j] = gamma[j] * s.x[j] + beta[j];
        ref_write(y, r * n, n, s.x);
    }
    return OK;
}

Status ref_affine(const OpCall *call, const RowCounts *rows)
{
    const Operand *xhat = IN(call, AFFINE, xhat), *y = OUT(call, AFFINE, y);
    const float *gamma = IN(call, AFFINE, gamma)->data, *beta = IN(call, AFFINE, beta)->data; // (H)
    int64_t n = xhat->cols;
    for (int64_t r = 0; r < rows_in(xhat->rows, rows); r++)
        for (int64_t j = 0; j < n; j++) ref_store(y, r * n + j, gamma[j] * ref_load(xhat, r * n + j) + beta[j]);
    return OK;
}

/* ds is the gradient of s: dx is ds, dd is ds with the dropout applied again, each rounded from fp32. */
Status ref_addnorm_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *kept = IN(call, ADDNORM_BWD, kept), *dy = IN(call, ADDNORM_BWD, dy);
    const float *gamma = IN(call, ADDNORM_BWD, gamma)->data, *beta = IN(call, ADDNORM_BWD, beta)->data;       // (H)
    const float *rstd = IN(call, ADDNORM_BWD, rstd)->data;                                                    // (T)
    const int32_t *position = IN(call, ADDNORM_BWD, pos)->data, *sequence = IN(call, ADDNORM_BWD, seq)->data; // (T)
    const Operand *dd = OUT(call, ADDNORM_BWD, dd), *dx = OUT(call, ADDNORM_BWD, dx);
    float *dgamma = OUT(call, ADDNORM_BWD, dgamma)->data, *dbeta = OUT(call, ADDNORM_BWD, dbeta)->data; // (H)
    Dropout dropout = dropout_of(op_ctl(call), call->attr.norm.dropout, call->attr.norm.site);
    RefRows s = ref_rows(call);
    int64_t n = dy->cols;
    for (int64_t r = 0; r < rows_in(dy->rows, rows); r++) {
        const float *g = ref_read(dy, r * n, n, s.buffer), *stored = ref_read(kept, r * n, n, s.x), *xhat = stored;
        if (call->attr.norm.form == NORM_FORM_Y) {
            for (int64_t j = 0; j < n; j++) s.x[j] = (stored[j] - beta[j]) / gamma[j];
            xhat = s.x;
        }
        for (int64_t j = 0; j < n; j++) {
            s.dgamma[j] += (double)g[j] * (double)xhat[j];
            s.dbeta[j] += g[j];
        }
        ref_normalise_bwd(s.ds, g, xhat, rstd[r], gamma, n);
        dropout_row(s.factor, &dropout, (uint32_t)position[r], (uint32_t)sequence[r], n);
        if (operand_present(dx)) ref_write(dx, r * n, n, s.ds);
        for (int64_t j = 0; j < n; j++) s.ds[j] *= s.factor[j];
        ref_write(dd, r * n, n, s.ds);
    }
    host_begin(call, rows);
    ref_add_sums(dgamma, s.dgamma, n);
    ref_add_sums(dbeta, s.dbeta, n);
    ref_add_columns(OUT(call, ADDNORM_BWD, db), dd, rows_in(dd->rows, rows));
    return OK;
}
