/* K-FAC. Statistics are products as those of weight gradients. Inverses and preconditioned gradients are products of
   our own tiles in fp32: an element's sum has one order, so no bit depends on the number of threads. */
#include "kernels/kfac.h"
#include "kernels/cpu/product.h"

/* ---- CURVATURE ---- */

typedef struct {
    void *columns; // (rows, n): those of x that the factor is of; NULL: all of them
    void *product;
    HostScratch space;
} CurvatureScratch;

static CurvatureScratch curvature_scratch(const OpCall *call, const Product *p, int64_t n_rows)
{
    CurvatureScratch s = {.space.base = call->scratch};
    const Operand *x = IN(call, CURVATURE, x);
    if (p->n != x->cols) s.columns = host_take(&s.space, n_rows * p->n, dtype_size(x->dtype));
    s.product = host_take(&s.space, 1, product_scratch(p, n_rows, true));
    return s;
}

size_t cpu_curvature_scratch(const OpCall *call, const RowCounts *rows)
{
    Product p = product_of(call);
    return curvature_scratch(call, &p, rows_in(call->in[0].rows, rows)).space.bytes;
}

typedef struct {
    const OpCall *call;
    char *to;
    int64_t rows;
} ColumnsCopy;

static void copy_part(void *arg, int part)
{
    const ColumnsCopy *c = arg;
    const Operand *x = IN(c->call, CURVATURE, x);
    size_t size = dtype_size(x->dtype), bytes = (size_t)c->call->attr.curvature.n * size;
    CpuSpan mine = cpu_span(c->rows, 1, part, cpu.threads);
    for (int64_t r = mine.first; r < mine.end; r++)
        memcpy(c->to + (size_t)r * bytes, (char *)host_row(x, r) + (size_t)c->call->attr.curvature.first * size, bytes);
}

Status cpu_curvature(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, CURVATURE, x);
    int64_t real = host_real_rows(x, rows, op_ctl(call));
    Product p = product_of(call);
    if (op_ctl(call)->kfac_tokens == 0 || real == 0) return OK;
    CurvatureScratch s = curvature_scratch(call, &p, rows_in(x->rows, rows));
    host_check_scratch(call, s.space.bytes);
    if (s.columns) cpu_parallel(copy_part, &(ColumnsCopy){call, s.columns, real});
    const void *from = s.columns ? s.columns : x->data;
    return product_run(&p, real, from, from, NULL, OUT(call, CURVATURE, factor)->data, s.product);
}

/* ---- to (rows, columns) += leftᵀ·right over their rows, in pieces of our own tiles ---- */

#define PIECE_ROWS    192
#define PIECE_COLUMNS 384

typedef struct {
    GradProduct of;
    bool upper; /* pieces of rows begin at the diagonal */
    char *scratch;
} PiecedProduct;

static size_t pieces_scratch(void) { return cpu_line(cpu.vec->grad_scratch()); }

static void pieces_part(void *arg, int part)
{
    const PiecedProduct *p = arg;
    int64_t turn = 0;
    for (int64_t n = 0; n < p->of.n; n += PIECE_ROWS)
        for (int64_t k = p->upper ? n : 0; k < p->of.k; k += PIECE_COLUMNS) {
            int64_t k_end = k + PIECE_COLUMNS < p->of.k ? k + PIECE_COLUMNS : p->of.k;
            int64_t n_end = n + PIECE_ROWS < p->of.n ? n + PIECE_ROWS : p->of.n;
            if (turn++ % cpu.threads != part) continue;
            cpu.vec->grad_product(&p->of, n, n_end, k, k_end, p->scratch + (size_t)part * pieces_scratch());
        }
}

/* left (rows, n), right (rows, k), to (n, k). */
static void add_product(const float *left, int64_t n, const float *right, int64_t k, int64_t rows, bool upper,
                        float *to, char *scratch)
{
    PiecedProduct p = {{.x = right, .dy = left, .dw = to, .rows = rows, .k = k, .n = n}, upper, scratch};
    cpu_parallel(pieces_part, &p);
}

