/* A save beside training that comes to a bad end is noticed by the next look between steps, once, so that the loop
   tries it again long before the next save is due. */
#include <unistd.h>

#include "training.h"

/* Until the save is over; whether it failed. */
static bool look(Saving *saving)
{
    for (int i = 0; i < 2000; i++) {
        if (saving_failed(saving)) return true;
        usleep(1000);
    }
    return false;
}

static void a_failed_save_is_noticed(void **state)
{
    Training t;
    Saving *saving;
    const float *weights;
    char *dir = file_join(*state, "run"), *aside = file_join(*state, "aside");
    const Config config = {.keep = 1, .output_dir = dir};
    training_open(&t, &(TrainingOptions){.backend = "ref", .compute = F32});
    training_begin(&t);
    Run run = training_run(&t, &config, 1);
    assert_ok(saving_open(&saving, &run));
    assert_int_equal(rename(dir, aside), 0);
    assert_ok(file_write_durable(dir, "a file", 6)); /* in the folder's place: nothing can be saved */
    assert_ok(saving_fetch(saving, &weights));
    assert_ok(saving_begin(saving));
    assert_true(look(saving));
    assert_false(saving_failed(saving)); /* told once */
    assert_int_equal(unlink(dir), 0);
    assert_int_equal(rename(aside, dir), 0);
    assert_ok(saving_fetch(saving, &weights));
    assert_ok(saving_begin(saving));
    assert_ok(saving_wait(saving));
    assert_false(saving_failed(saving));
    saving_close(saving);
    training_close(&t);
    free(dir);
    free(aside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failed_save_is_noticed, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
