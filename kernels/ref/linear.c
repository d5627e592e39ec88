/* Products. x is (rows, k), y (rows, n), the weight (n, k); copies as pack.c makes them. fp32 accumulation, bias added
   in fp32, one rounding. Each output row depends on its own input row only. */
#include "kernels/ref/ref.h"

#define BLOCK 16 /* rows widened to fp32 at a time */

typedef struct {
    float *x, *w, *y; // (BLOCK, depth), (depth), (BLOCK, columns); WGRAD: x and dy
    HostScratch space;
} LinearScratch;

static LinearScratch linear_scratch(const OpCall *call)
{
    LinearScratch s = {.space.base = call->scratch};
    bool dgrad = call->op == OP_LINEAR_DGRAD, wgrad = call->op == OP_LINEAR_WGRAD;
    int64_t depth = dgrad ? call->attr.linear.n : call->attr.linear.k;
    int64_t columns = dgrad ? call->attr.linear.k : call->attr.linear.n;
    s.x = host_take(&s.space, BLOCK * depth, sizeof(float));
    s.w = host_take(&s.space, wgrad ? 0 : depth, sizeof(float));
    s.y = host_take(&s.space, BLOCK * columns, sizeof(float));
    return s;
}

size_t ref_linear_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return linear_scratch(call).space.bytes;
}

/* ---- y = x·wᵀ (+ bias, or + y) ---- */

/* x (rows, k), w (n, k), y (rows, n), bias (n), which may be absent; `add`: the product is added to y. */
static void linear_product(const OpCall *call, const Operand *x, const Operand *w, const Operand *bias, bool add,
                           const Operand *y, int64_t rows, int64_t k, int64_t n)
{
    LinearScratch s = linear_scratch(call);
    host_check_scratch(call, s.space.bytes);
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t block = rows - first < BLOCK ? rows - first : BLOCK;
        const float *xs = ref_read(x, first * k, block * k, s.x);
        for (int64_t j = 0; j < n; j++) {
            const float *wj = ref_read(w, j * k, k, s.w);
            float shift = operand_present(bias) ? ref_load(bias, j) : 0.0f;
            for (int64_t r = 0; r < block; r++) s.y[r * n + j] = ref_dot(xs + r * k, wj, k) + shift;
        }
        if (add)
            for (int64_t i = 0; i < block * n; i++) s.y[i] += ref_load(y, first * n + i);
        ref_write(y, first * n, block * n, s.y);
    }
}

/* The GELU behind the product of a LINEAR with g, the GELU_BWD behind that of a LINEAR_DGRAD with pre. */
static OpCall gelu_of(const OpCall *linear)
{
    bool forward = linear->op == OP_LINEAR;
    OpCall c = {.op = forward ? OP_GELU : OP_GELU_BWD, .attr = {.gelu = {linear->attr.linear.gelu}}};
    if (forward) {
        *IN(&c, GELU, pre) = *OUT(linear, LINEAR, y);
        *OUT(&c, GELU, g) = *OUT(linear, LINEAR, g);
        return c;
    }
    *IN(&c, GELU_BWD, pre) = *IN(linear, LINEAR_DGRAD, pre);
    *IN(&c, GELU_BWD, dg) = *OUT(&c, GELU_BWD, dpre) = *OUT(linear, LINEAR_DGRAD, dx);
    *OUT(&c, GELU_BWD, g) = *OUT(linear, LINEAR_DGRAD, g);
    *OUT(&c, GELU_BWD, db) = *OUT(linear, LINEAR_DGRAD, db);
    c.begun = (uint8_t)(BEGINS(linear, LINEAR_DGRAD, db) << GELU_BWD_OUT_db);
    return c;
}

Status ref_linear(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, LINEAR, x);
    linear_product(call, x, IN(call, LINEAR, w), IN(call, LINEAR, bias), false, OUT(call, LINEAR, y),
                   rows_in(x->rows, rows), call->attr.linear.k, call->attr.linear.n);
    if (!operand_present(OUT(call, LINEAR, g))) return OK;
    OpCall gelu = gelu_of(call);
    return ref_gelu(&gelu, rows);
}

/* dx = dy·w: the same product with the transposed copy (k, n) */
Status ref_linear_dgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, LINEAR_DGRAD, dy);
    linear_product(call, dy, IN(call, LINEAR_DGRAD, w), &(Operand){0}, operand_present(IN(call, LINEAR_DGRAD, add)),
                   OUT(call, LINEAR_DGRAD, dx), rows_in(dy->rows, rows), call->attr.linear.n, call->attr.linear.k);
    if (!operand_present(IN(call, LINEAR_DGRAD, pre))) return OK;
    OpCall gelu = gelu_of(call);
    return ref_gelu_bwd(&gelu, rows);
}

/* ---- dw += dyᵀ·x, db += column sums of dy ---- */

Status ref_linear_wgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, LINEAR_WGRAD, x), *dy = IN(call, LINEAR_WGRAD, dy);
    float *dw = OUT(call, LINEAR_WGRAD, dw)->data; // (n, k)
    int64_t n_rows = rows_in(x->rows, rows), k = call->attr.linear.k, n = call->attr.linear.n;
    LinearScratch s = linear_scratch(call);
    host_check_scratch(call, s.space.bytes);
    host_begin(call, rows);
    for (int64_t first = 0; first < n_rows; first += BLOCK) {
        int64_t block = n_rows - first < BLOCK ? n_rows - first : BLOCK;
        const float *xs = ref_read(x, first * k, block * k, s.x);
        const float *dys = ref_read(dy, first * n, block * n, s.y);
        for (int64_t j = 0; j < n; j++)
            for (int64_t r = 0; r < block; r++) ref_axpy(dw + j * k, dys[r * n + j], xs + r * k, k);
    }
    ref_add_columns(OUT(call, LINEAR_WGRAD, db), dy, n_rows);
    return OK;
}
