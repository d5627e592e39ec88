/* Every recompute policy, and random mixtures of parts, give the gradients of `none` to the last bit, with dropout, for
   all heads and LayerNorm forms; under `test.sh deep` each policy at several splits into micro-batches, with poison and
   without. The splits agree to rounding. */
#include "mixture.h"
#include "model/harness.h"

static const char *const policies[] = {"none", "lean",    "ffn",     "selective", "half-attention",
                                       "full", "offload", "every:1", "every:2",   "every:3"};
static const int splits[] = {64, 3, 1};

static AuditFound found; /* by the last run's audit */

/* Gradients and loss of batch 0 under a policy. Caller frees. */
static float *gradients(Golden *g, const RunOptions *o, int split, Stats *stats)
{
    GoldenRun r;
    GoldenBatch b, part;
    golden_batch(g, 0, &b);
    run_open(&r, g, o);
    r.ctl.batch = 7;
    run_begin(&r, b.n_seqs, b.n_masked);
    for (int s = 0; s < b.n_seqs; s += split) {
        golden_slice(&b, s, s + split <= b.n_seqs ? split : b.n_seqs - s, &part);
        assert_ok(run_micro(&r, &part));
    }
    *stats = run_stats(&r);
    float *grads = run_flat(&r, r.t.grads);
    found = (AuditFound){0};
    if (r.t.audit != NONE) exec_download(r.exec, r.t.audit, &found, sizeof found);
    run_close(&r);
    return grads;
}

static bool same_losses(const Stats *a, const Stats *b) { return !memcmp(a, b, offsetof(Stats, grad_norm)); }

/* Checks every policy; quickly every third with poison, another third at the next split and call. */
static void check_bits(Golden *g, const char *backend, Dtype compute, const uint8_t *forms)
{
    static size_t calls;
    const bool quick = !testing_deep();
    size_t turn = calls++;
    LayerKeep keeps[64];
    size_t bytes = (size_t)g->model.params.size * sizeof(float);
    Optimizer optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f};
    for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
        float *want = NULL;
        Stats want_stats = {0};
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            Policy policy;
            if (quick && p > 0 && (p + s + turn) % 3 != 0) continue;
            assert_ok(policy_parse(policies[p], &policy));
            policy_keeps(&policy, g->model.config.layers, keeps);
            for (int poison = 0; poison < 2; poison++) {
                Stats stats;
                if (quick && p > 0 && !poison) continue;
                RunOptions o = {.backend = backend,
                                .compute = compute,
                                .keeps = keeps,
                                .optimizer = optimizer,
                                .exec = {.poison = poison},
                                .forms = forms};
                float *grads = gradients(g, &o, splits[s], &stats);
                for (int64_t i = 0; i < g->model.params.size; i++) assert_true(isfinite(grads[i]));
                if (!want) {
                    want = grads;
                    want_stats = stats;
                    continue;
                }
                if (memcmp(grads, want, bytes) != 0 || !same_losses(&stats, &want_stats))
                    fail_msg("%s on %s in %s: gradients of '%s'%s differ from those of 'none' (%d sequences per "
                             "micro-batch)",
                             g->dir, backend, dtype_name(compute), policies[p], poison ? ", poisoned," : "", splits[s]);
                free(grads);
            }
        }
        free(want);
    }
}

static const struct {
    const char *backend;
    Dtype compute;
} kinds[] = {{"ref", F32}, {"ref", BF16}, {"ref", F16}, {"cpu", F32}, {"cpu", BF16}};

static const char *const models[] = {"tiny_cls", "tiny_reg", "odd_pre", "gamma_cls", "distil_span"};

static void test_policies_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!run_possible(kinds[k].backend, kinds[k].compute)) continue;
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
            Golden g;
            golden_open(&g, models[m]);
            model_config_set_dropout(&g.model.config, 0.1f);
            check_bits(&g, kinds[k].backend, kinds[k].compute, NULL);
            golden_close(&g);
        }
    }
}

static bool fuses_all(const OpCall *call) { return call->attr.linear.fused; }
static void fuse(Backend *b) { b->fuses = fuses_all; }
static int apart; /* GELUs and GELU_BWDs of the last plan */
static void count_apart(Plan *p)
{
    apart = 0;
    for (InstrId i = 0; i < p->n_instrs; i++) apart += p->instrs[i].op == OP_GELU || p->instrs[i].op == OP_GELU_BWD;
}

