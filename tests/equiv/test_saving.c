/* saving_failed reports a failed background save once, so that the loop retries it long before the next save is due.
   Weights that are not finite are refused when they are read. While a save is written steps run by a plan that leaves
   room for the save buffer in the memory of the activations: results and checkpoints have the bits of a run with room
   for both. */
#include <math.h>
#include <unistd.h>

#include "training.h"

/* Polls until the save ends; returns whether it failed. */
static bool failed_save_seen(Saving *saving)
{
    for (int i = 0; i < 600000; i++) { /* only a hang lasts so long */
        if (saving_failed(saving)) return true;
        usleep(1000);
    }
    return false;
}

static void a_failed_save_is_noticed(void **state)
{
    Training t;
    Saving *saving;
    char *dir = file_join(*state, "run"), *aside = file_join(*state, "aside");
    const Config config = {.keep = 1, .output_dir = dir};
    training_open(&t, &(TrainingOptions){.backend = "ref", .compute = F32, .saves = "full"});
    training_begin(&t);
    Run run = training_run(&t, &config, 1);
    assert_ok(saving_open(&saving, &run));
    assert_int_equal(rename(dir, aside), 0);
    assert_ok(file_write_durable(dir, "a file", 6)); /* in the folder's place: nothing can be saved */
    assert_ok(saving_begin(saving));
    assert_true(session_saves(&run.session));
    assert_true(failed_save_seen(saving));
    assert_false(saving_failed(saving)); /* reported once */
    assert_ok(saving_leave(saving, false));
    assert_false(session_saves(&run.session));
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(rename(aside, dir), 0);
    assert_ok(saving_begin(saving));
    assert_ok(saving_wait(saving));
    assert_false(saving_failed(saving));
    saving_close(saving);
    t.session = run.session;
    training_close(&t);
    free(dir);
    free(aside);
}

static Status read_all(void *session, int array, int64_t begin, int64_t end, float *to)
{
    return session_read_range(session, array, begin, end, to);
}

/* What no run saves. */
static Status save_anyway(Training *t, char *dir, int64_t step)
{
    const Config config = {.keep = 1, .output_dir = dir};
    Run run = training_run(t, &config, step);
    Buf text = {0};
    Saver saver;
    TrainingState s = {.params = &t->model.params, .step = step, .read = read_all, .read_context = &t->session};
    saving_state(&run, &text);
    s.state = text.data;
    s.state_size = text.len;
    assert_ok(saver_init(&saver, dir, 1));
    Status status = saver_begin(&saver, &s);
    saver_free(&saver);
    buf_free(&text);
    return status;
}

static void weights_that_are_not_finite_are_refused(void **state)
{
    Training t;
    Resume resume = {.dir = mem_printf("%s/checkpoint-1", (char *)*state)};
    training_open(&t, &(TrainingOptions){.backend = "ref", .compute = F32});
    training_begin(&t);
    float *weight = session_fill(&t.session) + t.model.params.params[0].offset, before = *weight;
    *weight = NAN;
    assert_status(training_save(&t, *state, 1), E_NUMERIC);
    assert_non_null(strstr(status_message(), "step 1: after the update tensor "));
    assert_ok(save_anyway(&t, *state, 1));
    assert_ok(checkpoint_verify(resume.dir, &resume.seen));
    assert_int_equal(resume_load(&resume, &t.session), E_CORRUPT);
    assert_non_null(strstr(status_message(), "checkpoint-1: cannot be trained: tensor "));
    assert_null(strstr(status_message(), "--learning-rate"));
    *weight = before;
    assert_ok(training_save(&t, *state, 2));
    training_load(&t, *state, 2);
    resume_free(&resume);
    training_close(&t);
}

/* ---- a plan for the time of a save ---- */

enum { SAVED = 3, OPEN = 7 }; /* steps: the save begins after one, and its write ends after the other */

typedef struct {
    const char *name;
    TrainingOptions options;
} Case;

/* Runs a call of saving.h in a run that has the session, which it may bind again. */
#define IN_RUN(t, run, call)                                                                                           \
    do {                                                                                                               \
        (run).session = (t)->session;                                                                                  \
        assert_ok(call);                                                                                               \
        (t)->session = (run).session;                                                                                  \
    } while (0)

