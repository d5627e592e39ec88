/* The products of a linear layer. x is (rows, k), y (rows, n), the weight (n, k). */
#include "kernels/cpu/product.h"

static Product forward_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_ROWS,
        .k = call->attr.linear.k,
        .n = call->attr.linear.n,
        .in = cpu_in(call, "x")->dtype,
        .out = cpu_out(call, "y")->dtype,
        .bias = operand_present(cpu_in(call, "bias")),
    };
}

/* dx = dy·w: the same product, from n to k. */
static Product dgrad_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_ROWS,
        .k = call->attr.linear.n,
        .n = call->attr.linear.k,
        .in = cpu_in(call, "dy")->dtype,
        .out = cpu_out(call, "dx")->dtype,
        .add = operand_present(cpu_in(call, "add")),
    };
}

static Product wgrad_of(const OpCall *call)
{
    return (Product){
        .kind = PRODUCT_GRAD,
        .k = call->attr.linear.k,
        .n = call->attr.linear.n,
        .in = cpu_in(call, "x")->dtype,
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
} Space;

static Space space_of(const OpCall *call, const Product *p, int64_t n_rows)
{
    Space s = {.space.base = call->scratch};
    bool sums = p->kind == PRODUCT_GRAD && operand_present(cpu_out(call, "db"));
    s.parts = cpu_take_parts(&s.space, sums ? cpu_line((size_t)p->n * sizeof(float)) : 0);
    s.product = cpu_take(&s.space, product_scratch(p, n_rows, call->in[0].rows.kind != ROWS_TOKENS));
    return s;
}

static size_t scratch(const OpCall *call, const RowCounts *rows)
{
    Product p = product_of(call);
    return space_of(call, &p, rows_in(call->in[0].rows, rows)).space.bytes;
}

static Status prepare(OpCall *call, const RowCounts *buckets, int n_buckets)
{
    Product p = product_of(call);
    for (int i = 0; i < n_buckets; i++) TRY(product_prepare(&p, rows_in(call->in[0].rows, &buckets[i])));
    return OK;
}

size_t cpu_linear_scratch(const OpCall *call, const RowCounts *rows) { return scratch(call, rows); }
size_t cpu_linear_dgrad_scratch(const OpCall *call, const RowCounts *rows) { return scratch(call, rows); }
size_t cpu_linear_wgrad_scratch(const OpCall *call, const RowCounts *rows) { return scratch(call, rows); }
Status cpu_linear_prepare(OpCall *call, const RowCounts *b, int n) { return prepare(call, b, n); }
Status cpu_linear_dgrad_prepare(OpCall *call, const RowCounts *b, int n) { return prepare(call, b, n); }
Status cpu_linear_wgrad_prepare(OpCall *call, const RowCounts *b, int n) { return prepare(call, b, n); }

Status cpu_linear(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = cpu_in(call, "x");
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = forward_of(call);
    Space s = space_of(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    return product_run(&p, n_rows, x->data, cpu_in(call, "w")->data, cpu_in(call, "bias")->data,
                       cpu_out(call, "y")->data, s.product);
}

Status cpu_linear_dgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = cpu_in(call, "dy");
    int64_t n_rows = rows_in(dy->rows, rows);
    Product p = dgrad_of(call);
    Space s = space_of(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    return product_run(&p, n_rows, dy->data, cpu_in(call, "w")->data, NULL, cpu_out(call, "dx")->data, s.product);
}

Status cpu_linear_wgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = cpu_in(call, "x"), *dy = cpu_in(call, "dy"), *db = cpu_out(call, "db");
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = wgrad_of(call);
    Space s = space_of(call, &p, n_rows);
    cpu_check_space(call, &s.space);
    if (operand_present(db)) cpu_add_column_sums(db->data, dy->data, n_rows, p.n, cpu_is_bf16(dy->dtype), s.parts);
    return product_run(&p, n_rows, x->data, dy->data, NULL, cpu_out(call, "dw")->data, s.product);
}
