#include "kernels/op.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

static OpInfo table[N_OPS];

/* One word of OP_LIST's lists: a name, then marks. */
static OperandInfo parse_operand(const char *word, size_t len)
{
    OperandInfo info = {.shares = -1};
    size_t end = strcspn(word, "?+=! ");
    info.name = mem_strndup(word, end < len ? end : len);
    for (size_t i = end; i < len; i++) {
        switch (word[i]) {
        case '?':
            info.optional = true;
            break;
        case '+':
            info.accumulated = true;
            break;
        case '!':
            info.shares_always = true; /* fall through */
        case '=':
            info.shares = (int8_t)(word[++i] - '0');
            break;
        default:
            CHECK(0, "op table: bad mark '%c' in '%s'", word[i], word);
        }
    }
    return info;
}

static int parse_operands(const char *list, OperandInfo *out, int max)
{
    int n = 0;
    for (const char *p = list; *p; n++) {
        size_t len = strcspn(p, " ");
        CHECK(n < max, "op table: more than %d operands in '%s'", max, list);
        out[n] = parse_operand(p, len);
        p += len;
        p += strspn(p, " ");
    }
    return n;
}

static void parse_table(void)
{
    static const struct {
        const char *name, *in, *out;
    } rows[N_OPS] = {
#define X(op, text, in, out) [OP_##op] = {text, in, out},
        OP_LIST(X)
#undef X
    };
    for (int op = 0; op < N_OPS; op++) {
        table[op].name = rows[op].name;
        table[op].n_in = parse_operands(rows[op].in, table[op].in, OP_MAX_IN);
        table[op].n_out = parse_operands(rows[op].out, table[op].out, OP_MAX_OUT);
    }
}

const OpInfo *op_info(Op op)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, parse_table);
    CHECK((int)op >= 0 && op < N_OPS, "op %d does not exist", (int)op);
    return &table[op];
}

static int find(const OperandInfo *infos, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(infos[i].name, name) == 0) return i;
    return -1;
}

int op_in(Op op, const char *name)
{
    const OpInfo *info = op_info(op);
    int i = find(info->in, info->n_in, name);
    CHECK(i >= 0, "%s has no input '%s'", info->name, name);
    return i;
}

int op_out(Op op, const char *name)
{
    const OpInfo *info = op_info(op);
    int i = find(info->out, info->n_out, name);
    CHECK(i >= 0, "%s has no output '%s'", info->name, name);
    return i;
}

static double operand_bytes(const Operand *o, const RowCounts *rows)
{
    return operand_present(o) ? (double)rows_in(o->rows, rows) * (double)o->cols * (double)dtype_size(o->dtype) : 0;
}

/* Bytes of every operand, accumulated outputs twice; embeddings count the rows they touch, not the tables. */
static double traffic(const OpCall *call, const RowCounts *rows)
{
    const OpInfo *info = op_info(call->op);
    double bytes = 0;
    for (int i = 0; i < info->n_in; i++) bytes += operand_bytes(&call->in[i], rows);
    for (int i = 0; i < info->n_out; i++)
        bytes += operand_bytes(&call->out[i], rows) * (info->out[i].accumulated ? 2 : 1);
    return bytes;
}

/* Logits are fp32, their gradients of h's type: the products write and read them, the softmax and the bias gradient go
   over them once more. */
static void mlm_traffic(const OpCall *call, double logits, OpCost *cost)
{
    bool training = operand_present(&call->out[0]);
    double element = (double)dtype_size(call->in[0].dtype);
    cost->bytes += logits * (4 + (training ? 2 * element : 0));
    cost->pass_bytes = logits * (4 + (training ? 2 * element : 0));
}

OpCost op_cost(const OpCall *call, const RowCounts *rows, double seq_len)
{
    OpCost cost = {0, traffic(call, rows), 0};
    double n_rows = (double)rows_in(call->in[0].rows, rows);
    switch (call->op) {
    case OP_LINEAR:
    case OP_LINEAR_DGRAD:
    case OP_LINEAR_WGRAD:
        cost.product_flops = 2.0 * n_rows * (double)call->attr.linear.k * (double)call->attr.linear.n;
        if (call->op == OP_LINEAR_WGRAD && operand_present(&call->out[1])) /* db: a pass over dy */
            cost.pass_bytes = operand_bytes(&call->in[1], rows);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_BWD: /* 2 products forward; 5 backward, the scores again among them */
        cost.product_flops = (call->op == OP_ATTENTION ? 2 : 5) * 2.0 * n_rows * seq_len *
                             (double)(call->attr.attention.heads * call->attr.attention.head_dim);
        break;
    case OP_MLM_XENT:
        cost.product_flops = (operand_present(&call->out[0]) ? 3 : 1) * 2.0 * n_rows * (double)call->attr.loss.k *
                             (double)call->attr.loss.n;
        mlm_traffic(call, n_rows * (double)call->attr.loss.n, &cost);
        break;
    case OP_LAMB: /* its second pass reads weights and u again */
        cost.bytes += 2 * operand_bytes(&call->out[0], rows);
        break;
    case OP_ADAMW: /* of a slice: what moments there are; gradients, and the others read and written */
        cost.bytes = 7 * operand_bytes(&call->out[1], rows);
        break;
    case OP_LAMB_STEP:
        cost.bytes = 7 * operand_bytes(&call->out[0], rows);
        break;
    case OP_OFFLOAD: /* once over the link, which is slower than either memory */
    case OP_FETCH:
        cost.bytes = operand_bytes(&call->in[0], rows);
        break;
    case OP_EMBED:
        cost.bytes = 4 * operand_bytes(&call->out[0], rows);
        break;
    case OP_EMBED_BWD:
        cost.bytes = 8 * operand_bytes(&call->in[0], rows);
        break;
    default:
        break;
    }
    return cost;
}
