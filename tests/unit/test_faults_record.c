/* starts.jsonl and launches.jsonl as a launcher reads them: damaged lines and files that cannot be read hinder nothing.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "testing.h"

#include "base/file.h"
#include "faults/fault_record.h"

static void test_starts(void **state)
{
    const char *dir = *state;
    testing_write(dir, "starts.jsonl",
                  "{\"time\": 20, \"job\": \"a\", \"step\": 0, \"trained_s\": 7, \"start_s\": 5, \"again_s\": 0}\n"
                  "{\"time\": 30, \"job\": \"b\", \"start_s\": 100, \"again_s\": 100}\n"
                  "{\"time\": 35, \"job\": \"a\", \"torn\n\n"
                  "{\"time\": 40, \"job\": \"a\", \"step\": 9, \"trained_s\": 9, \"start_s\": 3, \"again_s\": 2}\n");
    StartSums a = fault_record_starts(dir, "a");
    assert_int_equal(a.count, 2);
    assert_true(a.begun == 15 && a.last == 40 && a.trained_s == 7 && a.start_s == 8 && a.again_s == 2);
    assert_int_equal(fault_record_starts(dir, "c").count, 0);
    char *job = fault_record_unsummed(dir);
    assert_string_equal(job, "a");
    free(job);
    assert_false(fault_record_summed(dir, "a"));
}

static void test_summed(void **state)
{
    const char *dir = *state;
    testing_write(dir, "starts.jsonl", "no JSON\n{\"time\": 1, \"job\": \"a\"}\n{\"time\": 2, \"job\": \"b\"}\n");
    testing_write(dir, "launches.jsonl", "{\"job\": \"b\", \"launch_s\": 1}\n[\n");
    assert_true(fault_record_summed(dir, "b") && !fault_record_summed(dir, "a"));
    assert_null(fault_record_unsummed(dir));
    fault_record_ended(dir, "a");
    assert_true(fault_record_summed(dir, "a"));
}

/* A folder in place of a file cannot be read; the other one counts. */
static void test_unreadable(void **state)
{
    const char *dir = *state;
    char *starts = file_join(dir, "starts.jsonl");
    assert_int_equal(mkdir(starts, 0700), 0);
    testing_write(dir, "launches.jsonl", "{\"job\": \"b\", \"launch_s\": 1}\n");
    assert_int_equal(fault_record_starts(dir, "b").count, 0);
    assert_null(fault_record_unsummed(dir));
    assert_true(fault_record_summed(dir, "b"));
    free(starts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_starts, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_summed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_unreadable, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
