/* The certificate of a plan (plan/bound.h) and `--recompute auto` at once: every choice of parts of small random models
   under random costs, random schedules of a simulator that knows the graph alone, and budgets of models of usual
   sizes. Rates are the test's own. */
#include "testing.h"

#include <math.h>

#include "plan/bound.h"
#include "train/planner/search.h"

static uint64_t generator = 29;

static int below(int n) { return (int)(testing_random(&generator) >> 33) % n; }
static bool chance(int percent) { return below(100) < percent; }
static double uniform(void) { return (double)(testing_random(&generator) >> 11) * 0x1p-53; }
static double log_uniform(double low, double high) { return low * pow(high / low, uniform()); }

/* ---- problems ---- */

/* A model, and what a search of it needs. Of the first account all but the activations is held outside plans. */
typedef struct {
    Model model;
    LayerChoice layers;
    Accounts accounts;
    SearchProblem search;
} Problem;

typedef struct {
    int layers, hidden, heads, ffn, tokens, seqs;
    Head head;
    Dtype compute;
} Shape;

static void problem_make(Problem *t, const Shape *s)
{
    Buf text = {0};
    ModelConfig config;
    buf_printf(&text,
               "{\"vocab_size\": 1000, \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
               "\"intermediate_size\": %d, \"max_position_embeddings\": 512}",
               s->hidden, s->layers, s->heads, s->ffn);
    assert_ok(model_config_parse("test", text.data, text.len, &config));
    assert_ok(model_init(&t->model, config, s->head));
    buf_free(&text);
    layer_choice_init(&t->layers, s->layers, NULL);
    t->accounts = (Accounts){.n = 1, .row = {{.limit = "the memory budget", .regions = 1u << REGION_ACT}}};
    const RowCounts rows =
        plan_capacity((MicroCapacity){s->tokens, s->seqs, s->head.kind == HEAD_PRETRAINING ? s->tokens / 6 + 1 : 0});
    t->search = (SearchProblem){.training = {.model = &t->model,
                                             .compute = s->compute,
                                             .emit = {.training = true, .layers = &t->layers},
                                             .capacity = rows},
                                .accounts = &t->accounts,
                                .rates = {.product_flops = 1e11, .bytes = 1e10, .overhead = 1e-6},
                                .rows = rows,
                                .seq_len = (double)s->tokens / s->seqs,
                                .micros = 1};
}

static void problem_free(Problem *t)
{
    layer_choice_free(&t->layers);
    model_free(&t->model);
}

static void random_problem(Problem *t, int layers)
{
    static const Head heads[] = {{HEAD_CLASSIFIER, 3}, {HEAD_PRETRAINING, 2}, {HEAD_PRETRAINING, 0}, {HEAD_SPAN, 2}};
    const int n_heads = 1 << below(4), hidden = 64 * (1 + below(8)), tokens = 64 + below(449);
    problem_make(t, &(Shape){.layers = layers,
                             .hidden = hidden,
                             .heads = n_heads,
                             .ffn = chance(30) ? hidden / 2 + 1 + below(7 * hidden) : hidden * (2 + below(7)),
                             .tokens = tokens,
                             .seqs = 1 + below(tokens / 8),
                             .head = heads[below(4)],
                             .compute = chance(50) ? BF16 : F32});
    t->search.training.one_copy = chance(50);
    for (int i = 0; i < 2 * layers + 1; i++) t->layers.norm_forms[i] = chance(50) ? NORM_FORM_XHAT : NORM_FORM_Y;
}

/* Rates at which products, traffic or the overhead decides, so that the order of preferences changes. */
static void random_rates(CostRates *r)
{
    *r = (CostRates){.product_flops = log_uniform(1e9, 1e14),
                     .bytes = log_uniform(1e9, 1e12),
                     .overhead = chance(20) ? 0 : log_uniform(1e-8, 1e-4)};
    if (chance(50)) r->stream = r->bytes * log_uniform(0.1, 10);
    for (int k = 0; k < 2 && chance(70); k++) r->attention_flops[k] = r->product_flops * log_uniform(0.001, 1);
    r->half_length = uniform() * 100;
}