/* Products with GELU in one instr are on ref the bits of two, in every policy, and what is made again has the bits of
   the first time. */
static void test_fused_gives_the_same_bits(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
            Golden g;
            LayerKeep keeps[64] = {{0}};
            Stats want_stats, stats;
            golden_open(&g, models[m]);
            model_config_set_dropout(&g.model.config, 0.1f);
            RunOptions o = {.backend = "ref",
                            .compute = t ? BF16 : F32,
                            .keeps = keeps,
                            .optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}};
            float *want = gradients(&g, &o, 3, &want_stats);
            o.change = fuse;
            o.rewrite = count_apart;
            o.exec.poison = o.audit = true;
            for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
                Policy policy;
                assert_ok(policy_parse(policies[p], &policy));
                policy_keeps(&policy, g.model.config.layers, keeps);
                float *grads = gradients(&g, &o, 3, &stats);
                if (memcmp(grads, want, (size_t)g.model.params.size * sizeof *grads) != 0 ||
                    !same_losses(&stats, &want_stats))
                    fail_msg("%s in %s: fused gradients of '%s' differ", models[m], dtype_name(o.compute), policies[p]);
                assert_int_equal(found.rows, 0);
                assert_int_equal(apart, g.model.head.kind == HEAD_PRETRAINING ? 1 : 0); /* the MLM head's backward */
                free(grads);
            }
            free(want);
            golden_close(&g);
        }
}

/* All LayerNorms in form XHAT: y is rebuilt from xhat wherever backward needs it. */
static void test_xhat_form_gives_the_same_bits(void **state)
{
    uint8_t forms[64];
    (void)state;
    memset(forms, NORM_FORM_XHAT, sizeof forms);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!run_possible(kinds[k].backend, kinds[k].compute)) continue;
        Golden g;
        golden_open(&g, "odd_pre");
        model_config_set_dropout(&g.model.config, 0.2f);
        check_bits(&g, kinds[k].backend, kinds[k].compute, forms);
        golden_close(&g);
    }
}

/* Random numbers choose the kind, the model, the forms that are not given by its weights, the split, what layers keep
   and whether recomputed tensors are compared with their first values. */
static bool check_mixture(int number)
{
    Golden g;
    LayerKeep keeps[8];
    uint8_t forms[17];
    Stats want_stats, stats;
    uint64_t seed = mixture_seed(number), r = testing_random(&seed) >> 16;
    size_t kind = r % (sizeof kinds / sizeof *kinds), model = (r >> 8) % 4;
    const int split = splits[(r >> 16) % 3];
    if (!run_possible(kinds[kind].backend, kinds[kind].compute)) return false;
    golden_open(&g, models[model]);
    model_config_set_dropout(&g.model.config, 0.1f);
    const int layers = g.model.config.layers;
    model_norm_forms(&g.model, g.weights, forms);
    for (int f = 0; f <= 2 * layers; f++)
        if (testing_random(&seed) >> 63) forms[f] = NORM_FORM_XHAT;
    mixture_draw(&seed, true, layers, keeps);
    RunOptions o = {
        .backend = kinds[kind].backend, .compute = kinds[kind].compute, .forms = forms, .optimizer = {.eps = 1e-6f}};
    float *want = gradients(&g, &o, split, &want_stats);
    o.keeps = keeps;
    o.audit = r >> 24 & 1;
    if (strcmp(o.backend, "ref") == 0 && r >> 25 & 1) o.change = fuse;
    o.exec.poison = true;
    float *grads = gradients(&g, &o, split, &stats);
    char *name = mixture_name(keeps, layers);
    for (int64_t i = 0; i < g.model.params.size; i++) assert_true(isfinite(want[i]));
    if (found.rows)
        fail_msg("mixture %d: %s on %s in %s, '%s': %lld recomputed rows differ", number, g.dir, o.backend,
                 dtype_name(o.compute), name, (long long)found.rows);
    if (memcmp(grads, want, (size_t)g.model.params.size * sizeof *want) != 0 || !same_losses(&stats, &want_stats))
        fail_msg("mixture %d: %s on %s in %s, '%s'%s: gradients differ from those of 'none' (%d sequences per "
                 "micro-batch)",
                 number, g.dir, o.backend, dtype_name(o.compute), name, o.audit ? ", audited" : "", split);
    MEM_FREE(want, grads, name);
    golden_close(&g);
    return true;
}

