/* The model against PyTorch and Transformers (tests/golden/make_bert_golden.py): logits, loss, every gradient, and ten
   steps of each optimizer, in fp32, on every backend. */
#include "model/harness.h"

static const Optimizer base = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.1f, .max_grad_norm = 1};

static double loss_of(GoldenRun *r, const Golden *g, const GoldenBatch *b)
{
    Stats stats = run_stats(r);
    double loss = stats.loss[g->model.head.kind == HEAD_PRETRAINING] / b->n_seqs;
    return b->n_masked ? loss + stats.loss[0] / b->n_masked : loss;
}

static void check_forward(GoldenRun *r, Golden *g, const GoldenBatch *b)
{
    int64_t n;
    run_begin(r, b->n_seqs, b->n_masked);
    assert_ok(run_micro(r, b));
    if (r->t.logits != NONE) {
        float *want = golden_tensor(g, "logits", &n), *logits = mem_array((size_t)n, sizeof *logits);
        exec_download(r->exec, r->t.logits, logits, (size_t)n * sizeof *logits);
        double error = normalised_error(logits, want, n);
        if (!(error < 2e-6)) fail_msg("%s: logits are off by %g", g->dir, error);
        free(want);
        free(logits);
    }
    assert_true(fabs(loss_of(r, g, b) - js_real(js_get(g->json, "loss"), NAN)) < 1e-5);
}

static bool has_zero_gradient(const Golden *g, const char *name)
{
    const Json *list = js_get(g->json, "zero_gradient");
    for (size_t i = 0; i < js_size(list); i++)
        if (strcmp(js_string(js_at(list, i), ""), name) == 0) return true;
    return false;
}

static void check_gradients(GoldenRun *r, Golden *g)
{
    float *grads = run_flat(r, r->t.grads);
    for (int i = 0; i < g->model.params.count; i++) {
        const Param *p = &g->model.params.params[i];
        int64_t n;
        char *name = param_file_name(&g->model.params, p);
        float *want = golden_tensor(g, SHORT_TEXT("grad/%s", name), &n);
        assert_int_equal(n, param_exported(p));
        /* noise, compared with the gradient of the parameter before: of a key's bias the query's */
        if (has_zero_gradient(g, name)) {
            double scale = 0, norm = 0;
            for (int64_t k = 0; k < n; k++) {
                norm += (double)grads[p->offset + k] * grads[p->offset + k];
                double before = grads[p[-1].offset + k];
                scale += before * before;
            }
            if (!(sqrt(norm) <= 1e-4 * sqrt(scale))) fail_msg("%s: the gradient of %s should be 0", g->dir, p->name);
        } else {
            double error = normalised_error(grads + p->offset, want, n);
            if (!(error < 1e-5)) fail_msg("%s: the gradient of %s is off by %g", g->dir, p->name, error);
        }
        free(want);
        free(name);
    }
    free(grads);
}

static void check_model(const char *name, const char *backend)
{
    Golden g;
    GoldenRun r;
    GoldenBatch b;
    golden_open(&g, name);
    golden_batch(&g, 0, &b);
    run_open(&r, &g, &(RunOptions){.backend = backend, .compute = F32, .optimizer = base});
    check_forward(&r, &g, &b);
    check_gradients(&r, &g);
    run_close(&r);
    run_open(&r, &g, &(RunOptions){.backend = backend, .compute = F32, .evaluate = true});
    check_forward(&r, &g, &b);
    run_close(&r);
    golden_close(&g);
}

static const char *const models[] = {"tiny_cls",  "tiny_reg",   "tiny_pre",    "odd_pre",
                                     "gamma_cls", "distil_cls", "distil_span", "distil_mlm"};
static const char *const backends[] = {"ref", "cpu"};

static void test_forward_and_gradients(void **state)
{
    (void)state;
    for (size_t b = 0; b < 2; b++) {
        if (!run_possible(backends[b], F32)) continue;
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) check_model(models[m], backends[b]);
    }
}