/* `micro` of the model where layers keep `keeps`; NULL: all. */
static void sketch(const Problem *t, LayerKeep *keeps, Plan *p)
{
    ModelTensors tensors;
    PlanRequest r = t->search.training;
    LayerChoice c = {.keeps = keeps ? keeps : t->layers.keeps, .norm_forms = t->layers.norm_forms};
    r.emit.layers = &c;
    r.sketch = true;
    assert_ok(plan_make(&r, p, &tensors, NULL));
}

static int64_t live_peak(const Plan *p)
{
    int64_t peak = 0, *live = mem_array((size_t)p->micro.count + 1, sizeof *live);
    plan_live_series(p, live);
    for (int i = 0; i < p->micro.count; i++)
        if (live[i] > peak) peak = live[i];
    free(live);
    return peak;
}

/* ---- statistics ---- */

typedef struct {
    double *values;
    int n, cap;
} Sample;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(Sample *s, double part)
{
    assert_true(s->n > 0);
    qsort(s->values, (size_t)s->n, sizeof *s->values, by_value);
    return s->values[(int)(part * (s->n - 1))];
}

static void report(const char *name, Sample *s)
{
    print_message("%s: median %.4f, 95th percentile %.4f, worst %.4f of %d\n", name, quantile(s, 0.5),
                  quantile(s, 0.95), quantile(s, 1), s->n);
}

/* ---- random schedules ---- */

/* A machine that runs the graph in which layers keep all, an instr at a time, within a limit of bytes. It drops
   forward tensors, those that it planned to when forward has read them and any at the limit, and makes them again, with
   what that reads in turn. */
typedef struct {
    const Plan *p;
    const Instr *instrs; // (n) of micro
    int n;
    int64_t *picoseconds, *with_g; // (n) of the instr; of a GELU_BWD that makes its GELU's output again
    int *maker;                    // (tensors) its first writer
    int *unread, *forward;         // (tensors) readers that have not run yet; those of them in forward
    int *pinned;                   // (tensors) by instrs that run now
    bool *resident, *ran;          // (tensors), (n)
    bool *given_up;                // (tensors) dropped between forward and backward
    int *rank;                     // (tensors) at the limit those of low rank are dropped first
    bool steady;                   /* ranks hold for the whole schedule */
    bool tidy;                     /* drops what no instr will read, and overwrites only what it drops anyway */
    bool backward;                 /* has begun */
    int64_t live, limit, peak, picoseconds_run;
} Machine;

static bool is_activation(const Machine *m, TensorId t) { return t != NONE && m->p->tensors[t].region == REGION_ACT; }
static int64_t bytes_of(const Machine *m, TensorId t) { return ((int64_t)m->p->tensors[t].bytes + 63) / 64 * 64; }

/* Backward runs once, and so does what adds to sums of the step or writes for the host. */
static bool may_run_again(const Machine *m, int i)
{
    bool again = m->instrs[i].phase != PHASE_BACKWARD;
    for (int k = 0; k < OP_MAX_OUT; k++) again &= m->instrs[i].out[k] == NONE || is_activation(m, m->instrs[i].out[k]);
    return again;
}

static bool may_drop(const Machine *m, TensorId t)
{
    return m->resident[t] && !m->pinned[t] && (m->unread[t] == 0 || may_run_again(m, m->maker[t]));
}

static void drop(Machine *m, TensorId t)
{
    m->resident[t] = false;
    m->live -= bytes_of(m, t);
}

/* Room for so many bytes more. False: what is left must stay. */
static bool make_room(Machine *m, int64_t bytes)
{
    while (m->live + bytes > m->limit) {
        TensorId victim = NONE;
        for (TensorId t = 0; t < m->p->n_tensors; t++) {
            if (!is_activation(m, t) || !may_drop(m, t)) continue;
            if (!m->steady) m->rank[t] = below(1 << 20);
            const int rank = m->unread[t] ? m->rank[t] : -1;
            if (victim == NONE || rank < (m->unread[victim] ? m->rank[victim] : -1)) victim = t;
        }
        if (victim == NONE) return false;
        drop(m, victim);
    }
    return true;
}

static bool run_again(Machine *m, TensorId t);