/* ---- INVERT: the symmetric sweep operator (Goodnight, 1979), block by block, in the upper triangle ---- */

#define BLOCK 128
#define INNER 32 /* rows of a block that are solved one by one; a product takes them out of the others */

typedef struct {
    float *m;           // (n, n)
    float *w, *minus_w; // (BLOCK, n): rows of the block, then R⁻ᵀ times them, and its negative
    float *z;           // (BLOCK, n): the block's inverse times its rows
    float *pivot;       // (BLOCK, BLOCK): R
    float *minus_pivot; // (BLOCK, BLOCK): −R, and Rᵀ's negative behind it
    char *pieces;
    HostScratch space;
} InvertScratch;

static InvertScratch invert_scratch(const OpCall *call)
{
    InvertScratch s = {.space.base = call->scratch};
    int64_t n = op_inverse_side(call);
    s.m = host_take(&s.space, n * n, sizeof(float));
    s.w = host_take(&s.space, BLOCK * n, sizeof(float));
    s.minus_w = host_take(&s.space, BLOCK * n, sizeof(float));
    s.z = host_take(&s.space, BLOCK * n, sizeof(float));
    s.pivot = host_take(&s.space, BLOCK * BLOCK, sizeof(float));
    s.minus_pivot = host_take(&s.space, 2 * BLOCK * BLOCK, sizeof(float));
    s.pieces = cpu_take_parts(&s.space, pieces_scratch());
    return s;
}

size_t cpu_invert_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return invert_scratch(call).space.bytes;
}

typedef struct {
    const InvertScratch *s;
    const float *sums;
    float *to;
    int64_t n, first, size; /* of the block */
    float scale, gamma;
} BlockSweep;

/* m = sums·scale + gamma·I */
static void damp_part(void *arg, int part)
{
    const BlockSweep *w = arg;
    CpuSpan mine = cpu_span(w->n, 1, part, cpu.threads);
    for (int64_t i = mine.first; i < mine.end; i++) {
        const float *from = w->sums + i * w->n;
        float *to = w->s->m + i * w->n;
        for (int64_t j = i; j < w->n; j++) to[j] = from[j] * w->scale;
        to[i] += w->gamma;
    }
}

/* pivot = R, upper, with Rᵀ·R the block. False: a pivot is not positive. */
static bool factor_pivot(const BlockSweep *w)
{
    float(*factor)[BLOCK] = (float(*)[BLOCK])(void *)w->s->pivot;
    for (int64_t r = 0; r < w->size; r++)
        for (int64_t j = r; j < w->size; j++) factor[r][j] = w->s->m[(w->first + r) * w->n + w->first + j];
    for (int64_t r = 0; r < w->size; r++) {
        float *row = factor[r], d = row[r];
        if (!(d > 0) || !isfinite(d)) return false;
        d = sqrtf(d);
        for (int64_t j = r; j < w->size; j++) row[j] /= d;
        for (int64_t i = r + 1; i < w->size; i++) cpu.vec->descend(factor[i] + i, row + i, row[i], w->size - i);
    }
    float(*minus)[BLOCK] = (float(*)[BLOCK])(void *)w->s->minus_pivot, (*transposed)[BLOCK] = minus + BLOCK;
    for (int64_t r = 0; r < w->size; r++)
        for (int64_t j = r + 1; j < w->size; j++) minus[r][j] = transposed[j][r] = -factor[r][j];
    return true;
}

/* Where the element of the block's row r and column j lies in m. */
static inline float *row_element(const BlockSweep *w, int64_t r, int64_t j)
{
    int64_t row = w->first + r;
    return &w->s->m[j < row ? j * w->n + row : row * w->n + j];
}

#define STRIP 16 /* columns that are moved together: a cache line */

