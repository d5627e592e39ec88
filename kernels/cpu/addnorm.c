#include "kernels/cpu/cpu.h"

typedef struct {
    NormRows a;
    int64_t rows;
    char *rows_scratch;    /* per part: vec->norm_scratch */
    float *dgamma, *dbeta; /* per block: (H), backward only */
    float *db;             /* as cpu_take_db */
    size_t each, line;
    HostScratch space;
} AddnormWork;

static AddnormWork addnorm_work(const OpCall *call, int64_t rows, int64_t cols, bool backward)
{
    AddnormWork w = {.space.base = call->scratch, .rows = rows};
    w.each = cpu.vec->norm_scratch(cols);
    w.line = cpu_line((size_t)cols * sizeof(float));
    w.rows_scratch = cpu_take_parts(&w.space, w.each);
    w.dgamma = cpu_take_sums(&w.space, rows, backward ? w.line : 0);
    w.dbeta = cpu_take_sums(&w.space, rows, backward ? w.line : 0);
    if (backward) w.db = cpu_take_db(&w.space, OUT(call, ADDNORM_BWD, db), rows, cols);
    return w;
}

size_t cpu_addnorm_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *d = IN(call, ADDNORM, d);
    return addnorm_work(call, rows_in(d->rows, rows), d->cols, false).space.bytes;
}

size_t cpu_addnorm_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, ADDNORM_BWD, dy);
    return addnorm_work(call, rows_in(dy->rows, rows), dy->cols, true).space.bytes;
}

static void addnorm_common(const OpCall *call, NormRows *a, const Operand *x)
{
    a->gamma = IN_EITHER(call, ADDNORM, ADDNORM_BWD, gamma)->data;
    a->beta = IN_EITHER(call, ADDNORM, ADDNORM_BWD, beta)->data;
    a->pos = IN_EITHER(call, ADDNORM, ADDNORM_BWD, pos)->data;
    a->seq = IN_EITHER(call, ADDNORM, ADDNORM_BWD, seq)->data;
    a->cols = x->cols;
    a->eps = call->attr.norm.eps;
    a->bf16 = cpu_is_bf16(x->dtype);
    a->form_xhat = call->attr.norm.form == NORM_FORM_XHAT;
    a->dropout = dropout_of(op_ctl(call), call->attr.norm.dropout, call->attr.norm.site);
}

static void forward_part(void *arg, int part)
{
    const AddnormWork *w = arg;
    CpuSpan rows = cpu_span(w->rows, 1, part, cpu.threads);
    cpu.vec->norm_fwd(&w->a, rows.first, rows.end, w->rows_scratch + (size_t)part * w->each);
}

Status cpu_addnorm(const OpCall *call, const RowCounts *rows)
{
    const Operand *d = IN(call, ADDNORM, d), *x = IN(call, ADDNORM, x), *xhat = OUT(call, ADDNORM, xhat);
    AddnormWork w = addnorm_work(call, rows_in(d->rows, rows), d->cols, false);
    host_check_scratch(call, w.space.bytes);
    addnorm_common(call, &w.a, d);
    w.a.d = d->data;
    w.a.x = operand_present(x) ? x->data : NULL;
    w.a.y = OUT(call, ADDNORM, y)->data;
    w.a.xhat = w.a.form_xhat && operand_present(xhat) ? xhat->data : NULL;
    w.a.rstd = OUT(call, ADDNORM, rstd)->data;
    cpu_parallel(forward_part, &w);
    return OK;
}

static void backward_part(void *arg, int part)
{
    const AddnormWork *w = arg;
    CpuSpan mine = cpu_span(cpu_blocks(w->rows), 1, part, cpu.threads);
    for (int64_t b = mine.first; b < mine.end; b++) {
        CpuSpan rows = cpu_block(w->rows, b);
        NormRows a = w->a;
        a.dgamma = w->dgamma + (size_t)b * w->line / sizeof(float);
        a.dbeta = w->dbeta + (size_t)b * w->line / sizeof(float);
        memset(a.dgamma, 0, w->line);
        memset(a.dbeta, 0, w->line);
        cpu.vec->norm_bwd(&a, rows.first, rows.end, w->rows_scratch + (size_t)part * w->each);
    }
}

Status cpu_addnorm_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, ADDNORM_BWD, dy), *dx = OUT(call, ADDNORM_BWD, dx);
    AddnormWork w = addnorm_work(call, rows_in(dy->rows, rows), dy->cols, true);
    host_check_scratch(call, w.space.bytes);
    addnorm_common(call, &w.a, dy);
    w.a.kept = IN(call, ADDNORM_BWD, kept)->data;
    w.a.dy = dy->data;
    w.a.rstd = IN(call, ADDNORM_BWD, rstd)->data;
    w.a.dd = OUT(call, ADDNORM_BWD, dd)->data;
    w.a.dx = operand_present(dx) ? dx->data : NULL;
    cpu_parallel(backward_part, &w);
    host_begin(call, rows);
    int64_t stride = (int64_t)(w.line / sizeof(float));
    cpu_add_blocks(OUT(call, ADDNORM_BWD, dgamma)->data, w.dgamma, w.rows, stride, dy->cols);
    cpu_add_blocks(OUT(call, ADDNORM_BWD, dbeta)->data, w.dbeta, w.rows, stride, dy->cols);
    cpu_add_db(OUT(call, ADDNORM_BWD, db), OUT(call, ADDNORM_BWD, dd), w.rows, w.db);
    return OK;
}

/* ---- AFFINE ---- */

typedef struct {
    const Operand *y, *xhat;
    const float *gamma, *beta; // (H)
    int64_t rows;
} AffineWork;

static void affine_part(void *arg, int part)
{
    const AffineWork *a = arg;
    CpuSpan rows = cpu_span(a->rows, 1, part, cpu.threads);
    cpu.vec->affine(host_row(a->y, rows.first), host_row(a->xhat, rows.first), a->gamma, a->beta, rows.end - rows.first,
                    a->y->cols, cpu_is_bf16(a->y->dtype));
}

Status cpu_affine(const OpCall *call, const RowCounts *rows)
{
    AffineWork a = {.y = OUT(call, AFFINE, y), .xhat = IN(call, AFFINE, xhat)};
    a.gamma = IN(call, AFFINE, gamma)->data;
    a.beta = IN(call, AFFINE, beta)->data;
    a.rows = rows_in(a.y->rows, rows);
    cpu_parallel(affine_part, &a);
    return OK;
}