static void test_mixtures_give_the_same_bits(void **state)
{
    int checked = 0, n = testing_rounds(40, 400);
    (void)state;
    for (int i = 0; i < n; i++) checked += check_mixture(i);
    print_message("%d mixtures have the bits of none\n", checked);
    assert_true(checked > n / 4);
}

static void test_splits_agree_to_rounding(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!run_possible(kinds[k].backend, kinds[k].compute)) continue;
        Golden g;
        Stats whole_stats, split_stats;
        golden_open(&g, "tiny_pre");
        model_config_set_dropout(&g.model.config, 0.1f);
        RunOptions o = {.backend = kinds[k].backend, .compute = kinds[k].compute, .optimizer = {.eps = 1e-6f}};
        float *whole = gradients(&g, &o, 64, &whole_stats), *parts = gradients(&g, &o, 2, &split_stats);
        double error = normalised_error(parts, whole, g.model.params.size);
        double bound = kinds[k].compute == F32 ? 1e-5 : 1e-2;
        if (!(error < bound)) fail_msg("%s: split gradients are off by %g", kinds[k].backend, error);
        /* the same rows, the same masks: the losses of single rows are the same bits, only their sum is in another
         * order */
        assert_true(fabs(whole_stats.loss[0] - split_stats.loss[0]) <= 1e-12 * fabs(whole_stats.loss[0]));
        free(whole);
        free(parts);
        golden_close(&g);
    }
}

static RowKind rows_of_last_layer(Golden *g, const RunOptions *o)
{
    GoldenRun r;
    char name[24];
    run_open(&r, g, o);
    snprintf(name, sizeof name, "l%d.pre", g->model.config.layers - 1);
    RowKind kind = r.plan.tensors[plan_find(&r.plan, name)].rows.kind;
    run_close(&r);
    return kind;
}

/* With K-FAC the last layer computes all rows, of which the heads read some: the losses have the same bits, and the
   gradients differ by the order of sums. */
static void test_rows_that_no_head_reads(void **state)
{
    (void)state;
    for (size_t m = 0; m < 4; m += 2)
        for (int xhat = 0; xhat < 2; xhat++) {
            Golden g;
            Kfac kfac;
            Stats some_stats, all_stats;
            uint8_t forms[64];
            golden_open(&g, models[m]);
            model_config_set_dropout(&g.model.config, 0.1f);
            memset(forms, xhat ? NORM_FORM_XHAT : NORM_FORM_Y, sizeof forms);
            kfac_init_whole(&kfac, &(KfacOptions){.interval = 1, .damping = 1e-3}, &g.model, 1, 0);
            RunOptions o = {.backend = "cpu", .compute = F32, .forms = forms, .optimizer = {.eps = 1e-6f}};
            assert_int_equal(rows_of_last_layer(&g, &o), ROWS_READ);
            float *some = gradients(&g, &o, 2, &some_stats);
            o.kfac = &kfac;
            assert_int_equal(rows_of_last_layer(&g, &o), ROWS_TOKENS);
            float *all = gradients(&g, &o, 2, &all_stats);
            assert_true(same_losses(&some_stats, &all_stats));
            double error = normalised_error(some, all, g.model.params.size);
            if (!(error < 1e-6)) fail_msg("%s: gradients of read rows are off by %g", models[m], error);
            free(some);
            free(all);
            kfac_free(&kfac);
            golden_close(&g);
        }
}

/* Dropout is on: without it the other tests would pass, too. */
static void test_dropout_matters(void **state)
{
    Golden g;
    Stats with, without;
    (void)state;
    golden_open(&g, "tiny_cls");
    RunOptions o = {.backend = "ref", .compute = F32};
    free(gradients(&g, &o, 64, &without));
    model_config_set_dropout(&g.model.config, 0.1f);
    free(gradients(&g, &o, 64, &with));
    assert_true(fabs(with.loss[0] - without.loss[0]) > 1e-4);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies_give_the_same_bits), cmocka_unit_test(test_xhat_form_gives_the_same_bits),
        cmocka_unit_test(test_mixtures_give_the_same_bits), cmocka_unit_test(test_splits_agree_to_rounding),
        cmocka_unit_test(test_rows_that_no_head_reads),     cmocka_unit_test(test_dropout_matters),
        cmocka_unit_test(test_fused_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
