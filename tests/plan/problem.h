/* Models, searches of what their layers keep, and samples of results, for tests of the planner. Rates are the test's
   own. */
#pragma once

#include "testing.h"

#include <math.h>

#include "train/planner/search.h"

/* A model, and what a search of it needs. Its one account has the activations alone. */
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

static inline void problem_make(Problem *t, const Shape *s)
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

static inline void problem_free(Problem *t)
{
    layer_choice_free(&t->layers);
    model_free(&t->model);
}

/* ---- random problems ---- */

static uint64_t generator = 29;

static inline int below(int n) { return (int)(testing_random(&generator) >> 33) % n; }
static inline bool chance(int percent) { return below(100) < percent; }
static inline double uniform(void) { return (double)(testing_random(&generator) >> 11) * 0x1p-53; }
static inline double log_uniform(double low, double high) { return low * pow(high / low, uniform()); }

static inline void random_problem(Problem *t, int layers)
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
static inline void random_rates(CostRates *r)
{
    *r = (CostRates){.product_flops = log_uniform(1e9, 1e14),
                     .bytes = log_uniform(1e9, 1e12),
                     .overhead = chance(20) ? 0 : log_uniform(1e-8, 1e-4)};
    if (chance(50)) r->stream = r->bytes * log_uniform(0.1, 10);
    for (int k = 0, apart = chance(70); k < 2 * apart; k++)
        r->attention_flops[k] = r->product_flops * log_uniform(0.001, 1);
    r->half_length = uniform() * 100;
}

static inline int64_t live_peak(const Plan *p)
{
    int64_t peak = 0, *live = mem_array((size_t)p->micro.count + 1, sizeof *live);
    plan_live_series(p, live);
    for (int i = 0; i < p->micro.count; i++)
        if (live[i] > peak) peak = live[i];
    free(live);
    return peak;
}

/* ---- searches ---- */

typedef struct {
    SearchResult found;
    Plan plan;
    PlanCertificate bound;
    int64_t live;       /* bytes of activations that live at once */
    double step, micro; /* predicted seconds */
} Answer;

static inline void answer_free(Answer *a)
{
    plan_free(&a->plan);
    layer_choice_free(&a->found.layers);
}

/* What is printed of a choice is a policy that chooses the same. */
static inline void expect_policy(const LayerChoice *c, int layers)
{
    Policy policy;
    LayerKeep *keeps = mem_array((size_t)layers, sizeof *keeps);
    const char *inner = strchr(c->policy, '(');
    char *text = mem_printf("%.*s", (int)strcspn(inner + 1, ")"), inner + 1);
    assert_ok(policy_parse(text, &policy));
    policy_keeps(&policy, layers, keeps);
    assert_memory_equal(keeps, c->keeps, (size_t)layers * sizeof *keeps);
    MEM_FREE(keeps, text);
}

/* The plan that is chosen within so many bytes of the first account; its peak is exact. */
static inline void answer(Problem *t, size_t budget, Answer *a)
{
    ModelTensors tensors;
    const SearchProblem *s = &t->search;
    PlanRequest request = s->training;
    t->accounts.row[0].budget = budget;
    assert_ok(search_layers(s, &a->found));
    request.emit.layers = &a->found.layers;
    assert_ok(plan_make(&request, &a->plan, &tensors, NULL));
    const size_t peak = account_sum(&t->accounts.row[0], a->plan.region_bytes),
                 layout = a->plan.region_bytes[REGION_ACT];
    assert_ok(search_bound(s, &a->plan, peak - layout, &a->bound));
    a->live = live_peak(&a->plan);
    a->step = search_step_seconds(&a->plan, &s->rows, &s->rates, s->seq_len, s->micros);
    a->micro = plan_cost(&a->plan, a->plan.micro, &s->rows, s->seq_len, &s->rates, NULL);
    expect_policy(&a->found.layers, t->model.config.layers);
    assert_int_equal(a->found.peak, peak);
    assert_int_equal(a->found.fits, peak <= budget);
    assert_true(a->live <= (int64_t)layout);
    assert_true(a->bound.least <= a->bound.peak && a->bound.peak <= peak && a->bound.step_s <= a->step);
    if (!s->offload) assert_true(fabs(a->found.step_s - a->step) <= 1e-9 * a->step + 1e-10); /* sums are rounded */
}

/* ---- statistics ---- */

typedef struct {
    double *values;
    int n, cap;
} Sample;

static inline void sample_add(Sample *s, double value) { MEM_PUSH(s->values, s->n, s->cap, value); }

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which so large a part lies; sorts. */
static inline double sample_at(Sample *s, double part)
{
    assert_true(s->n > 0);
    qsort(s->values, (size_t)s->n, sizeof *s->values, by_value);
    return s->values[(int)(part * (s->n - 1))];
}

static inline void sample_print(const char *name, Sample *s)
{
    print_message("%s: least %.4f, median %.4f, 95th percentile %.4f, worst %.4f of %d\n", name, sample_at(s, 0),
                  sample_at(s, 0.5), sample_at(s, 0.95), sample_at(s, 1), s->n);
}
