/* saving_failed reports a failed background save once, so that the loop retries it long before the next save is due.
   Weights that are not finite are refused when they are read. */
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
    training_open(&t, &(TrainingOptions){.backend = "ref", .compute = F32});
    training_begin(&t);
    Run run = training_run(&t, &config, 1);
    assert_ok(saving_open(&saving, &run));
    assert_int_equal(rename(dir, aside), 0);
    assert_ok(file_write_durable(dir, "a file", 6)); /* in the folder's place: nothing can be saved */
    assert_ok(saving_begin(saving));
    assert_true(failed_save_seen(saving));
    assert_false(saving_failed(saving)); /* reported once */
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(rename(aside, dir), 0);
    assert_ok(saving_begin(saving));
    assert_ok(saving_wait(saving));
    assert_false(saving_failed(saving));
    saving_close(saving);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failed_save_is_noticed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(weights_that_are_not_finite_are_refused, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