/* w = the block's rows of m, with an identity in its own columns. */
static void take_rows(const BlockSweep *w, CpuSpan mine)
{
    for (int64_t j = mine.first; j < mine.end; j += STRIP)
        for (int64_t r = 0; r < BLOCK; r++)
            for (int64_t c = j; c < j + STRIP && c < mine.end; c++) {
                bool own = c >= w->first && c < w->first + w->size;
                w->s->w[r * w->n + c] = r >= w->size ? 0 : own ? (float)(c - w->first == r) : *row_element(w, r, c);
            }
}

static void divide(float *x, float d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] /= d;
}

#define CHUNK 256 /* columns that are solved together: half a second-level cache */

/* to[first_row, end_row) += minusᵀ·to[row, row + rows) in these columns; `minus` (BLOCK, BLOCK). */
static void take_out(const BlockSweep *w, const float *minus, float *to, int64_t row, int64_t rows, CpuSpan to_rows,
                     CpuSpan columns, int part)
{
    GradProduct p = {.x = to + row * w->n, .dy = minus + row * BLOCK, .dw = to, .rows = rows, .k = w->n, .n = BLOCK};
    if (to_rows.first < to_rows.end)
        cpu.vec->grad_product(&p, to_rows.first, to_rows.end, columns.first, columns.end,
                              w->s->pieces + (size_t)part * pieces_scratch());
}

/* w = R⁻ᵀ·w, z = R⁻¹·w, by substitution: products with inverses of R or of the block would square the matrix's
   condition in the error. */
static void solve_columns(const BlockSweep *w, CpuSpan columns, int part)
{
    const float(*factor)[BLOCK] = (const float(*)[BLOCK])(void *)w->s->pivot;
    const float *minus = w->s->minus_pivot, *transposed = minus + BLOCK * BLOCK;
    float *y = w->s->w + columns.first, *minus_y = w->s->minus_w + columns.first, *z = w->s->z + columns.first;
    int64_t count = columns.end - columns.first, last = w->size - 1;
    for (int64_t in = 0; in < w->size; in += INNER) {
        int64_t end = in + INNER < w->size ? in + INNER : w->size;
        for (int64_t r = in; r < end; r++) {
            divide(y + r * w->n, factor[r][r], count);
            for (int64_t i = r + 1; i < end; i++) cpu.vec->descend(y + i * w->n, y + r * w->n, factor[r][i], count);
        }
        take_out(w, minus, w->s->w, in, end - in, (CpuSpan){end, w->size}, columns, part);
    }
    for (int64_t r = 0; r < BLOCK; r++) {
        memcpy(z + r * w->n, y + r * w->n, (size_t)count * sizeof *z);
        for (int64_t c = 0; c < count; c++) minus_y[r * w->n + c] = -y[r * w->n + c];
    }
    for (int64_t in = last / INNER * INNER; in >= 0; in -= INNER) {
        int64_t end = in + INNER < w->size ? in + INNER : w->size;
        for (int64_t r = end - 1; r >= in; r--) {
            for (int64_t i = r + 1; i < end; i++) cpu.vec->descend(z + r * w->n, z + i * w->n, factor[r][i], count);
            divide(z + r * w->n, factor[r][r], count);
        }
        take_out(w, transposed, w->s->z, in, end - in, (CpuSpan){0, in}, columns, part);
    }
}

static void solve_part(void *arg, int part)
{
    const BlockSweep *w = arg;
    CpuSpan mine = cpu_span(w->n, STRIP, part, cpu.threads);
    take_rows(w, mine);
    for (int64_t j = mine.first; j < mine.end; j += CHUNK)
        solve_columns(w, (CpuSpan){j, mine.end - j < CHUNK ? mine.end : j + CHUNK}, part);
}

/* The block's rows of m become z, negative in its own columns, where z is the block's inverse. */
static void put_rows_part(void *arg, int part)
{
    const BlockSweep *w = arg;
    CpuSpan mine = cpu_span(w->n, STRIP, part, cpu.threads);
    for (int64_t j = mine.first; j < mine.end; j += STRIP)
        for (int64_t r = 0; r < w->size; r++)
            for (int64_t c = j; c < j + STRIP && c < mine.end; c++) {
                bool own = c >= w->first && c < w->first + w->size;
                if (own && c < w->first + r) continue;
                *row_element(w, r, c) = own ? -w->s->z[r * w->n + c] : w->s->z[r * w->n + c];
            }
}

