/* The products of a linear layer. x is (rows, k), y (rows, n), the weight (n, k). */
#include "kernels/cpu/product.h"

Product product_of(const OpCall *call)
{
    int64_t k = call->attr.linear.k, n = call->attr.linear.n, side = call->attr.curvature.n;
    Dtype in = call->in[0].dtype, out = call->out[0].dtype;
    switch (call->op) {
    case OP_LINEAR:
        return (Product){PRODUCT_ROWS, k, n, in, out, .bias = operand_present(IN(call, LINEAR, bias))};
    case OP_LINEAR_DGRAD: /* the same product, from n to k */
        return (Product){PRODUCT_ROWS, n, k, in, out, .add = operand_present(IN(call, LINEAR_DGRAD, add))};
    case OP_CURVATURE: /* of x with itself */
        return (Product){PRODUCT_GRAD, side, side, in, F32, .bias = false};
    default:
        return (Product){PRODUCT_GRAD, k, n, in, F32, .bias = false};
    }
}

typedef struct {
    float *sums; /* of db */
    float *bias; // (n) in fp32, where it comes in another type
    void *product;
    HostScratch space;
} LinearScratch;

static LinearScratch linear_scratch(const OpCall *call, const Product *p, int64_t n_rows)
{
    LinearScratch s = {.space.base = call->scratch};
    if (p->kind == PRODUCT_GRAD) s.sums = cpu_take_db(&s.space, OUT(call, LINEAR_WGRAD, db), n_rows, p->n);
    if (p->bias && IN(call, LINEAR, bias)->dtype != F32) s.bias = host_take(&s.space, p->n, sizeof(float));
    /* a weight gradient of one grain has any number of rows */
    bool any = p->kind == PRODUCT_GRAD || call->in[0].rows.kind != ROWS_TOKENS;
    s.product = host_take(&s.space, 1, product_scratch(p, n_rows, any));
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

static const float *read_bias(const Operand *bias, int64_t n, float *room)
{
    if (bias->dtype == F32) return bias->data;
    CHECK(cpu_is_bf16(bias->dtype), "a bias of %s", dtype_name(bias->dtype));
    for (int64_t i = 0; i < n; i++) room[i] = bf16_to_f32(((const uint16_t *)bias->data)[i]);
    return room;
}

/* LINEAR, and LINEAR_DGRAD with the other copy of the weight. */
Status cpu_linear(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = &call->in[0];
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = product_of(call);
    LinearScratch s = linear_scratch(call, &p, n_rows);
    host_check_scratch(call, s.space.bytes);
    return product_run(&p, n_rows, x->data, IN_EITHER(call, LINEAR, LINEAR_DGRAD, w)->data,
                       p.bias ? read_bias(IN(call, LINEAR, bias), p.n, s.bias) : NULL, call->out[0].data, s.product);
}

Status cpu_linear_wgrad(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, LINEAR_WGRAD, x), *dy = IN(call, LINEAR_WGRAD, dy);
    int64_t n_rows = rows_in(x->rows, rows);
    Product p = product_of(call);
    LinearScratch s = linear_scratch(call, &p, n_rows);
    host_check_scratch(call, s.space.bytes);
    host_begin(call, rows);
    cpu_add_db(OUT(call, LINEAR_WGRAD, db), dy, n_rows, s.sums);
    return product_run(&p, n_rows, x->data, dy->data, NULL, OUT(call, LINEAR_WGRAD, dw)->data, s.product);
}
