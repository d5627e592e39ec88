/* Losses that couple a step's sequences against PyTorch (tests/golden/make_embedding_golden.py): embeddings, the loss
   and every parameter's gradient, in fp32, however the step is divided into micro-batches. */
#include "model/harness.h"
#include "place_of.h"
#include "train/session/session.h"

enum { N_CASES = 7, MOST_SEQS = 18 };

typedef struct {
    MicroCapacity capacity;
    int64_t micros; /* of three texts */
} Division;
static const Division divisions[] = {{{256, MOST_SEQS, 0}, 1}, {{64, MOST_SEQS, 0}, 4}, {{256, 1, 0}, MOST_SEQS}};

typedef struct {
    Golden g;
    const Json *of; /* a member of its cases */
    Coupling coupling;
    int n_seqs;
    Examples data; /* sequence i of the step is example i */
    Backend *backend;
    RankPlace *place;
    Session session;
    MicroBatch batch;
    int64_t index[MOST_SEQS], order[MOST_SEQS];
    MicroRange ranges[MOST_SEQS];
} Step;

static void read_examples(Examples *e, const Json *batch)
{
    const Json *lengths = js_get(batch, "lengths"), *ids = js_get(batch, "input_ids");
    e->count = (int64_t)js_size(lengths);
    e->offset = mem_array(js_size(lengths) + 1, sizeof *e->offset);
    e->ids = mem_array(js_size(ids), sizeof *e->ids);
    e->types = mem_array(js_size(ids), sizeof *e->types);
    for (size_t i = 0; i < js_size(lengths); i++) e->offset[i + 1] = e->offset[i] + js_int(js_at(lengths, i), 0);
    for (size_t i = 0; i < js_size(ids); i++) e->ids[i] = (int32_t)js_int(js_at(ids, i), 0);
}

static Coupling coupling_of(const Json *all, const Json *of)
{
    const char *loss = js_string(js_get(of, "loss"), "");
    return (Coupling){.loss = strcmp(loss, "infonce") == 0  ? COUPLE_INFONCE
                              : strcmp(loss, "cosine") == 0 ? COUPLE_COSINE
                                                            : COUPLE_TRIPLET,
                      .rows = js_int(js_get(all, "rows"), 0),
                      .texts = (int)js_int(js_get(of, "texts"), 0),
                      .temperature = (float)js_real(js_get(all, "temperature"), NAN),
                      .margin = (float)js_real(js_get(all, "margin"), NAN),
                      .symmetric = js_bool(js_get(of, "symmetric"), false)};
}

static void open_step(Step *s, const char *backend, size_t number, const Division *d)
{
    *s = (Step){0};
    golden_open(&s->g, "embedding");
    s->of = js_at(js_get(s->g.json, "cases"), number);
    s->coupling = coupling_of(s->g.json, s->of);
    s->n_seqs = (int)s->coupling.rows * s->coupling.texts;
    s->g.model.pooling = strcmp(js_string(js_get(s->of, "pooling"), ""), "cls") == 0 ? POOLING_CLS : POOLING_MEAN;
    s->g.model.normalized = js_bool(js_get(s->of, "normalized"), false);
    read_examples(&s->data, js_at(js_get(s->g.json, "batches"), 0));
    for (int i = 0; i < MOST_SEQS; i++) s->index[i] = i;
    assert_ok(backend_open(backend, &(BackendOptions){.threads = 2}, &s->backend));
    s->place = place_of(&s->g.model, NULL, 1, 0, 8 << 10);
    PlanInput input = {.model = &s->g.model,
                       .backend = s->backend,
                       .compute = F32,
                       .training = true,
                       .evaluation = true,
                       .coupling = &s->coupling,
                       .place = s->place};
    RunPlan plan;
    run_plan_init(&plan, &input);
    plan.micro = d->capacity;
    plan.eval_micro = divisions[0].capacity;
    assert_ok(run_plan_make(&plan));
    assert_ok(session_open(&s->session, &plan, &(SessionOptions){.backend = s->backend}));
    memcpy(session_fill(&s->session), s->g.weights, (size_t)s->g.model.params.size * sizeof *s->g.weights);
    assert_ok(session_ready(&s->session));
    micro_batch_init(&s->batch, d->capacity);
}

static void close_step(Step *s)
{
    micro_batch_free(&s->batch);
    session_close(&s->session);
    place_free(s->place);
    backend_close(s->backend);
    examples_free(&s->data);
    golden_close(&s->g);
}

static const MicroBatch *fill(void *self, int share, int64_t m)
{
    Step *s = self;
    (void)share;
    micro_fill(&s->batch, &s->data, s->index, s->order + s->ranges[m].first, s->ranges[m].count, 0, 0);
    return &s->batch;
}

