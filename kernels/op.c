#include "kernels/op.h"

#include "base/status.h"

enum { OPTIONAL = 1, ADDED = 2, MUST = 4, CTL = 8, MAY_BEGIN = 16, SHARE_UNIT = 32, SUMS_UNIT = 1024 };
#define BEGUN                 (ADDED | MAY_BEGIN)
#define MAY_SHARE(op, input)  (SHARE_UNIT * (op##_IN_##input + 1))
#define MUST_SHARE(op, input) (MUST | MAY_SHARE(op, input))
#define SUMS_OF(op, output)   (OPTIONAL | BEGUN | SUMS_UNIT * (op##_OUT_##output + 1))

#define INFO(op, text, ...)                                                                                            \
    {#text,                                                                                                            \
     (__VA_ARGS__ + 0) & OPTIONAL,                                                                                     \
     (__VA_ARGS__ + 0) & ADDED,                                                                                        \
     (__VA_ARGS__ + 0) & MAY_BEGIN,                                                                                    \
     (__VA_ARGS__ + 0) % SUMS_UNIT / SHARE_UNIT - 1,                                                                   \
     (__VA_ARGS__ + 0) & MUST,                                                                                         \
     (__VA_ARGS__ + 0) / SUMS_UNIT - 1},
#define CTL_INDEX(op, text, ...) +((__VA_ARGS__ + 0) & CTL ? op##_IN_##text + 1 : 0)