static void evaluate(Training *t)
{
    float logits[TRAINING_SEQS * TRAINING_LABELS], loss[TRAINING_SEQS];
    assert_ok(session_evaluate(&t->session, &t->batch[0], logits, loss));
}

/* Steps, of which those after SAVED run while the save of that step is held; a LayerNorm changes its form before step
   OPEN + 1. The state is saved again at the end. */
static void train_and_save(Training *t, char *dir, bool changes)
{
    const Config config = {.keep = 9, .output_dir = dir};
    char *hold = file_join(dir, "hold"), *held = mem_printf("%s0", hold);
    const bool both = t->session.plan.other;
    Saving *saving;
    training_begin(t);
    training_steps(t, 0, SAVED);
    Run run = training_run(t, &config, SAVED);
    assert_ok(saving_open(&saving, &run));
    if (!run_plan_waits(&t->session.plan)) assert_ok(file_write_durable(held, "", 0));
    setenv("CAIRN_TEST_HOLD", hold, 1);
    IN_RUN(t, run, saving_begin(saving));
    for (int step = SAVED; step < OPEN; step++) {
        IN_RUN(t, run, saving_leave(saving, false));
        assert_int_equal(session_saves(&t->session), both);
        training_steps(t, step, step + 1);
        evaluate(t);
    }
    if (changes) training_shrink_gamma(t);
    (void)unlink(held);
    IN_RUN(t, run, saving_leave(saving, true));
    assert_false(session_saves(&t->session));
    training_check_forms(t, changes);
    training_steps(t, OPEN, TRAINING_STEPS);
    run.progress.step = TRAINING_STEPS;
    IN_RUN(t, run, saving_begin(saving));
    assert_int_equal(session_saves(&t->session), both);
    IN_RUN(t, run, saving_wait(saving));
    assert_false(session_saves(&t->session));
    saving_close(saving);
    unsetenv("CAIRN_TEST_HOLD");
    free(hold);
    free(held);
}

static void same_files(const char *dir, const char *other, int step, const char *what)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "kfac.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Buf x = {0}, y = {0};
        char *a = mem_printf("%s/checkpoint-%d/%s", dir, step, names[i]),
             *b = mem_printf("%s/checkpoint-%d/%s", other, step, names[i]);
        assert_int_equal(access(a, F_OK), access(b, F_OK));
        if (access(a, F_OK) == 0) {
            assert_ok(file_read(a, 64 << 20, &x));
            assert_ok(file_read(b, 64 << 20, &y));
            if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0) fail_msg("%s: %s of step %d", what, a, step);
        }
        BUF_FREE(&x, &y);
        MEM_FREE(a, b);
    }
}

static void a_plan_for_saves_changes_no_bit(void **state)
{
    static const Case cases[] = {
        {"none, full", {.policy = "none", .saves = "full"}},
        {"poisoned", {.policy = "lean", .saves = "every:2", .poison = true}},
        {"audited, with K-FAC", {.policy = "ffn", .saves = "full", .audit = true, .kfac = {.interval = 3, .lag = 1}}},
        {"waiting", {.policy = "none", .waits = true}},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i / 2];
        const bool changes = i % 2;
        Training ours, theirs;
        char *dir = mem_printf("%s/ours-%zu", (char *)*state, i),
             *other = mem_printf("%s/theirs-%zu", (char *)*state, i);
        TrainingOptions o = c->options;
        o.backend = i % 4 < 2 ? "cpu" : "ref";
        o.compute = F32;
        training_open(&ours, &o);
        train_and_save(&ours, dir, changes);
        o.saves = NULL;
        o.waits = o.poison = o.audit = false;
        training_open(&theirs, &o);
        train_and_save(&theirs, other, changes);
        training_same_bits(&theirs, &ours, 0, TRAINING_STEPS, c->name);
        same_files(dir, other, SAVED, c->name);
        same_files(dir, other, TRAINING_STEPS, c->name);
        training_close(&ours);
        training_close(&theirs);
        MEM_FREE(dir, other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failed_save_is_noticed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(a_plan_for_saves_changes_no_bit, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(weights_that_are_not_finite_are_refused, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