static void check_params(GoldenRun *r, Golden *g, const Json *params, const char *kind)
{
    float *weights = run_flat(r, r->t.weights);
    for (size_t i = 0; i < js_size(params); i++) {
        const Json *want = js_at(params, i), *at = js_get(want, "at"), *values = js_get(want, "values");
        const char *name = js_string(js_get(want, "name"), "");
        if (has_zero_gradient(g, name)) continue;
        char *own = param_table_name(name);
        int k = params_find(&g->model.params, own);
        free(own);
        assert_true(k >= 0);
        double moved = js_real(js_get(want, "moved"), NAN);
        for (size_t j = 0; j < js_size(at); j++) {
            double found = weights[g->model.params.params[k].offset + js_int(js_at(at, j), 0)];
            double d = fabs(found - js_real(js_at(values, j), NAN));
            if (!(d <= 2e-4 * moved + 1e-9))
                fail_msg("%s %s: %s differs by %g, it moved by %g", g->dir, kind, name, d, moved);
        }
    }
    free(weights);
}

/* Ten steps, each of one batch split into micro-batches of `split` sequences. */
static void check_steps(const char *name, const char *backend, const char *kind, int split)
{
    Golden g;
    GoldenRun r;
    golden_open(&g, name);
    const Json *want = js_get(js_get(g.json, "optimizers"), kind);
    if (!want) {
        golden_close(&g);
        return;
    }
    Optimizer o = base;
    o.bias_correction = strcmp(kind, "bert_adamw") != 0;
    o.kind = strcmp(kind, "lamb") == 0     ? OPTIMIZER_LAMB
             : strcmp(kind, "nvlamb") == 0 ? OPTIMIZER_NVLAMB
                                           : OPTIMIZER_ADAMW;
    RateSchedule schedule = {.kind = SCHEDULE_LINEAR,
                             .learning_rate = js_real(js_get(want, "peak_lr"), NAN),
                             .warmup_steps = 2,
                             .total_steps = 10};
    run_open(&r, &g, &(RunOptions){.backend = backend, .compute = F32, .optimizer = o});
    for (int step = 1; step <= 10; step++) {
        const Json *at = js_at(js_get(want, "steps"), (size_t)step - 1);
        GoldenBatch b, part;
        golden_batch(&g, (step - 1) % 3, &b);
        run_begin(&r, b.n_seqs, b.n_masked);
        for (int s = 0; s < b.n_seqs; s += split) {
            golden_slice(&b, s, s + split <= b.n_seqs ? split : b.n_seqs - s, &part);
            assert_ok(run_micro(&r, &part));
        }
        double rate = rate_schedule_at(&schedule, step);
        assert_true(fabs(rate - js_real(js_get(at, "lr"), NAN)) < 1e-12);
        r.ctl.learning_rate = (float)rate;
        optim_bias(&o, step, &r.ctl.bias1, &r.ctl.bias2);
        exec_upload(r.exec, r.t.ctl, &r.ctl, sizeof r.ctl);
        assert_ok(exec_run(r.exec, r.plan.update, &r.plan.capacity));
        Stats stats = run_stats(&r);
        double loss = loss_of(&r, &g, &b), golden_loss = js_real(js_get(at, "loss"), NAN);
        double norm = js_real(js_get(at, "grad_norm"), NAN);
        if (!(fabs(loss - golden_loss) < 3e-5 * fmax(1, golden_loss))) /* form Y of LayerNorm costs some of it */
            fail_msg("%s %s on %s: loss of step %d is %.9g, expected %.9g", name, kind, backend, step, loss,
                     golden_loss);
        if (!(fabs(stats.grad_norm - norm) < 1e-4 * norm))
            fail_msg("%s %s: gradient norm of step %d is %.9g, expected %.9g", name, kind, step, stats.grad_norm, norm);
        assert_int_equal(stats.finite, 1);
    }
    check_params(&r, &g, js_get(want, "params"), kind);
    run_close(&r);
    golden_close(&g);
}

static void test_ten_steps(void **state)
{
    (void)state;
    static const char *const kinds[] = {"bert_adamw", "adamw", "lamb", "nvlamb"};
    for (size_t b = 0; b < 2; b++) {
        if (!run_possible(backends[b], F32)) continue;
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                check_steps(models[m], backends[b], kinds[k], 64);
                check_steps(models[m], backends[b], kinds[k], 3);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward_and_gradients), cmocka_unit_test(test_ten_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
