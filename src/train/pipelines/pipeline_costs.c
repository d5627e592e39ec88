/* Seconds: of K-FAC's work, from the products that it is made of; of a layer, measured; of a stage's works and sums. */

#include "train/pipelines/pipeline_internal.h"

/* ---- measured ---- */

Status layer_costs_read(const char *path, LayerCosts *costs)
{
    static const char *const names[] = {"forward_ms", "backward_ms", "curvature_ms", "inverses_ms", "precondition_ms"};
    enum { N = sizeof names / sizeof *names, MOST_BYTES = 1 << 16 };
    double *const to[N] = {&costs->forward, &costs->backward, &costs->curvature, &costs->inverses,
                           &costs->precondition};
    Buf text = {0};
    Status status = OK;
    bool seen[N] = {false}; /* of columns with one name the first counts */
    for (int k = 0; k < N; k++) *to[k] = -1;
    TRY_DONE(file_read(path, MOST_BYTES, &text));
    char *rest = text.data, *head = strsep(&rest, "\n"), *name, *value;
    while (head && *head == '#') head = strsep(&rest, "\n");
    char *values = strsep(&rest, "\n");
    if (!values) TRY_DONE(fail(E_FORMAT, "%s: expected a line of column names and a line of milliseconds", path));
    while ((name = strsep(&head, ",")) && (value = strsep(&values, ",")))
        for (int k = 0; k < N; k++) {
            char *end;
            double ms = strtod(value, &end);
            if (strcmp(name, names[k]) != 0 || seen[k]) continue;
            seen[k] = true;
            if (end != value) *to[k] = ms * 1e-3;
        }
    for (int k = 0; k < N; k++)
        if (!(*to[k] >= 0) || !isfinite(*to[k]))
            TRY_DONE(fail(E_FORMAT, "%s: expected a column %s with milliseconds of a layer", path, names[k]));
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
        costs->set_bytes += (double)(l->k * l->k + l->n * l->n) * sizeof(float);
        cubes += cube(l->n) + cube(l->k);
        squares[0] += l->same_input ? 0 : (double)l->k * (double)l->k;
        squares[1] += (double)l->n * (double)l->n;
    }
    if (!given) return;
    for (int k = 0; k < 2; k++) costs->statistics[k] = given->curvature * squares[k] / (squares[0] + squares[1]);
    for (int k = 0; k < costs->factors; k++)
        costs->inverse[k] = given->inverses * cube(k % 2 ? linears[k / 2].n : linears[k / 2].k) / cubes;
    costs->precondition = given->precondition;
}

/* ---- of a stage ---- */

void pipeline_take_times(const Maker *m, const Plan *p, int preconditions, int number)
{
    StagePlan *s = &m->p->stage[number];
    int layers = m->p->stages[number].layers;
    Range update = {p->update.first + preconditions, p->update.count - preconditions}; /* fill_bubbles adds them */
    const LayerCosts *given = m->r->given;
    double beside = plan_input_beside(input(m));
    for (int kind = 0; kind < N_WORKS; kind++)
        s->seconds[kind] = plan_cost(p, p->work[kind], &m->rows, beside, &input(m)->rates, NULL);
    s->update = plan_cost(p, p->begin, &m->rows, beside, &m->rates, NULL) +
                plan_cost(p, update, &m->rows, beside, &m->rates, NULL);
    if (given) {
        s->seconds[WORK_FORWARD] = layers * given->forward;
        s->seconds[WORK_BACKWARD] = layers * given->backward;
        s->seconds[WORK_INPUT] = s->seconds[WORK_WEIGHT] = s->seconds[WORK_BACKWARD] / 2;
        s->update = 0;
    }
    if (pipeline_splits_backward(m->p->grid.shape.kind))
        s->seconds[WORK_BACKWARD] = s->seconds[WORK_INPUT] + s->seconds[WORK_WEIGHT];
    else
        s->seconds[WORK_INPUT] = s->seconds[WORK_WEIGHT] = s->seconds[WORK_BACKWARD] / 2;
}

/* The first stage and the last are on two places. */
static bool passes_uses(const Maker *m)
{
    int first, last, chunk;
    pipeline_home(shape(m), 0, 0, &first, &chunk);
    pipeline_home(shape(m), m->p->grid.stages - 1, 0, &last, &chunk);
    return first != last && m->network.bytes > 0;
}

/* Seconds of a kind of work behind each piece's REDUCE. W follows I. */
static void take_early(const Maker *m, const Plan *p, WorkKind kind, const StagePlan *s, StageSum *pieces)
{
    Range range = p->work[kind];
    double *each = mem_array((size_t)range.count + 1, sizeof *each), behind = 0;
    double all = plan_cost(p, range, &m->rows, plan_input_beside(input(m)), &input(m)->rates, each);
    for (InstrId i = range.count - 1; i >= 0; behind += each[i--]) {
        const Instr *instr = &p->instrs[range.first + i];
        if (instr->op == OP_REDUCE)
            pieces[instr->attr.reduce.bucket].early =
                (all > 0 ? behind / all * s->seconds[kind] : 0) + (kind == WORK_INPUT ? s->seconds[WORK_WEIGHT] : 0);
    }
    free(each);
}

void pipeline_take_sums(const Maker *m, const Plan *p, const Model *part, const Pieces *pieces, int number)
{
    const Param *word = m->p->grid.stages > 1 ? model_tied(part) : NULL;
    StagePlan *s = &m->p->stage[number];
    int first = word && passes_uses(m), n = pieces ? pieces->n : 0;
    free(s->sums);
    s->n_sums = first + n;
    s->sums = mem_array((size_t)s->n_sums, sizeof *s->sums);
    for (int i = 0; i < s->n_sums; i++) s->sums[i] = (StageSum){number, -1, 0};
    for (WorkKind kind = WORK_BACKWARD; n > 0 && kind <= WORK_WEIGHT; kind++)
        take_early(m, p, kind, s, s->sums + first);
    if (first) s->sums[0].seconds = m->network.latency + (double)param_held(word) * sizeof(float) / m->network.bytes;
    for (int b = 0; b < n; b++) {
        const Piece *x = &pieces->pieces[b];
        StageSum *sum = &s->sums[first + b];
        sum->seconds = m->rates.exchange(m->rates.network, OP_REDUCE, (double)(x->end - x->begin) * sizeof(float));
        if (word && x->begin < word->offset + param_held(word) && word->offset < x->end) sum->early = -1;
    }
}