/* An input whose memory output k takes over; NONE: it has its own. */
static TensorId taken_input(const Machine *m, const Instr *instr, int k, uint32_t taken)
{
    const int share = op_info(instr->op)->out[k].shares;
    const TensorId in = share < 0 ? NONE : instr->in[share];
    if (!is_activation(m, in) || taken >> share & 1 || m->pinned[in] > 1) return NONE;
    if (bytes_of(m, in) != bytes_of(m, instr->out[k])) return NONE;
    if (m->unread[in] == 0) return in;
    if (!may_run_again(m, m->maker[in])) return NONE;
    return (m->tidy ? !m->backward && m->given_up[in] && m->forward[in] == 0 : chance(50)) ? in : NONE;
}

/* `first`: the instr's own turn; else it runs once more. */
static bool execute(Machine *m, const Instr *instr, int64_t picoseconds, bool first)
{
    uint32_t taken = 0;
    int64_t room = 0;
    TensorId from[OP_MAX_OUT];
    for (int k = 0; k < OP_MAX_IN; k++) {
        const TensorId t = instr->in[k];
        if (!is_activation(m, t)) continue;
        if (!m->resident[t] && !run_again(m, t)) return false;
        m->pinned[t]++;
        m->unread[t] -= first;
        m->forward[t] -= first && instr->phase == PHASE_FORWARD;
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        const TensorId t = instr->out[k];
        from[k] = NONE;
        if (!is_activation(m, t)) continue;
        if (!m->resident[t]) from[k] = taken_input(m, instr, k, taken);
        if (from[k] != NONE) taken |= 1u << op_info(instr->op)->out[k].shares;
        assert_true(from[k] != NONE || m->resident[t] || !op_info(instr->op)->out[k].shares_always ||
                    instr->in[op_info(instr->op)->out[k].shares] == NONE);
        if (!m->resident[t] && from[k] == NONE) room += bytes_of(m, t);
        m->pinned[t]++;
    }
    if (!make_room(m, room)) return false;
    m->live += room;
    if (m->live > m->peak) m->peak = m->live;
    m->picoseconds_run += picoseconds;
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (!is_activation(m, instr->out[k])) continue;
        m->resident[instr->out[k]] = true;
        m->pinned[instr->out[k]]--;
        if (from[k] != NONE) m->resident[from[k]] = false;
    }
    for (int k = 0; k < OP_MAX_IN; k++)
        if (is_activation(m, instr->in[k])) m->pinned[instr->in[k]]--;
    return true;
}

/* The ADDNORM from whose xhat an AFFINE makes y; run again it makes y itself. */
static bool norm_again(Machine *m, const Instr *affine)
{
    const int norm = m->maker[affine->in[AFFINE_IN_xhat]];
    Instr again = m->instrs[norm];
    again.out[ADDNORM_OUT_y] = affine->out[AFFINE_OUT_y];
    return execute(m, &again, m->picoseconds[norm], false);
}

static bool run_again(Machine *m, TensorId t)
{
    const int i = m->maker[t];
    assert_true(may_run_again(m, i) && m->ran[i]);
    if (m->instrs[i].op == OP_AFFINE && chance(50)) return norm_again(m, &m->instrs[i]);
    return execute(m, &m->instrs[i], m->picoseconds[i], false);
}

static bool take_turn(Machine *m, int i)
{
    Instr instr = m->instrs[i];
    int64_t picoseconds = m->picoseconds[i];
    m->ran[i] = true;
    m->backward |= instr.phase == PHASE_BACKWARD;
    if (instr.op == OP_AFFINE && chance(m->resident[instr.in[AFFINE_IN_xhat]] ? 10 : 60)) {
        m->unread[instr.in[AFFINE_IN_xhat]]--;
        return norm_again(m, &instr);
    }
    if (instr.op == OP_GELU_BWD) {
        const TensorId g = m->instrs[instr.origin - m->p->micro.first].out[GELU_OUT_g];
        if (!m->resident[g] && m->unread[g] && chance(70)) {
            instr.out[GELU_BWD_OUT_g] = g;
            picoseconds = m->with_g[i];
        }
    }
    return execute(m, &instr, picoseconds, true);
}

