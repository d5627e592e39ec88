/* The products of a linear layer. x is (rows, k), y (rows, n), the weight (n, k). */
#include "kernels/cpu/product.h"

static Product forward_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_ROWS,
        .k = call->attr.linear.k,
        .n = call->attr.linear.n,
        .in = IN(call, LINEAR, x)->dtype,
        .out = OUT(call, LINEAR, y)->dtype,
        .bias = operand_present(IN(call, LINEAR, bias)),
    };
}

/* dx = dy·w: the same product, from n to k. */
static Product dgrad_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_ROWS,
        .k = call->attr.linear.n,
        .n = call->attr.linear.k,
        .in = IN(call, LINEAR_DGRAD, dy)->dtype,
        .out = OUT(call, LINEAR_DGRAD, dx)->dtype,
        .add = operand_present(IN(call, LINEAR_DGRAD, add)),
    };
}

static Product wgrad_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_GRAD,
        .k = call->attr.linear.k,
        .n = call->attr.linear.n,
        .in = IN(call, LINEAR_WGRAD, x)->dtype,
        .out = F32,
    };
}

static Product product_of(const OpCall *call)
{
    switch (call->op) {
    case OP_LINEAR:
        return forward_of(call);
    case OP_LINEAR_DGRAD:
        return dgrad_of(call);
    default:
        return wgrad_of(call);
    }
}

typedef struct {
    float *parts; /* of db */
    void *product;
    CpuSpace space;
} LinearScratch;

static LinearScratch linear_scratch(const OpCall *call, const Product *p, int64_t n_rows)
{
    LinearScratch s = {.space.base = call->scratch};
    bool sums = p->kind == PRODUCT_GRAD && operand_present(OUT(call, LINEAR_WGRAD, db));
    s.parts = cpu_take_parts(&s.space, sums ? cpu_line((size_t)p->n * sizeof(float)) : 0);
    s.product = cpu_take(&s.space, product_scratch(p, n_rows, call->in[0].rows.kind != ROWS_TOKENS));
    return s;
}

size_t cpu_linear_scratch(const OpCall *call, const RowCounts *rows)
{
    Product p = product_of(call);
    return linear_scratch(call, &p, rows_in(call->in[0].rows, rows)).space.bytes;
}

Status cpu_linear_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    Product p = product_of(call);
    for (int i = 0; i < n_buckets; i++) TRY(product_prepare(&p, rows_in(call->in[0].rows, &buckets[i])));
    return OK;
}

Status cpu_linear(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, LINEAR, x);
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = forward_of(call);
    LinearScratch s = linear_scratch(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    return product_run(&p, n_rows, x->data, IN(call, LINEAR, w)->data, IN(call, LINEAR, bias)->data,
                       OUT(call, LINEAR, y)->data, s.product);
}

Status cpu_linear_dgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, LINEAR_DGRAD, dy);
    int64_t n_rows = rows_in(dy->rows, rows);
    Product p = dgrad_of(call);
    LinearScratch s = linear_scratch(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    return product_run(&p, n_rows, dy->data, IN(call, LINEAR_DGRAD, w)->data, NULL, OUT(call, LINEAR_DGRAD, dx)->data,
                       s.product);
}

Status cpu_linear_wgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, LINEAR_WGRAD, x), *dy = IN(call, LINEAR_WGRAD, dy), *db = OUT(call, LINEAR_WGRAD, db);
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = wgrad_of(call);
    LinearScratch s = linear_scratch(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    if (operand_present(db)) cpu_add_column_sums(db->data, dy->data, n_rows, p.n, cpu_is_bf16(dy->dtype), s.parts);
    return product_run(&p, n_rows, x->data, dy->data, NULL, OUT(call, LINEAR_WGRAD, dw)->data, s.product);
}
