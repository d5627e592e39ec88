/* K-FAC's seconds, from the products that it is made of, and a layer's measured seconds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/pipelines/pipeline.h"

/* ---- measured ---- */

Status layer_costs_read(const char *path, LayerCosts *costs)
{
    static const char *const names[] = {"forward_ms", "backward_ms", "curvature_ms", "inverses_ms", "precondition_ms"};
    enum { N = sizeof names / sizeof *names, MOST_BYTES = 1 << 16 };
    double *const to[N] = {&costs->forward, &costs->backward, &costs->curvature, &costs->inverses,
                           &costs->precondition};
    Buf text = {0};
    Status status = OK;
    *costs = (LayerCosts){.given = true};
    TRY_DONE(file_read(path, MOST_BYTES, &text));
    char *at = text.data;
    while (at && *at == '#') at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    char *values = at ? strchr(at, '\n') : NULL;
    if (!values) {
        status = fail(E_FORMAT, "%s: expected a line of column names and a line of milliseconds", path);
        goto done;
    }
    *values++ = '\0';
    for (int k = 0; k < N; k++) {
        int column = 0;
        char *name = at, *value = values, *end;
        size_t len = strlen(names[k]);
        for (; name && !(strncmp(name, names[k], len) == 0 && (name[len] == ',' || name[len] == '\0')); column++)
            name = (name = strchr(name, ',')) ? name + 1 : NULL;
        for (; name && value && column > 0; column--) value = (value = strchr(value, ',')) ? value + 1 : NULL;
        *to[k] = name && value ? strtod(value, &end) * 1e-3 : -1;
        if (!name || !value || end == value || !(*to[k] >= 0) || !isfinite(*to[k])) {
            status = fail(E_FORMAT, "%s: expected a column %s with milliseconds of a layer", path, names[k]);
            goto done;
        }
    }
done:
    buf_free(&text);
    return status;
}

/* ---- predicted ---- */

typedef struct {
    const CostRates *rates;
    const RowCounts *rows;
    double seq_len;
    Dtype compute;
} Costs;

static double seconds_of(const Costs *c, const OpCall *call)
{
    OpCost cost;
    CostBound bound;
    return plan_call_cost(call, c->rows, c->seq_len, c->rates, &cost, &bound);
}

/* xᵀx of a micro-batch's rows of width n: a weight gradient both of whose operands are x. */
static double statistic(const Costs *c, int64_t n)
{
    Operand x = {.dtype = c->compute, .rows = {ROWS_TOKENS, 0}, .cols = n};
    OpCall call = {.op = OP_LINEAR_WGRAD, .attr = {.linear = {.k = n, .n = n}}};
    *IN(&call, LINEAR_WGRAD, x) = *IN(&call, LINEAR_WGRAD, dy) = x;
    *OUT(&call, LINEAR_WGRAD, dw) = (Operand){.dtype = F32, .rows = {ROWS_FIXED, n}, .cols = n};
    return seconds_of(c, &call);
}

static Operand matrix(int64_t rows, int64_t cols)
{
    return (Operand){.dtype = F32, .rows = {ROWS_FIXED, rows}, .cols = cols};
}

static double inverse(const Costs *c, int64_t side)
{
    OpCall call = {.op = OP_INVERT, .attr = {.kfac = {.k = side}}};
    *OUT(&call, INVERT, a) = matrix(side, side);
    return seconds_of(c, &call);
}

static double precondition(const Costs *c, int64_t k, int64_t n)
{
    OpCall call = {.op = OP_PRECONDITION, .attr = {.kfac = {.k = k, .n = n}}};
    *IN(&call, PRECONDITION, a_inv) = matrix(k, k);
    *IN(&call, PRECONDITION, b_inv) = matrix(n, n);
    *OUT(&call, PRECONDITION, dw) = matrix(n, k);
    return seconds_of(c, &call);
}

/* A layer's linears: (outputs, inputs) in hidden sizes and in inner sizes. Query, key and value read the same rows. */
typedef struct {
    int64_t n, k;
    bool same_input; /* as the linear before */
} Linear;

static double cube(int64_t n) { return (double)n * (double)n * (double)n; }

void kfac_costs(const ModelConfig *m, const CostRates *rates, const RowCounts *rows, double seq_len, Dtype compute,
                const LayerCosts *given, KfacCosts *costs)
{
    int64_t h = m->hidden, f = m->ffn;
    const Linear linears[] = {{h, h, false}, {h, h, true}, {h, h, true}, {h, h, false}, {f, h, false}, {h, f, false}};
    const Costs c = {rates, rows, seq_len, compute};
    double cubes = 0, squares[2] = {0};
    *costs = (KfacCosts){0};
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        const Linear *l = &linears[i];
        if (!l->same_input) costs->statistics[0] += statistic(&c, l->k);
        costs->statistics[1] += statistic(&c, l->n);
        costs->inverse[costs->factors++] = inverse(&c, l->k);
        costs->inverse[costs->factors++] = inverse(&c, l->n);
        costs->precondition += precondition(&c, l->k, l->n);
        cubes += cube(l->n) + cube(l->k);
        squares[0] += l->same_input ? 0 : (double)l->k * (double)l->k;
        squares[1] += (double)l->n * (double)l->n;
    }
    if (!given->given) return;
    for (int k = 0; k < 2; k++) costs->statistics[k] = given->curvature * squares[k] / (squares[0] + squares[1]);
    for (int k = 0; k < costs->factors; k++)
        costs->inverse[k] = given->inverses * cube(k % 2 ? linears[k / 2].n : linears[k / 2].k) / cubes;
    costs->precondition = given->precondition;
}