/* Whether all that it reads was made, and no other instr will read what it adds to. */
static bool is_ready(const Machine *m, int i)
{
    const OpInfo *info = op_info(m->instrs[i].op);
    bool ready = !m->ran[i];
    for (int k = 0; k < OP_MAX_IN && ready; k++)
        ready = !is_activation(m, m->instrs[i].in[k]) || m->ran[m->maker[m->instrs[i].in[k]]];
    for (int k = 0; k < info->n_out && ready; k++) {
        const TensorId in = info->out[k].shares_always ? m->instrs[i].in[info->out[k].shares] : NONE;
        ready = in == NONE || m->unread[in] == 1;
    }
    return ready;
}

/* The next instr of the plan's order, or one at random of those that could run; with `late` weight gradients wait. */
static int next_turn(const Machine *m, int random, int late)
{
    int ready = 0, chosen = NONE, first = NONE;
    const bool any = chance(random);
    for (int i = 0; i < m->n; i++) {
        if (!is_ready(m, i)) continue;
        if (first == NONE) first = i;
        if (!any && (m->instrs[i].op != OP_LINEAR_WGRAD || !chance(late))) return i;
        if (any && below(++ready) == 0) chosen = i;
    }
    return chosen != NONE ? chosen : first;
}

static void sweep(Machine *m)
{
    for (TensorId t = 0; t < m->p->n_tensors; t++)
        if (is_activation(m, t) && may_drop(m, t) &&
            (m->unread[t] == 0 ? m->tidy || chance(50) : m->given_up[t] && m->forward[t] == 0 && !m->backward))
            drop(m, t);
}

/* False: the limit does not hold. */
static bool simulate(Machine *m, int64_t limit, int random, int late)
{
    const size_t n_tensors = (size_t)m->p->n_tensors;
    m->limit = limit;
    m->live = m->peak = m->picoseconds_run = 0;
    memset(m->unread, 0, n_tensors * sizeof *m->unread);
    memset(m->forward, 0, n_tensors * sizeof *m->forward);
    memset(m->pinned, 0, n_tensors * sizeof *m->pinned);
    memset(m->resident, 0, n_tensors * sizeof *m->resident);
    memset(m->ran, 0, (size_t)m->n * sizeof *m->ran);
    m->backward = false;
    for (size_t t = 0; t < n_tensors; t++) m->rank[t] = below(1 << 20);
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < OP_MAX_IN; k++)
            if (is_activation(m, m->instrs[i].in[k])) {
                m->unread[m->instrs[i].in[k]]++;
                m->forward[m->instrs[i].in[k]] += m->instrs[i].phase == PHASE_FORWARD;
            }
    for (int turn = 0; turn < m->n; turn++) {
        if (!take_turn(m, next_turn(m, random, late))) return false;
        sweep(m);
    }
    return true;
}

static void machine_init(Machine *m, const Problem *t, const Plan *p)
{
    const SearchProblem *s = &t->search;
    const size_t n = (size_t)p->micro.count, n_tensors = (size_t)p->n_tensors;
    *m = (Machine){.p = p,
                   .instrs = p->instrs + p->micro.first,
                   .n = (int)n,
                   .picoseconds = mem_array(n, sizeof(int64_t)),
                   .with_g = mem_array(n, sizeof(int64_t)),
                   .maker = mem_array(n_tensors, sizeof(int)),
                   .forward = mem_array(n_tensors, sizeof(int)),
                   .given_up = mem_array(n_tensors, sizeof(bool)),
                   .unread = mem_array(n_tensors, sizeof(int)),
                   .pinned = mem_array(n_tensors, sizeof(int)),
                   .resident = mem_array(n_tensors, sizeof(bool)),
                   .ran = mem_array(n, sizeof(bool)),
                   .rank = mem_array(n_tensors, sizeof(int))};
    for (int i = m->n - 1; i >= 0; i--) {
        OpCall call;
        OpCost cost;
        CostBound largest;
        Instr instr = m->instrs[i];
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (instr.out[k] != NONE) m->maker[instr.out[k]] = i;
        plan_call(p, &instr, &call);
        m->picoseconds[i] = llround(1e12 * plan_call_cost(&call, &s->rows, s->seq_len, &s->rates, &cost, &largest));
        if (instr.op != OP_GELU_BWD) continue;
        instr.out[GELU_BWD_OUT_g] = instr.in[GELU_BWD_IN_pre]; /* as large */
        plan_call(p, &instr, &call);
        m->with_g[i] = llround(1e12 * plan_call_cost(&call, &s->rows, s->seq_len, &s->rates, &cost, &largest));
    }
}

