/* Executing on a device whose memory is not the host's: the same bits, nothing touched but by copies, what is saved or
   offloaded on the host, a failed copy reported. */
#include "equiv/far_backend.h"
#include "model/harness.h"

typedef struct {
    Golden g;
    GoldenBatch batch;
    Run run;
} Fixture;

static void open_fixture(Fixture *f, bool away, ExecOptions exec)
{
    static uint8_t levels[64];
    RunOptions o = {.backend = "ref",
                    .compute = F32,
                    .levels = levels,
                    .optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f},
                    .exec = exec,
                    .change = away ? far_make : NULL};
    golden_open(&f->g, "tiny_cls");
    f->g.model.config.hidden_dropout = f->g.model.config.attention_dropout = 0.1f;
    golden_batch(&f->g, 0, &f->batch);
    run_open(&f->run, &f->g, &o);
}

static void close_fixture(Fixture *f)
{
    run_close(&f->run);
    golden_close(&f->g);
}

/* The weights after a step; caller frees. */
static float *step(Fixture *f)
{
    Run *r = &f->run;
    r->ctl.learning_rate = 1e-3f;
    run_begin(r, f->batch.n_seqs, 0);
    assert_ok(run_micro(r, &f->batch));
    assert_ok(exec_run(r->exec, r->plan.update, &r->plan.capacity));
    return run_flat(r, r->t.weights);
}

static void test_the_same_bits(void **state)
{
    (void)state;
    static const ExecOptions ways[] = {{0}, {.poison = true}, {.check = true}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        Fixture near, away;
        open_fixture(&near, false, ways[way]);
        float *want = step(&near);
        open_fixture(&away, true, ways[way]);
        float *weights = step(&away);
        assert_true(far.uploads > 0 && far.downloads > 0);
        assert_memory_equal(weights, want, (size_t)near.g.model.params.size * sizeof *want);
        free(weights);
        free(want);
        close_fixture(&near);
        close_fixture(&away);
    }
}

static void test_save_and_host_lie_on_the_host(void **state)
{
    (void)state;
    Backend *b;
    Plan plan = {.region_bytes = {[REGION_ACT] = 64, [REGION_SAVE] = 5000, [REGION_HOST] = 100}};
    const Plan *plans[] = {&plan};
    Memory m;
    assert_ok(backend_open("ref", NULL, &b));
    far_make(b);
    assert_ok(memory_init(&m, b, plans, 1));
    assert_true((uintptr_t)m.base[REGION_ACT] >= FAR);
    memset(m.base[REGION_SAVE], 1, 5000);
    memset(m.base[REGION_HOST], 1, 100);
    memory_free(&m);
    backend_close(b);
}

/* Every copy that an Exec makes by itself, or is asked for, hands on its failure. */
static void test_failed_copies(void **state)
{
    (void)state;
    static const ExecOptions ways[] = {{.poison = true}, {.check = true}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        Fixture f;
        open_fixture(&f, true, ways[way]);
        run_begin(&f.run, f.batch.n_seqs, 0);
        run_upload_batch(&f.run, &f.batch);
        RowCounts rows = exec_rows(f.run.exec, f.batch.n_tokens, f.batch.n_seqs, 0);
        far.fail_after = 2;
        assert_status(exec_run(f.run.exec, f.run.plan.micro, &rows), E_FAIL);
        assert_message("fell off the bus");
        far.fail_after = 0;
        assert_status(exec_upload(f.run.exec, f.run.t.ctl, &f.run.ctl, sizeof f.run.ctl), E_FAIL);
        far.fail_after = 0;
        assert_status(exec_download(f.run.exec, f.run.t.ctl, &f.run.ctl, sizeof f.run.ctl), E_FAIL);
        far.fail_after = -1;
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_bits),
        cmocka_unit_test(test_save_and_host_lie_on_the_host),
        cmocka_unit_test(test_failed_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
