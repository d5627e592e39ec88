#include "kernels/cpu/product.h"

#include "kernels/cpu/onednn.h"

/* Below this size in either direction (a classifier's labels) oneDNN's blocks are mostly padding. */
#define SMALL 16
/* Rows of a weight gradient that oneDNN takes come in multiples of this. */
#define GRAD_GRAIN 64

static bool by_onednn(ProductKind kind, Dtype in, int64_t k, int64_t n)
{
    if (k < SMALL || n < SMALL || cpu.products == PRODUCTS_OWN) return false;
    return cpu.products == PRODUCTS_ONEDNN ? onednn_can(kind, in) : onednn_serves(kind, in);
}

bool product_threads_matter(Dtype in)
{
    bool theirs = by_onednn(PRODUCT_ROWS, in, SMALL, SMALL) || by_onednn(PRODUCT_GRAD, in, SMALL, SMALL);
    return theirs && onednn_threads_matter();
}

size_t product_copy_bytes(Dtype compute, int64_t depth, int64_t columns)
{
    if (by_onednn(PRODUCT_ROWS, compute, depth, columns)) return onednn_copy_bytes(compute, depth, columns);
    return cpu.vec->weight_bytes(depth, columns, cpu_is_bf16(compute));
}

typedef struct {
    void *copy;
    const float *w;
    int64_t n, k, panels;
    bool transposed, bf16;
} ProductPacking;

static void pack_part(void *arg, int part)
{
    const ProductPacking *p = arg;
    CpuSpan panels = cpu_span(p->panels, 1, part, cpu.threads);
    cpu.vec->pack_weight(p->copy, p->w, p->n, p->k, p->transposed, p->bf16, panels.first, panels.end);
}

Status product_pack(void *copy, const float *w, int64_t n, int64_t k, bool transposed, Dtype compute)
{
    if (by_onednn(PRODUCT_ROWS, compute, k, n)) return onednn_pack(copy, w, n, k, transposed, compute);
    ProductPacking p = {copy, w, n, k, cpu.vec->weight_panels(transposed ? k : n), transposed, cpu_is_bf16(compute)};
    cpu_parallel(pack_part, &p);
    return OK;
}

/* The result is cut into down × across pieces, one per thread. */
typedef struct {
    int down, across;
} ProductGrid;

/* The pieces, one for each thread; down as long as a piece keeps `least` of `n`. */
static ProductGrid product_grid(int64_t n, int64_t least)
{
    int down = cpu.threads;
    while (down > 1 && (cpu.threads % down != 0 || n / down < least)) down--;
    return (ProductGrid){down, cpu.threads / down};
}

typedef struct {
    const Product *p;
    RowProduct rows;
    GradProduct grad;
    int64_t n_rows;
    ProductGrid grid;
    char *scratch;
    size_t scratch_each;
} ProductRun;

static void rows_part(void *arg, int part)
{
    const ProductRun *r = arg;
    CpuSpan rows = cpu_span(r->n_rows, 1, part / r->grid.across, r->grid.down);
    CpuSpan panels = cpu_span(cpu.vec->weight_panels(r->p->n), 1, part % r->grid.across, r->grid.across);
    cpu.vec->rows_product(&r->rows, rows.first, rows.end, panels.first, panels.end,
                          r->scratch + (size_t)part * r->scratch_each);
}

static void grad_part(void *arg, int part)
{
    const ProductRun *r = arg;
    CpuSpan k = cpu_span(r->p->k, 16, part / r->grid.across, r->grid.down);
    CpuSpan n = cpu_span(r->p->n, 1, part % r->grid.across, r->grid.across);
    cpu.vec->grad_product(&r->grad, n.first, n.end, k.first, k.end, r->scratch + (size_t)part * r->scratch_each);
}

static size_t scratch_each(const Product *p)
{
    return cpu_line(p->kind == PRODUCT_ROWS ? cpu.vec->rows_scratch(p->k, cpu_is_bf16(p->in))
                                            : cpu.vec->grad_scratch());
}

/* Rows that oneDNN multiplies, the first of `rows`: every piece of a weight gradient is a pass over all of it, so the
   last rows, fewer than the least number that oneDNN has a kernel for, are one piece of our own. */
static int64_t rows_by_onednn(const Product *p, int64_t rows)
{
    if (!by_onednn(p->kind, p->in, p->k, p->n)) return 0;
    return p->kind == PRODUCT_GRAD ? rows / GRAD_GRAIN * GRAD_GRAIN : rows;
}

size_t product_scratch(const Product *p, int64_t rows, bool any)
{
    int64_t theirs = rows_by_onednn(p, rows);
    size_t own = scratch_each(p) * (size_t)cpu.threads, other = 0;
    if (theirs) other = onednn_scratch(p, theirs, any && p->kind == PRODUCT_ROWS);
    if (theirs == rows && (!any || p->kind == PRODUCT_ROWS)) return other;
    return own > other ? own : other;
}

Status product_prepare(const Product *p, int64_t rows) { return onednn_prepare(p, rows_by_onednn(p, rows)); }

static Status run_own(const Product *p, int64_t rows, const void *a, const void *b, const float *bias, void *c,
                      void *scratch)
{
    ProductRun r = {.p = p, .n_rows = rows, .scratch = scratch, .scratch_each = scratch_each(p)};
    bool bf16 = cpu_is_bf16(p->in);
    CHECK(bf16 || p->out == F32, "a product of f32 gives f32, not %s", dtype_name(p->out));
    if (p->kind == PRODUCT_ROWS) {
        r.rows = (RowProduct){.x = a, .b = b, .bias = p->bias ? bias : NULL, .y = c, .k = p->k, .n = p->n};
        r.rows.x_bf16 = bf16;
        r.rows.y_bf16 = cpu_is_bf16(p->out);
        r.rows.add = p->add;
        r.grid = product_grid(rows, 48);
        cpu_parallel(rows_part, &r);
    } else {
        r.grad = (GradProduct){.x = a, .dy = b, .dw = c, .rows = rows, .k = p->k, .n = p->n, .bf16 = bf16};
        r.grid = product_grid(p->k, 768);
        cpu_parallel(grad_part, &r);
    }
    return OK;
}

Status product_run(const Product *p, int64_t rows, const void *a, const void *b, const float *bias, void *c,
                   void *scratch)
{
    int64_t theirs = rows_by_onednn(p, rows);
    size_t in = dtype_size(p->in);
    if (theirs) TRY(onednn_run(p, theirs, a, b, bias, c, scratch));
    if (theirs == rows) return OK;
    return run_own(p, rows - theirs, (const char *)a + (size_t)(theirs * p->k) * in,
                   (const char *)b + (p->kind == PRODUCT_GRAD ? (size_t)(theirs * p->n) * in : 0), bias, c, scratch);
}