static void machine_free(Machine *m)
{
    MEM_FREE(m->picoseconds, m->with_g, m->maker, m->unread, m->forward, m->given_up, m->pinned, m->resident, m->ran,
             m->rank);
}

/* What a schedule comes to, and how near it came to the bound. */
typedef struct {
    int held, all_kept;
    Sample time, room;
} Schedules;

/* Tries schedules of a graph: wild ones, and ones that change a little in what the nearest one so far gave up. No
   schedule adds less, or has its peak lower, than the bound says. */
static void try_schedules(const Problem *t, int n, Schedules *found)
{
    Plan p;
    Machine m;
    sketch(t, NULL, &p);
    machine_init(&m, t, &p);
    PlanBound *b = plan_bound_make(&p, &t->search.rows, t->search.seq_len, &t->search.rates, INT64_MAX / 2);
    const int64_t most = live_peak(&p), least = plan_bound_room(b, INT64_MAX);
    int64_t once = 0;
    double nearest = INFINITY;
    bool *best = mem_array((size_t)p.n_tensors, sizeof *best);
    for (int i = 0; i < m.n; i++) once += m.picoseconds[i];
    for (int k = 0; k < n; k++) {
        const bool wild = k % 3 == 0;
        const int given_up = below(100), limit = wild && chance(70) ? below(1050) : 0;
        m.steady = chance(70), m.tidy = !wild || chance(50);
        for (TensorId x = 0; x < p.n_tensors; x++) m.given_up[x] = wild ? chance(given_up) : best[x] ^ chance(2);
        if (!simulate(&m, limit ? least + (most - least) * limit / 1000 : INT64_MAX / 2, wild ? below(20) : 0,
                      chance(50) ? 0 : below(60)))
            continue;
        const int64_t added = m.picoseconds_run - once;
        const int64_t least_added = plan_bound_added(b, m.peak), least_room = plan_bound_room(b, added);
        found->held++;
        found->all_kept += added == 0;
        if (least_added > added || least_room > m.peak)
            fail_msg("schedule %d, %d layers: %lld bytes and %lld ps more; the bound says %lld bytes, %lld ps", k,
                     p.n_layers, (long long)m.peak, (long long)added, (long long)least_room, (long long)least_added);
        MEM_PUSH(found->room.values, found->room.n, found->room.cap, (double)m.peak / (double)least_room);
        if (least_added == 0) continue;
        const double near = (double)added / (double)least_added;
        MEM_PUSH(found->time.values, found->time.n, found->time.cap, near);
        if (near <= nearest) memcpy(best, m.given_up, (size_t)p.n_tensors * sizeof *best);
        if (near <= nearest) nearest = near;
    }
    plan_bound_free(b);
    machine_free(&m);
    plan_free(&p);
    free(best);
}

static void test_random_schedules(void **state)
{
    const int graphs = testing_rounds(60, 1500), schedules = 300;
    Schedules found = {0};
    (void)state;
    for (int graph = 0; graph < graphs; graph++) {
        Problem t;
        random_problem(&t, 1 + below(4));
        random_rates(&t.search.rates);
        try_schedules(&t, schedules, &found);
        problem_free(&t);
    }
    print_message("%d schedules of %d held their limit, %d of them ran nothing again\n", found.held, graphs * schedules,
                  found.all_kept);
    assert_true(found.held > graphs * schedules / 2);
    report("added time / bound", &found.time);
    report("peak / bound", &found.room);
    print_message("nearest: %.4f, %.4f; fifths %.4f %.4f\n", quantile(&found.time, 0), quantile(&found.room, 0),
                  quantile(&found.time, 0.2), quantile(&found.room, 0.2));
    MEM_FREE(found.time.values, found.room.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
