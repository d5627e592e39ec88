/* Executing and training on a device with memory of its own: the same bits, access by copies alone, saved and offloaded
   tensors on the host, and a message for a failed copy. */
#include "equiv/far_backend.h"
#include "equiv/tiny_run.h"
#include "equiv/training.h"
#include "state/models/export.h"
#include "train/planner/machine.h"

/* The weights after a step; caller frees. */
static float *weights_after_step(TinyRun *f)
{
    tiny_run_step(f);
    return run_flat(&f->run, f->run.t.weights);
}

static void test_the_same_bits(void **state)
{
    (void)state;
    static const ExecOptions ways[] = {{0}, {.poison = true}, {.check = true}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        TinyRun near, away;
        tiny_run_open(&near, NULL, ways[way]);
        float *want = weights_after_step(&near);
        tiny_run_open(&away, far_make, ways[way]);
        float *weights = weights_after_step(&away);
        assert_true(far.uploads > 0 && far.downloads > 0);
        assert_memory_equal(weights, want, (size_t)near.g.model.params.size * sizeof *want);
        free(weights);
        free(want);
        tiny_run_close(&near);
        tiny_run_close(&away);
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
    assert_ok(memory_init(&m, b, NULL, plans, 1));
    assert_true((uintptr_t)m.base[REGION_ACT] >= FAR);
    memset(m.base[REGION_SAVE], 1, 5000);
    memset(m.base[REGION_HOST], 1, 100);
    memory_free(&m);
    backend_close(b);
}

/* The message of the device, the region, and the plan's table. */
static void test_device_memory_runs_out(void **state)
{
    (void)state;
    Backend *b;
    Plan plan = {.region_bytes = {[REGION_WEIGHT] = 64, [REGION_ACT] = (size_t)1 << 60}};
    const Plan *plans[] = {&plan};
    Memory m;
    assert_ok(backend_open("ref", NULL, &b));
    far_make(b);
    assert_status(memory_init(&m, b, NULL, plans, 1), E_MEMORY);
    assert_message("no memory for the region 'activations'");
    assert_message("1152921504606846976 bytes");
    assert_message("\n  weights ");
    backend_close(b);
}

/* The failure of every copy is returned, of an Exec's own and of those that its caller asks for. */
static void test_failed_copies(void **state)
{
    (void)state;
    static const ExecOptions ways[] = {{.poison = true}, {.check = true}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        TinyRun f;
        tiny_run_open(&f, far_make, ways[way]);
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
        tiny_run_close(&f);
    }
}

/* ---- sessions ---- */

static const TrainingOptions near_options = {.backend = "ref", .compute = F32, .policy = "selective"},
                             away_options = {
                                 .backend = "ref", .compute = F32, .policy = "selective", .change = far_make};

/* Trains, saves, resumes in another session, evaluates and exports: as on the host. */
static void test_a_session(void **state)
{
    char *near_dir = file_join(*state, "near"), *away_dir = file_join(*state, "away");
    Training near, away, second;
    float logits[2][TRAINING_SEQS * TRAINING_LABELS], loss[2][TRAINING_SEQS];
    const ExportText text = {0};
    training_open(&near, &near_options);
    training_begin(&near);
    training_steps(&near, 0, 3);
    assert_ok(training_save(&near, near_dir, 3));
    training_steps(&near, 3, 5);

    training_open(&away, &away_options);
    training_begin(&away);
    training_steps(&away, 0, 3);
    assert_ok(training_save(&away, away_dir, 3));
    training_steps(&away, 3, 5); /* the save buffer holds step 3 */
    training_same_bits(&away, &near, 0, 5, "a device");
    testing_same_file(away_dir, "checkpoint-3/model.safetensors", near_dir, "checkpoint-3/model.safetensors");
    testing_same_file(away_dir, "checkpoint-3/optimizer.safetensors", near_dir, "checkpoint-3/optimizer.safetensors");
    training_close(&away);

    training_open(&second, &away_options);
    training_load(&second, away_dir, 3);
    training_steps(&second, 3, 5);
    training_same_bits(&second, &near, 3, 5, "a device that went on");
    assert_ok(session_evaluate(&near.session, &near.batch[0], logits[0], loss[0]));
    assert_ok(session_evaluate(&second.session, &second.batch[0], logits[1], loss[1]));
    assert_memory_equal(logits[0], logits[1], (size_t)near.batch[0].n_seqs * TRAINING_LABELS * sizeof(float));
    assert_memory_equal(loss[0], loss[1], (size_t)near.batch[0].n_seqs * sizeof(float));
    const Training *both[] = {&near, &second};
    const char *const dirs[] = {near_dir, away_dir};
    for (int i = 0; i < 2; i++) {
        float *weights = training_state(both[i], STATE_WEIGHTS);
        assert_ok(export_model(dirs[i], &both[i]->model, export_read_values, weights, &text));
        free(weights);
    }
    testing_same_file(away_dir, "model.safetensors", near_dir, "model.safetensors");
    training_close(&second);
    training_close(&near);
    free(near_dir);
    free(away_dir);
}

/* A LayerNorm's γ becomes small: the session is planned again, and reads few of the weights for that. */
static void test_forms_change(void **state)
{
    (void)state;
    Training near, away;
    training_open(&near, &near_options);
    training_open(&away, &away_options);
    Training *const both[] = {&near, &away};
    for (int i = 0; i < 2; i++) {
        Training *t = both[i];
        training_begin(t);
        training_steps(t, 0, 2);
        training_check_forms(t, false);
        training_shrink_gamma(t);
        far.downloads = 0;
        training_check_forms(t, true);
        assert_int_equal(t->session.plan.layers.norm_forms[3], NORM_FORM_XHAT);
        assert_int_equal(t->session.plan.layers.norm_forms[2], NORM_FORM_Y);
        training_steps(t, 2, 4);
    }
    training_same_bits(&away, &near, 0, 4, "a device that planned again");
    assert_in_range(far.downloads, 1, 20); /* γ and β of five LayerNorms, the stats of steps; not all weights */
    training_close(&near);
    training_close(&away);
}

static void test_evaluation_alone(void **state)
{
    (void)state;
    float logits[2][TRAINING_SEQS * TRAINING_LABELS], loss[TRAINING_SEQS];
    for (int i = 0; i < 2; i++) {
        Training t;
        training_open(&t, i ? &away_options : &near_options);
        SessionOptions o = t.session.options;
        PlanInput input = t.session.plan.input;
        MicroCapacity capacity = t.session.plan.eval_micro;
        RunPlan plan;
        session_close(&t.session);
        input.training = false;
        run_plan_init(&plan, &input);
        plan.eval_micro = capacity;
        assert_ok(run_plan_make(&plan));
        assert_ok(session_open(&t.session, &plan, &o));
        training_begin(&t);
        assert_ok(session_evaluate(&t.session, &t.batch[0], logits[i], loss));
        training_close(&t);
    }
    assert_memory_equal(logits[0], logits[1], 4 * TRAINING_LABELS * sizeof(float));
}

/* A device that fails when its state is copied: nothing is saved, and the error is returned. */
static void test_failed_copies_of_state(void **state)
{
    Training t;
    float weight;
    bool changed;
    training_open(&t, &away_options);
    params_init(&t.model.params, 1, session_fill(&t.session));
    far.fail_after = 0;
    assert_status(session_ready(&t.session), E_FAIL);
    assert_message("fell off the bus");
    assert_ok(session_ready(&t.session)); /* the filled weights are still there */
    training_steps(&t, 0, 1);
    for (int copies = 0; copies < N_STATE_ARRAYS; copies++) {
        far.fail_after = copies;
        assert_status(training_save(&t, *state, 1), E_FAIL);
        assert_message("fell off the bus");
    }
    far.fail_after = 1;
    assert_status(session_check_forms(&t.session, &changed), E_FAIL);
    far.fail_after = 0;
    assert_status(session_read_range(&t.session, STATE_WEIGHTS, 0, 1, &weight), E_FAIL);
    char *checkpoint = file_join(*state, "checkpoint-1");
    assert_false(file_exists(checkpoint));
    assert_ok(training_save(&t, *state, 1));
    assert_true(file_exists(checkpoint));
    free(checkpoint);
    training_close(&t);
}

/* ---- rates ---- */

static int waited;

static Status wait_counted(Device *d)
{
    (void)d;
    waited++;
    return OK;
}

static Status wait_failing(Device *d)
{
    (void)d;
    return status_fail(E_FAIL, "the device fell off the bus");
}

static const ModelConfig layer = {.hidden = 64, .ffn = 256, .heads = 2, .head_dim = 32};

/* Time is measured until the device has ended, not until the launch. */
static void test_rates_wait(void **state)
{
    (void)state;
    Backend *b;
    CostRates rates;
    assert_ok(backend_open("ref", NULL, &b));
    far_make(b);
    b->device->wait = wait_counted;
    machine_rates(b, &layer, F32, &rates, NULL);
    assert_true(waited >= 3); /* a pack, a product, a pass over memory */
    assert_string_equal(rates.source, "measured now");
    assert_true(rates.product_flops > 1e6 && rates.bytes > 1e6);
    b->device->wait = wait_failing;
    machine_rates(b, &layer, F32, &rates, NULL);
    assert_string_not_equal(rates.source, "measured now");
    backend_close(b);
}

/* A call has the limit of a quarter of its bytes. */
static void test_sets(void **state)
{
    static const struct {
        double bytes;
        int set;
    } calls[] = {{0, 0}, {1048575, 0}, {1048576, 1}, {4194304, 2}, {1e9, 5}, {1073741824, 6}, {1e15, 6}};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        assert_int_equal(machine_set(calls[i].bytes), calls[i].set);
}

/* Rates of a busy machine serve as long as it is busy; the first that is quiet measures again. */
static void test_rates_of_a_busy_machine(void **state)
{
    (void)state;
    static const struct {
        const char *load, *source;
    } steps[] = {{"1e6", "measured now on a busy machine"},
                 {"1e6", "measured earlier on a busy machine, kept in the cache"},
                 {"-1e6", "measured now"},
                 {"1e6", "measured earlier, kept in the cache"}};
    Backend *b;
    CostRates rates;
    MachineLimits now, kept;
    char dir[] = "/tmp/cairn rates XXXXXX";
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    assert_ok(backend_open("ref", NULL, &b));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        setenv("CAIRN_TEST_LOAD", steps[i].load, 1);
        assert_true(machine_rates(b, &layer, F32, &rates, i % 2 ? &kept : &now));
        assert_string_equal(rates.source, steps[i].source);
        assert_true(rates.stream > 0 && rates.attention_flops[0] > 0 && rates.half_length >= 0);
        if (i % 2 == 1) assert_memory_equal(&kept, &now, sizeof now);
    }
    assert_true(now.flops >= rates.product_flops && now.bytes[N_MACHINE_SETS - 1] > 0);
    for (int i = 1; i < N_MACHINE_SETS; i++) assert_true(now.bytes[i] <= now.bytes[i - 1]);
    backend_close(b);
    unsetenv("CAIRN_TEST_LOAD");
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    assert_ok(file_remove_tree(dir));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_bits),
        cmocka_unit_test(test_save_and_host_lie_on_the_host),
        cmocka_unit_test(test_device_memory_runs_out),
        cmocka_unit_test(test_failed_copies),
        cmocka_unit_test_setup_teardown(test_a_session, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_forms_change),
        cmocka_unit_test(test_evaluation_alone),
        cmocka_unit_test_setup_teardown(test_failed_copies_of_state, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_rates_wait),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_rates_of_a_busy_machine),
    };
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* rates are measured, not read */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