static float *golden_of(const Step *s, const char *what, int64_t *n)
{
    return golden_tensor(&s->g, SHORT_TEXT("%s/%s", js_string(js_get(s->of, "name"), ""), what), n);
}

static void expect_error(const Step *s, const char *what, double error, double most)
{
    if (!(error <= most))
        fail_msg("%s of case %s on %s is off by %g, at most %g", what, js_string(js_get(s->of, "name"), ""),
                 s->backend->name, error, most);
}

/* Some gradients are 0 but for rounding: that of a key's bias, and with a loss of distances that of a bias which all
   vectors share. So a tenth of the whole gradient counts with each. */
static void check_gradients(const Step *s, const float *grads)
{
    const int64_t stride = js_int(js_get(s->g.json, "stride"), 0);
    const ParamTable *params = &s->g.model.params;
    double *errors = mem_array((size_t)params->count, sizeof *errors), error = 0;
    double *sizes = mem_array((size_t)params->count, sizeof *sizes), size = 0;
    for (int i = 0; i < params->count; i++) {
        int64_t n;
        float *want = golden_of(s, SHORT_TEXT("grad/%s", params->params[i].name), &n);
        for (int64_t k = 0; k < n; k++) {
            double d = (double)grads[params->params[i].offset + k * stride] - (double)want[k];
            errors[i] += d * d;
            sizes[i] += (double)want[k] * (double)want[k];
        }
        error += errors[i];
        size += sizes[i];
        free(want);
    }
    for (int i = 0; i < params->count; i++)
        expect_error(s, params->params[i].name, sqrt(errors[i]) / (sqrt(sizes[i]) + 0.1 * sqrt(size)), 2e-6);
    expect_error(s, "the gradient", sqrt(error / size), 1e-6);
    MEM_FREE(errors, sizes);
}

static void check_step(const char *backend, size_t number, const Division *d)
{
    Step s;
    Stats stats;
    open_step(&s, backend, number, d);
    assert_int_equal(js_size(js_get(s.g.json, "cases")), N_CASES);
    const double terms = coupling_terms(&s.coupling, s.n_seqs);
    const Json *scores = js_get(s.g.json, "scores");
    float of_rows[MOST_SEQS];
    for (size_t i = 0; i < js_size(scores); i++) of_rows[i] = (float)js_real(js_at(scores, i), NAN);
    SessionShare share = {.micros = micro_split(&s.data, s.index, NULL, s.n_seqs, &d->capacity, 0, s.order, s.ranges)};
    if (s.coupling.texts == 3) assert_int_equal(share.micros, d->micros);
    assert_ok(session_begin(&s.session, 0, terms, 0));
    assert_ok(session_run(&s.session, &(SessionStep){.shares = &share,
                                                     .n_shares = 1,
                                                     .data_rows = s.coupling.rows,
                                                     .scores = of_rows,
                                                     .sums = true,
                                                     .fill = fill,
                                                     .self = &s}));
    const ModelTensors *t = &s.session.plan.chunk->train_tensors;
    float *grads = mem_array((size_t)s.g.model.params.size, sizeof *grads);
    assert_ok(exec_download(s.session.train[0], t->stats, &stats, sizeof stats));
    assert_ok(exec_download(s.session.train[0], t->grads, grads, (size_t)s.g.model.params.size * sizeof *grads));
    expect_error(&s, "the loss", fabs(stats.loss[0] / terms - js_real(js_get(s.of, "value"), NAN)), 1e-5);
    check_gradients(&s, grads);
    free(grads);
    close_step(&s);
}

static const char *const backends[] = {"ref", "cpu", "cuda_host"};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

static void test_gradients(void **state)
{
    (void)state;
    for (int b = 0; b < N_BACKENDS; b++) {
        if (!run_possible(backends[b], F32)) continue;
        for (size_t d = 0; d < sizeof divisions / sizeof *divisions; d++)
            for (size_t k = 0; k < N_CASES; k++) check_step(backends[b], k, &divisions[d]);
    }
}

static void check_embeddings(const char *backend, size_t number)
{
    Step s;
    int64_t n;
    float loss[MOST_SEQS];
    open_step(&s, backend, number, divisions);
    float *want = golden_of(&s, "embedding", &n), *found = mem_array((size_t)n, sizeof *found);
    micro_fill(&s.batch, &s.data, s.index, s.index, s.n_seqs, 0, 0);
    assert_ok(session_evaluate(&s.session, &s.batch, found, loss));
    expect_error(&s, "an embedding", normalised_error(found, want, n), 1e-6);
    free(want);
    free(found);
    close_step(&s);
}

static void test_embeddings(void **state)
{
    (void)state;
    for (int b = 0; b < N_BACKENDS; b++) {
        if (!run_possible(backends[b], F32)) continue;
        for (size_t k = 0; k < N_CASES; k++) check_embeddings(backends[b], k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_embeddings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
