/* LINEAR, LINEAR_DGRAD, LINEAR_WGRAD: products of product.h, as CURVATURE's (kfac.cu); and a bias gradient that the op
   that makes dy leaves to WGRAD. x is (rows, k), y (rows, n), the weight and its only copy (n, k). */
#include "kernels/cuda/columns.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fused_gelu.h"
#include "kernels/cuda/product.h"

Product linear_product(const OpCall *call, const RowCounts *rows)
{
    const Operand *in = &call->in[0], *out = &call->out[0]; /* of each: the rows, and the result */
    int64_t n_rows = rows_in(in->rows, rows), k = call->attr.linear.k, n = call->attr.linear.n;
    Product p = {};
    p.workspace = cuda_workspace(call);
    p.shape.in = in->dtype;
    p.shape.out = out->dtype;
    p.most = call->largest ? rows_in(in->rows, call->largest) : 0;
    p.c = out->data;
    if (call->op == OP_LINEAR) { /* y = x·wᵀ + bias */
        const Operand *bias = IN(call, LINEAR, bias);
        p.shape.m = n_rows, p.shape.n = n, p.shape.k = k;
        p.shape.lda = k, p.shape.ldb = k, p.shape.ldc = n;
        p.shape.b_transposed = true;
        if (operand_present(bias)) p.shape.bias = bias->dtype == out->dtype ? BIAS_OF_C : BIAS_F32;
        p.a = IN(call, LINEAR, x)->data, p.b = IN(call, LINEAR, w)->data;
        p.bias = bias->data;
    } else if (call->op == OP_LINEAR_DGRAD) { /* dx = dy·w (+ dx) */
        p.shape.m = n_rows, p.shape.n = k, p.shape.k = n;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.accumulate = operand_present(IN(call, LINEAR_DGRAD, add));
        p.a = IN(call, LINEAR_DGRAD, dy)->data, p.b = IN(call, LINEAR_DGRAD, w)->data;
    } else if (call->op == OP_CURVATURE) { /* factor += xᵀ·x, with the copied columns of x */
        p.shape.m = p.shape.n = p.shape.lda = p.shape.ldb = p.shape.ldc = call->attr.curvature.n;
        p.shape.k = n_rows;
        p.shape.a_transposed = p.shape.accumulate = true;
        p.a = p.b = cuda_workspace(call) + product_workspace();
    } else { /* dw += dyᵀ·x */
        p.shape.m = n, p.shape.n = k, p.shape.k = n_rows;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.a_transposed = p.shape.accumulate = true;
        p.begins = BEGINS(call, LINEAR_WGRAD, dw);
        p.a = IN(call, LINEAR_WGRAD, dy)->data, p.b = IN(call, LINEAR_WGRAD, x)->data;
    }
    return p;
}

static bool is_fused(const OpCall *call)
{
    return (call->op == OP_LINEAR || call->op == OP_LINEAR_DGRAD) && call->attr.linear.fused;
}

static bool with_db(const OpCall *call)
{
    return call->op == OP_LINEAR_WGRAD && operand_present(OUT(call, LINEAR_WGRAD, db));
}

/* A workspace; behind it the parts of db. */
size_t cuda_linear_scratch(const OpCall *call, const RowCounts *rows)
{
    if (is_fused(call)) return fused_gelu_scratch(call, rows);
    int64_t n_rows = rows_in(call->in[0].rows, rows);
    return 256 + product_workspace() + (with_db(call) ? columns_scratch(n_rows, call->attr.linear.n) : 0);
}

Status cuda_linear_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    for (int i = n_buckets - 1; i >= 0 && !is_fused(call); i--) {
        Product p = linear_product(call, &buckets[i]);
        TRY(product_prepare(&p));
    }
    return OK;
}

Status cuda_linear(const OpCall *call, const RowCounts *rows)
{
    if (is_fused(call)) return fused_gelu(call, rows);
    Product p = linear_product(call, rows);
    (void)cuda_scratch(call, cuda_linear_scratch(call, rows));
    if (with_db(call))
        TRY(columns_add(IN(call, LINEAR_WGRAD, dy), rows, OUT(call, LINEAR_WGRAD, db), BEGINS(call, LINEAR_WGRAD, db),
                        static_cast<char *>(p.workspace) + product_workspace()));
    return product_run(&p);
}