/* to = −m, both triangles. */
static void mirror_part(void *arg, int part)
{
    const BlockSweep *w = arg;
    enum { SIDE = 32 };
    CpuSpan mine = cpu_span(w->n, SIDE, part, cpu.threads);
    for (int64_t i = mine.first; i < mine.end; i += SIDE)
        for (int64_t j = 0; j < w->n; j += SIDE)
            for (int64_t r = i; r < i + SIDE && r < mine.end; r++)
                for (int64_t c = j; c < j + SIDE && c < w->n; c++)
                    w->to[r * w->n + c] = -(r <= c ? w->s->m[r * w->n + c] : w->s->m[c * w->n + r]);
}

static bool invert(const void *scratch, const float *sums, int64_t n, double scale, double gamma, float *to)
{
    const InvertScratch *s = scratch;
    BlockSweep w = {.s = s, .sums = sums, .to = to, .n = n, .scale = (float)scale, .gamma = (float)gamma};
    cpu_parallel(damp_part, &w);
    for (; w.first < n; w.first += BLOCK) {
        w.size = n - w.first < BLOCK ? n - w.first : BLOCK;
        if (!factor_pivot(&w)) return false;
        cpu_parallel(solve_part, &w);
        add_product(s->minus_w, n, s->w, n, BLOCK, true, s->m, s->pieces);
        cpu_parallel(put_rows_part, &w);
    }
    cpu_parallel(mirror_part, &w);
    return true;
}

Status cpu_invert(const OpCall *call, const RowCounts *rows)
{
    InvertScratch s = invert_scratch(call);
    (void)rows;
    host_check_scratch(call, s.space.bytes);
    kfac_invert(call, invert, &s);
    return OK;
}

/* ---- PRECONDITION ---- */

typedef struct {
    float *half; // (k, n): (b_inv·dw)ᵀ
    float *bias; // (n)
    char *pieces;
    HostScratch space;
} PreconditionScratch;

static PreconditionScratch precondition_scratch(const OpCall *call)
{
    PreconditionScratch s = {.space.base = call->scratch};
    s.half = host_take(&s.space, call->attr.kfac.k * call->attr.kfac.n, sizeof(float));
    s.bias = host_take(&s.space, call->attr.kfac.n, sizeof(float));
    s.pieces = cpu_take_parts(&s.space, pieces_scratch());
    return s;
}

size_t cpu_precondition_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return precondition_scratch(call).space.bytes;
}

Status cpu_precondition(const OpCall *call, const RowCounts *rows)
{
    const float *a = IN(call, PRECONDITION, a_inv)->data, *b = IN(call, PRECONDITION, b_inv)->data;
    const Operand *bias = OUT(call, PRECONDITION, db);
    float *dw = OUT(call, PRECONDITION, dw)->data, *db = operand_present(bias) ? bias->data : NULL;
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    size_t bytes = (size_t)(n * k) * sizeof(float);
    PreconditionScratch s = precondition_scratch(call);
    (void)rows;
    if (*(const float *)IN(call, PRECONDITION, has)->data == 0) return OK;
    host_check_scratch(call, s.space.bytes);
    memset(s.half, 0, bytes);
    add_product(dw, k, b, n, n, false, s.half, s.pieces);
    memset(dw, 0, bytes);
    add_product(s.half, n, a, k, k, false, dw, s.pieces);
    if (!db) return OK;
    memset(s.bias, 0, (size_t)n * sizeof *s.bias);
    add_product(db, 1, b, n, n, false, s.bias, s.pieces);
    memcpy(db, s.bias, (size_t)n * sizeof *s.bias);
    return OK;
}
