/* Scratch of the ops that work row by row, and sums over rows. */
#include "kernels/ref/ref.h"

static RefRows ref_rows_layout(const OpCall *call, HostScratch *s)
{
    /* 1: x; 2: and factor; 3: and buffer; 4: and ds, dgamma, dbeta */
    static const int8_t wanted[N_OPS] = {[OP_XENT] = 1,  [OP_POOL_BWD] = 1, [OP_DROPOUT] = 2,     [OP_ADDNORM] = 3,
                                         [OP_EMBED] = 3, [OP_POOL] = 4,     [OP_ADDNORM_BWD] = 4, [OP_EMBED_BWD] = 4};
    int n = wanted[call->op];
    int64_t cols = call->op == OP_EMBED ? OUT(call, EMBED, x)->cols : call->in[0].cols;
    RefRows r = {.x = host_take(s, cols, sizeof(float))};
    if (n > 1) r.factor = host_take(s, cols, sizeof(float));
    if (n > 2) r.buffer = host_take(s, cols, sizeof(float));
    if (n < 4) return r;
    r.ds = host_take(s, cols, sizeof(float));
    r.dgamma = host_take(s, cols, sizeof(double));
    r.dbeta = host_take(s, cols, sizeof(double));
    return r;
}

void ref_add_columns(const Operand *to, const Operand *x, int64_t n)
{
    float *sums = to->data;
    for (int64_t j = 0; operand_present(to) && j < x->cols; j++) {
        double sum = 0;
        for (int64_t r = 0; r < n; r++) sum += ref_load(x, r * x->cols + j);
        sums[j] += (float)sum;
    }
}

size_t ref_rows_scratch(const OpCall *call, const RowCounts *rows)
{
    HostScratch s = {0};
    (void)rows;
    ref_rows_layout(call, &s);
    return s.bytes;
}

RefRows ref_rows(const OpCall *call)
{
    HostScratch s = {.base = call->scratch};
    RefRows r = ref_rows_layout(call, &s);
    host_check_scratch(call, s.bytes);
    if (r.ds) memset(r.dgamma, 0, (size_t)(s.base + s.bytes - (char *)r.dgamma)); /* and dbeta, the last */
    return r;
}
