/* K-FAC in a training: its preconditioned gradients against formulas in double, from operands that are recorded at the
   weight gradients; the same bits at every level, with poison, after a save in any step; its refreshes, lag and memory.
 */
#include "equiv/training.h"

enum { LAYERS = 2, LINEARS = 6 * LAYERS, SIDE = 64, STEPS = 8 };

/* ---- recording ---- */

static struct {
    OpRun *wgrad;
    const Training *of;
    int n_tokens; /* of the micro-batch that runs */
    double *a[LINEARS], *b[LINEARS];
} record;

static void add_moments(double *to, int64_t n, const float *x, int64_t cols, int64_t first)
{
    for (int r = 0; r < record.n_tokens; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                to[i * n + j] += (double)x[r * cols + first + i] * (double)x[r * cols + first + j];
}

static Status recording_wgrad(const OpCall *call, const RowCounts *rows)
{
    const float *dw = OUT(call, LINEAR_WGRAD, dw)->data, *grads = record.of->session.memory[0].base[REGION_GRAD];
    const KfacPlan *plan = &record.of->place->kfac.plan;
    int64_t place = dw - grads, n = call->attr.linear.n, k = call->attr.linear.k;
    for (int i = 0; i < plan->n; i++) {
        const KfacLinear *l = &plan->linears[i];
        if (l->weight < place || l->weight >= place + n * k) continue;
        add_moments(record.a[i], l->k, IN(call, LINEAR_WGRAD, x)->data, k, 0);
        add_moments(record.b[i], l->n, IN(call, LINEAR_WGRAD, dy)->data, n, (l->weight - place) / k);
    }
    return record.wgrad(call, rows);
}

static void replace_wgrad(Backend *b)
{
    record.wgrad = b->op[OP_LINEAR_WGRAD].run;
    b->op[OP_LINEAR_WGRAD].run = recording_wgrad;
}

/* ---- the formulas ---- */

/* x (n, columns) = m⁻¹·x, m (n, n) symmetric, by elimination with pivoting. */
static void solve(const double *m, int64_t n, double *x, int64_t columns)
{
    double *left = mem_array((size_t)(n * n), sizeof *left);
    memcpy(left, m, (size_t)(n * n) * sizeof *left);
    for (int64_t c = 0; c < n; c++) {
        int64_t best = c;
        for (int64_t i = c; i < n; i++)
            if (fabs(left[i * n + c]) > fabs(left[best * n + c])) best = i;
        for (int64_t j = 0; j < n; j++) {
            double t = left[best * n + j];
            left[best * n + j] = left[c * n + j], left[c * n + j] = t;
        }
        for (int64_t j = 0; j < columns; j++) {
            double t = x[best * columns + j];
            x[best * columns + j] = x[c * columns + j], x[c * columns + j] = t;
        }
        for (int64_t i = 0; i < n; i++) {
            double factor = left[i * n + c] / left[c * n + c];
            if (i == c) continue;
            for (int64_t j = 0; j < n; j++) left[i * n + j] -= factor * left[c * n + j];
            for (int64_t j = 0; j < columns; j++) x[i * columns + j] -= factor * x[c * columns + j];
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < columns; j++) x[i * columns + j] /= left[i * n + i];
    free(left);
}

static double damp(double *m, int64_t n, double scale)
{
    double trace = 0;
    for (int64_t i = 0; i < n * n; i++) m[i] *= scale;
    for (int64_t i = 0; i < n; i++) trace += m[i * n + i];
    return trace / (double)n;
}

/* (A + γI)⁻¹ and (B + γI)⁻¹ around dw (n, k), and db (n), all of one linear. */
static void precondition(double *a, double *b, const KfacLinear *l, int tokens, double lambda, double *dw, double *db)
{
    double pi = sqrt(damp(a, l->k, 1.0 / tokens) / damp(b, l->n, tokens));
    double *turned = mem_array((size_t)(l->n * l->k), sizeof *turned);
    for (int64_t i = 0; i < l->k; i++) a[i * l->k + i] += sqrt(lambda) * pi;
    for (int64_t i = 0; i < l->n; i++) b[i * l->n + i] += sqrt(lambda) / pi;
    solve(b, l->n, dw, l->k);
    solve(b, l->n, db, 1);
    for (int64_t i = 0; i < l->n * l->k; i++) turned[i % l->k * l->n + i / l->k] = dw[i];
    solve(a, l->k, turned, l->n);
    for (int64_t i = 0; i < l->n * l->k; i++) dw[i] = turned[i % l->k * l->n + i / l->k];
    free(turned);
}

static void begin_step(Training *t, int step, int *n_seqs)
{
    int n_tokens = 0;
    *n_seqs = 0;
    for (int m = 0; m < TRAINING_MICROS; m++) {
        *n_seqs += t->batch[m].n_seqs;
        n_tokens += t->batch[m].n_tokens;
    }
    assert_ok(session_begin(&t->session, (uint32_t)step, *n_seqs, 0));
    assert_ok(session_gather(&t->session, step, n_tokens));
}

static void check_linear(const Training *t, int i, int tokens, const float *before, const float *after, double lambda)
{
    const KfacLinear *l = &t->place->kfac.plan.linears[i];
    double *dw = mem_array((size_t)(l->n * l->k), sizeof *dw), *db = mem_array((size_t)l->n, sizeof *db);
    double error = 0, size = 0;
    for (int64_t j = 0; j < l->n * l->k; j++) dw[j] = (double)before[l->weight + j];
    for (int64_t j = 0; j < l->n; j++) db[j] = (double)before[l->bias + j];
    precondition(record.a[i], record.b[i], l, tokens, lambda, dw, db);
    for (int64_t j = 0; j < l->n * l->k; j++) {
        error += pow(dw[j] - (double)after[l->weight + j], 2);
        size += dw[j] * dw[j];
    }
    if (!(sqrt(error / size) < 1e-3)) fail_msg("linear %d: dw is off by %g", i, sqrt(error / size));
    error = size = 0;
    for (int64_t j = 0; j < l->n; j++) {
        error += pow(db[j] - (double)after[l->bias + j], 2);
        size += db[j] * db[j];
    }
    if (i % 6 != 3 && !(sqrt(error / size) < 1e-3)) /* the key's bias has no gradient but noise */
        fail_msg("linear %d: db is off by %g", i, sqrt(error / size));
    free(dw);
    free(db);
}

/* All gradients of two steps, the second with the statistics of the first. */
static void check_formulas(const char *backend)
{
    Training t;
    TrainingOptions o = {
        .backend = backend, .compute = F32, .change = replace_wgrad, .kfac = {.interval = 2, .damping = 1e-3}};
    Stats stats;
    int n_seqs, tokens = 0;
    training_open(&t, &o);
    training_begin(&t);
    record.of = &t;
    assert_int_equal(t.place->kfac.plan.n, LINEARS);
    for (int i = 0; i < LINEARS; i++) {
        record.a[i] = mem_array(SIDE * SIDE, sizeof(double));
        record.b[i] = mem_array(SIDE * SIDE, sizeof(double));
    }
    begin_step(&t, 1, &n_seqs);
    for (int m = 0; m < TRAINING_MICROS; m++) {
        record.n_tokens = t.batch[m].n_tokens;
        tokens += record.n_tokens;
        assert_ok(training_micros(&t, m, 1));
    }
    const float *grads = t.session.memory[0].base[REGION_GRAD];
    size_t bytes = (size_t)t.model.params.size * sizeof(float);
    float *before = mem_alloc(bytes);
    memcpy(before, grads, bytes);
    assert_ok(session_update(&t.session, &t.optimizer, 1, 1e-3, &stats));
    assert_int_equal(t.session.kfac.failed, 0);
    double squares[2] = {0, 0};
    for (int i = 0; i < t.model.params.count; i++) {
        const Param *p = &t.model.params.params[i];
        bool linear = false;
        for (int l = 0; l < LINEARS; l++)
            linear |=
                p->offset == t.place->kfac.plan.linears[l].weight || p->offset == t.place->kfac.plan.linears[l].bias;
        for (int64_t j = 0; j < param_held(p); j++) squares[linear] += pow((double)grads[p->offset + j], 2);
        if (!linear) assert_memory_equal(grads + p->offset, before + p->offset, (size_t)param_held(p) * sizeof(float));
    }
    assert_true(fabs(stats.grad_norm - sqrt(squares[0])) < 1e-9 * stats.grad_norm);
    assert_true(fabs(stats.kfac_norm - sqrt(squares[1])) < 1e-9 * stats.kfac_norm);
    assert_true(stats.kfac_norm > 1 && fabs((double)stats.kfac_scale * stats.kfac_norm - 1) < 1e-6); /* clipped to 1 */
    for (int i = 0; i < LINEARS; i++) check_linear(&t, i, tokens, before, grads, 1e-3);
    for (int i = 0; i < LINEARS; i++) {
        free(record.a[i]);
        free(record.b[i]);
    }
    free(before);
    training_close(&t);
}

static bool opens(const char *name)
{
    Backend *b;
    bool good = backend_open(name, NULL, &b) == OK;
    if (good) backend_close(b);
    return good;
}

static void test_formulas(void **state)
{
    (void)state;
    check_formulas("ref");
    if (opens("cpu")) check_formulas("cpu");
}

/* ---- the same bits ---- */

static void open_begun(Training *t, const TrainingOptions *o)
{
    training_open(t, o);
    training_begin(t);
}

static void test_levels(void **state)
{
    static const char *const policies[] = {"lean", "ffn", "selective", "full", "every:2"};
    (void)state;
    for (int lag = 0; lag < 2; lag++) {
        Training whole;
        TrainingOptions o = {
            .backend = "ref", .compute = F32, .kfac = {.interval = 3, .lag = 2 * lag, .damping = 1e-3}};
        open_begun(&whole, &o);
        training_steps(&whole, 0, STEPS);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            Training other;
            o.policy = policies[p];
            o.poison = p % 2;
            open_begun(&other, &o);
            training_steps(&other, 0, STEPS);
            training_same_bits(&other, &whole, 0, STEPS, policies[p]);
            training_close(&other);
        }
        training_close(&whole);
    }
}

/* Stopped within a step, saved, loaded into another session, continued: the state of the uninterrupted run. */
static void resume_after(const Training *whole, const TrainingOptions *o, int stop)
{
    Training first, second;
    char *dir = testing_directory();
    int n_seqs;
    open_begun(&first, o);
    training_steps(&first, 0, stop);
    begin_step(&first, stop + 1, &n_seqs);
    assert_ok(training_micros(&first, 0, 1));
    assert_ok(training_save(&first, dir, stop));
    training_close(&first);
    training_open(&second, o);
    training_load(&second, dir, stop);
    training_steps(&second, stop, STEPS);
    training_same_bits(&second, whole, stop, STEPS, "resumed");
    const float *a = session_kfac_set(&whole->session, false), *b = session_kfac_set(&second.session, false);
    assert_memory_equal(a, b, (size_t)whole->place->kfac.table.size * sizeof *a);
    training_close(&second);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void test_resume(void **state)
{
    static const int lags[] = {0, 2, 3};
    (void)state;
    for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
        Training whole;
        TrainingOptions o = {
            .backend = "ref", .compute = F32, .kfac = {.interval = 3, .lag = lags[l], .damping = 1e-3}};
        open_begun(&whole, &o);
        training_steps(&whole, 0, STEPS);
        for (int stop = testing_deep() ? 1 : 3; stop < STEPS - 1; stop++) resume_after(&whole, &o, stop);
        training_close(&whole);
    }
}

/* ---- when ---- */

static void test_schedule(void **state)
{
    (void)state;
    /* of steps 1 to 9 with K = 3: the set in use, and how it came there */
    static const struct {
        int lag;
        const char *sets, *before, *after;
    } cases[] = {{0, "000111222", "---------", "x--x--x--"},
                 {1, "000011122", "----x--x-", "x--------"},
                 {2, "000001112", "-----x--x", "x--------"},
                 {3, "000000111", "------x--", "x--------"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int step = 1; step <= 9; step++) {
            Kfac k = {.interval = 3, .lag = cases[c].lag};
            assert_int_equal(kfac_refreshes(&k, step), step % 3 == 1);
            assert_int_equal(kfac_set(&k, step), cases[c].sets[step - 1] - '0');
            assert_int_equal(kfac_adopts_before(&k, step), cases[c].before[step - 1] == 'x');
            assert_int_equal(kfac_adopts_after(&k, step), cases[c].after[step - 1] == 'x');
        }
}

/* With a lag a step uses the inverses of earlier statistics: losses differ from those without from the first step on
   that uses others, and not before. */
static void test_lag(void **state)
{
    (void)state;
    Training none, lag;
    TrainingOptions o = {.backend = "ref", .compute = F32, .kfac = {.interval = 3, .damping = 1e-3}};
    open_begun(&none, &o);
    training_steps(&none, 0, STEPS);
    o.kfac.lag = 2;
    open_begun(&lag, &o);
    training_steps(&lag, 0, STEPS);
    for (int i = 0; i < STEPS; i++) assert_int_equal(none.loss[i] == lag.loss[i], i < 4); /* step 4 refreshes */
    training_close(&none);
    training_close(&lag);
}

/* The inverses of step 4's statistics are used from step 6 on. */
static void test_adoption(void **state)
{
    (void)state;
    Training t;
    TrainingOptions o = {.backend = "ref", .compute = F32, .kfac = {.interval = 3, .lag = 2, .damping = 1e-3}};
    open_begun(&t, &o);
    training_steps(&t, 0, 3);
    size_t bytes = (size_t)t.place->kfac.table.size * sizeof(float);
    float *first = mem_alloc(bytes), *second = mem_alloc(bytes);
    const float *used = session_kfac_set(&t.session, false);
    memcpy(first, used, bytes);
    training_steps(&t, 3, 4);
    memcpy(second, session_kfac_set(&t.session, true), bytes);
    assert_memory_not_equal(first, second, bytes);
    training_steps(&t, 4, 5);
    assert_memory_equal(used, first, bytes);
    training_steps(&t, 5, 6);
    assert_memory_equal(used, second, bytes);
    assert_ok(session_drop_gathered(&t.session, 7)); /* has not begun */
    assert_memory_equal(session_kfac_set(&t.session, true), second, bytes);
    training_steps(&t, 6, 7); /* refreshes: as a step that failed, it is made again */
    assert_ok(session_drop_gathered(&t.session, 7));
    for (int i = 0; i < t.place->kfac.plan.n; i++)
        assert_true(session_kfac_set(&t.session, true)[t.place->kfac.plan.linears[i].flag] == 0);
    training_steps(&t, 7, 9);
    assert_memory_equal(used, second, bytes);
    free(first);
    free(second);
    training_close(&t);
}

/* A step that failed is made again to find out why: what its update inverted is not put in use. */
static void test_gathered_again(void **state)
{
    (void)state;
    Training t;
    TrainingOptions o = {.backend = "ref", .compute = F32, .kfac = {.interval = 3, .lag = 3, .damping = 1e-3}};
    open_begun(&t, &o);
    training_steps(&t, 0, 7);
    size_t bytes = (size_t)t.place->kfac.table.size * sizeof(float);
    float *used = mem_alloc(bytes);
    memcpy(used, session_kfac_set(&t.session, false), bytes);
    assert_memory_not_equal(session_kfac_set(&t.session, true), used, bytes);
    assert_ok(session_gather(&t.session, 7, 1));
    assert_memory_equal(session_kfac_set(&t.session, false), used, bytes);
    free(used);
    training_close(&t);
}

/* A linear whose inversion fails keeps its former inverses, and none is left without preconditioning for it. */
static void test_failed_inversion(void **state)
{
    (void)state;
    Training t;
    Stats stats;
    int n_seqs;
    TrainingOptions o = {.backend = "ref", .compute = F32, .kfac = {.interval = 1, .damping = 1e-3}};
    open_begun(&t, &o);
    training_steps(&t, 0, 1);
    const KfacLinear *l = &t.place->kfac.plan.linears[LINEARS - 1];
    size_t bytes = (size_t)t.place->kfac.table.size * sizeof(float);
    float *used = session_kfac_set(&t.session, false), *before = mem_alloc(bytes);
    memcpy(before, used, bytes);
    begin_step(&t, 2, &n_seqs);
    assert_ok(training_micros(&t, 0, TRAINING_MICROS));
    session_kfac_set(&t.session, true)[l->b] = NAN;
    assert_ok(session_update(&t.session, &t.optimizer, 2, 1e-3, &stats));
    assert_int_equal(t.session.kfac.failed, 1);
    assert_int_equal(stats.finite, 1);
    assert_memory_equal(used + l->a, before + l->a, (size_t)(l->k * l->k) * sizeof *used);
    assert_memory_equal(used + l->b, before + l->b, (size_t)(l->n * l->n) * sizeof *used);
    assert_true(used[l->flag] == 1);
    const KfacLinear *other = &t.place->kfac.plan.linears[0];
    assert_memory_not_equal(used + other->a, before + other->a, (size_t)(other->k * other->k) * sizeof *used);
    free(before);
    training_close(&t);
}

/* It learns two batches. */
static void test_learns(void **state)
{
    (void)state;
    Training t;
    TrainingOptions o = {
        .backend = "ref", .compute = F32, .no_dropout = true, .kfac = {.interval = 2, .damping = 1e-3}};
    open_begun(&t, &o);
    training_steps(&t, 0, TRAINING_STEPS);
    assert_true(t.loss[TRAINING_STEPS - 1] < 0.93 * t.loss[0]);
    training_close(&t);
}

/* ---- memory and the plan ---- */

/* 42 H² elements a layer and set where the feed-forward is 4 H wide, and a line for each flag. */
static void test_memory(void **state)
{
    (void)state;
    static const char sizes[] = "{\"vocab_size\": 300, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 256, "
                                "\"max_position_embeddings\": 64}";
    for (int lag = 0; lag < 2; lag++) {
        Training t;
        TrainingOptions o = {
            .backend = "ref", .compute = F32, .sizes = sizes, .kfac = {.interval = 4, .lag = lag, .damping = 1e-3}};
        training_open(&t, &o);
        const Plan *p = &t.session.plan.chunk->train;
        /* a triangle of 64 rows, rounded up to a line of 64 elements, and one of 256, which needs none */
        size_t packed = LAYERS * (10 * (64 * 65 / 2 + 32) + 2 * 256 * 257 / 2 + 6 * PARAM_ALIGN);
        size_t set = LAYERS * (42 * 64 * 64 + 6 * PARAM_ALIGN) * sizeof(float);
        assert_int_equal(p->region_bytes[REGION_KFAC], 2 * set);
        assert_int_equal(p->region_bytes[REGION_SAVE],
                         (3 * (size_t)t.model.params.size + (lag ? 2 : 1) * packed) * sizeof(float));
        int ops[N_OPS] = {0};
        for (InstrId i = 0; i < p->n_instrs; i++) ops[p->instrs[i].op]++;
        assert_int_equal(ops[OP_CURVATURE], LAYERS * (4 + 6)); /* query, key and value have one A */
        assert_int_equal(ops[OP_INVERT], 2 * LINEARS);
        assert_int_equal(ops[OP_ADOPT], LINEARS);
        assert_int_equal(ops[OP_PRECONDITION], LINEARS);
        training_close(&t);
    }
}

/* The verifier sees statistics that are not cleared. */
static void test_verifier(void **state)
{
    (void)state;
    Training t;
    TrainingOptions o = {.backend = "ref", .compute = F32, .kfac = {.interval = 4, .damping = 1e-3}};
    training_open(&t, &o);
    Plan *p = &t.session.plan.chunk->train;
    assert_ok(plan_verify(p));
    p->gather.count = 0;
    assert_status(plan_verify(p), E_FAIL);
    assert_message("is accumulated into");
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_lag),
        cmocka_unit_test(test_adoption),
        cmocka_unit_test(test_gathered_again),
        cmocka_unit_test(test_failed_inversion),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_verifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