static const OpInfo table[N_OPS] = {
#define X(op, text)                                                                                                    \
    [OP_##op] = {text,                                                                                                 \
                 op##_N_IN,                                                                                            \
                 op##_N_OUT,                                                                                           \
                 op##_OPERANDS(CTL_INDEX, OP_NOTHING, op) - 1,                                                         \
                 {op##_OPERANDS(INFO, OP_NOTHING, op)},                                                                \
                 {op##_OPERANDS(OP_NOTHING, INFO, op)}},
    OP_LIST(X)
#undef X
};

const OpInfo *op_info(Op op)
{
    CHECK((int)op >= 0 && op < N_OPS, "op %d does not exist", (int)op);
    return &table[op];
}

const Ctl *op_ctl(const OpCall *call)
{
    CHECK(op_info(call->op)->ctl >= 0, "%s has no ctl", op_info(call->op)->name);
    return call->in[op_info(call->op)->ctl].data;
}

const Segment *op_segments(const Operand *segments, const RowCounts *rows, int64_t *n)
{
    *n = (int64_t)((size_t)(rows_in(segments->rows, rows) * segments->cols) * dtype_size(segments->dtype) /
                   sizeof(Segment));
    return segments->data;
}

static double operand_bytes(const Operand *o, const RowCounts *rows)
{
    return operand_present(o) ? (double)rows_in(o->rows, rows) * (double)o->cols * (double)dtype_size(o->dtype) : 0;
}

/* Bytes of every operand, accumulated outputs twice, unless the call begins them; embeddings count the rows they touch,
 * not the tables. */
static double traffic(const OpCall *call, const RowCounts *rows)
{
    const OpInfo *info = op_info(call->op);
    double bytes = 0;
    for (int i = 0; i < info->n_in; i++) bytes += operand_bytes(&call->in[i], rows);
    for (int i = 0; i < info->n_out; i++)
        bytes += operand_bytes(&call->out[i], rows) * (info->out[i].accumulated && !(call->begun >> i & 1) ? 2 : 1);
    return bytes;
}

/* Logits are fp32, their gradients of h's type: the products write and read them, the softmax and the bias gradient go
   over them once more. */
static void mlm_traffic(const OpCall *call, double logits, OpCost *cost)
{
    bool training = operand_present(OUT(call, MLM_XENT, dh));
    double element = (double)dtype_size(IN(call, MLM_XENT, h)->dtype);
    cost->bytes += logits * (4 + (training ? 2 * element : 0));
    cost->pass_bytes = logits * (4 + (training ? 2 * element : 0));
}

static double cube(double x) { return x * x * x; }

OpCost op_cost(const OpCall *call, const RowCounts *rows, double seq_len)
{
    OpCost cost = {0, traffic(call, rows), 0};
    double n_rows = (double)rows_in(call->in[0].rows, rows);
    switch (call->op) {
    case OP_LINEAR:
    case OP_LINEAR_DGRAD:
    case OP_LINEAR_WGRAD:
        cost.product_flops = 2.0 * n_rows * (double)call->attr.linear.k * (double)call->attr.linear.n;
        if (call->op == OP_LINEAR_WGRAD && operand_present(OUT(call, LINEAR_WGRAD, db))) /* db: a pass over dy */
            cost.pass_bytes = operand_bytes(IN(call, LINEAR_WGRAD, dy), rows);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_BWD: /* 2 products forward; 5 backward, the scores again among them */
        cost.product_flops = (call->op == OP_ATTENTION ? 2 : 5) * 2.0 * n_rows * seq_len *
                             (double)(call->attr.attention.heads * call->attr.attention.head_dim);
        /* two passes, dq and then dk and dv, read these; one kernel finds most of the second in the cache */
        if (call->op == OP_ATTENTION_BWD)
            cost.bytes +=
                operand_bytes(IN(call, ATTENTION_BWD, qkv), rows) + operand_bytes(IN(call, ATTENTION_BWD, do), rows);
        if (call->op == OP_ATTENTION_BWD && operand_present(OUT(call, ATTENTION_BWD, db))) /* by itself a pass, too */
            cost.pass_bytes = operand_bytes(OUT(call, ATTENTION_BWD, dqkv), rows);
        break;
    case OP_MLM_XENT:
        cost.product_flops = (operand_present(OUT(call, MLM_XENT, dh)) ? 3 : 1) * 2.0 * n_rows *
                             (double)call->attr.loss.k * (double)call->attr.loss.n;
        mlm_traffic(call, n_rows * (double)call->attr.loss.n, &cost);
        break;
    case OP_LAMB: /* its second pass reads weights and u again; copies are written only */
        cost.bytes += 2 * operand_bytes(OUT(call, LAMB, weights), rows) - operand_bytes(OUT(call, LAMB, copies), rows);
        break;
    case OP_ADAMW: /* of a slice: as long as its moments; gradients read, copies written, the others both */
        cost.bytes = 7 * operand_bytes(OUT(call, ADAMW, m), rows) + operand_bytes(OUT(call, ADAMW, copies), rows);
        break;
    case OP_LAMB_STEP:
        cost.bytes = 7 * operand_bytes(OUT(call, LAMB_STEP, m), rows);
        break;
    case OP_CURVATURE: /* the mean of all steps */
        cost.product_flops = 2.0 * n_rows * (double)call->attr.curvature.n * (double)call->attr.curvature.n /
                             (double)call->attr.curvature.interval;
        cost.bytes /= (double)call->attr.curvature.interval;
        break;
    case OP_INVERT:
        cost.product_flops = cube((double)op_inverse_side(call));
        cost.bytes = 2 * operand_bytes(call->attr.kfac.of_output ? OUT(call, INVERT, b) : OUT(call, INVERT, a), rows);
        break;
    case OP_PRECONDITION:
        cost.product_flops = 2.0 * (double)call->attr.kfac.k * (double)call->attr.kfac.n *
                             (double)(call->attr.kfac.k + call->attr.kfac.n);
        break;
    case OP_OFFLOAD: /* once over the link, which is slower than either memory */
    case OP_FETCH:
        cost.bytes = operand_bytes(&call->in[0], rows); /* of either, its only input */
        break;
    case OP_GATHER: /* the rows that it takes, read and written */
        cost.bytes = 2 * operand_bytes(OUT(call, GATHER, y), rows);
        break;
    case OP_POOL: /* by their first rows sequences read no other */
        if (operand_present(IN(call, POOL, first))) cost.bytes = 2 * operand_bytes(OUT(call, POOL, y), rows);
        break;
    case OP_SCATTER: /* rows of dy, added to as many; the others are cleared, or stay as they are */
        cost.bytes = 3 * operand_bytes(IN(call, SCATTER, dy), rows);
        if (!operand_present(IN(call, SCATTER, add))) cost.bytes += operand_bytes(OUT(call, SCATTER, dx), rows);
        break;
    case OP_EMBED:
        cost.bytes = 4 * operand_bytes(OUT(call, EMBED, x), rows);
        break;
    case OP_EMBED_BWD:
        cost.bytes = 8 * operand_bytes(IN(call, EMBED_BWD, dx), rows);
        break;
    default:
        break;
    }
    return cost;
}
