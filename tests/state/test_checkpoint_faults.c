/* Every call of a save and of a load fails in turn: afterwards the previous or the new checkpoint is whole, and the
   message names a path. */
#include "calls.h"
#include "checkpoint_sample.h"
#include "place.h"

static int tear_down(void **state)
{
    calls_stop();
    return remove_place(state);
}

static int open_files(void)
{
    FileList list;
    assert_ok(file_list("/proc/self/fd", &list));
    int n = list.count;
    file_list_free(&list);
    return n;
}

static int entries(void)
{
    int n = 0;
    FileList list;
    assert_ok(file_list(place, &list));
    for (int i = 0; i < list.count; i++) n += *file_basename(list.paths[i]) != '.';
    file_list_free(&list);
    return n;
}

/* One save of (step, batch) over the folder's contents, with a fault. Returns whether the fault occurred. */
static bool save_with_fault(int64_t step, int64_t batch, int n, int error, bool from_then, bool beside)
{
    Saver saver;
    Sample *s = sample_make(step, batch);
    int before = open_files();
    s->state.beside = beside;
    assert_ok(saver_init(&saver, place, 1));
    calls_watch(CALLS_WRITING | 1u << CALL_OPEN, n, error);
    calls.from_then = from_then;
    Status status = saver_begin(&saver, &s->state);
    if (status == OK) status = saver_wait(&saver);
    bool failed = calls.failed;
    calls_stop();
    if (status != OK) {
        assert_status(status, E_IO);
        assert_message(place);
        assert_true(failed);
        assert_int_equal(saver.stats.failed, 1);
    }
    saver_free(&saver);
    assert_int_equal(open_files(), before);
    Loaded got = sample_load(NULL, place);
    assert_ok(got.status);
    assert_true(got.equal);
    if (got.step != step || got.batch != batch) {
        assert_true(status != OK);
        assert_int_equal(got.batch, 7); /* else the previous one */
    }
    sample_free(s);
    return failed;
}

/* Every n, until a save has fewer calls. */
static int all_faults(int64_t step, int64_t batch, int error, bool from_then, bool beside)
{
    for (int n = 1;; n++) {
        assert_ok(sample_save(place, 7, 1));
        if (!save_with_fault(step, batch, n, error, from_then, beside)) return n - 1;
        assert_ok(sample_save(place, 9, 1)); /* without faults the next save succeeds */
        sample_assert_newest(place, 9);
        assert_int_equal(entries(), 1);
    }
}

static const int errors[] = {EIO, ENOSPC, EINTR, EACCES};
#define N_ERRORS (sizeof errors / sizeof *errors)

/* Once or for ever; quickly both for EIO alone. A disk does not return EINTR for ever. */
static bool is_tried(int error, bool from_then)
{
    if (error == EIO) return true;
    return testing_deep() ? error != EINTR || !from_then : from_then == (error == ENOSPC);
}

static void test_every_call_failing(void **state)
{
    (void)state;
    int total = 0;
    total += all_faults(8, 8, EIO, false, true) + all_faults(8, 8, EIO, true, true); /* in the thread */
    for (size_t e = 0; e < N_ERRORS; e++)
        for (int from_then = 0; from_then < 2; from_then++)
            if (is_tried(errors[e], from_then)) total += all_faults(8, 8, errors[e], from_then, false);
    print_message("%d faults in a save over another step\n", total);
    assert_true(total > 6 * 40);
}

/* The same step with another state: the existing checkpoint becomes .old. */
static void test_every_call_failing_in_a_replacement(void **state)
{
    (void)state;
    int total = 0;
    for (size_t e = 0; e < N_ERRORS; e++)
        for (int from_then = 0; from_then < 2; from_then++)
            if (is_tried(errors[e], from_then)) total += all_faults(7, 12, errors[e], from_then, false);
    print_message("%d faults in a save over the same step\n", total);
    assert_true(total > 4 * 40);
}

/* A damaged newest one, a good one before it, and a save of the damaged one's step. */
static void test_every_call_failing_over_a_damaged_one(void **state)
{
    (void)state;
    int total = 0;
    char *model = mem_printf("%s/checkpoint-8/model.safetensors", place);
    for (int n = 1;; n++) {
        assert_ok(sample_save(place, 7, 2));
        assert_ok(sample_save(place, 8, 2));
        assert_int_equal(truncate(model, 900), 0);
        if (!save_with_fault(8, 8, n, EIO, false, false)) break;
        total++;
    }
    print_message("%d faults in a save over a damaged one\n", total);
    assert_true(total > 40);
    free(model);
}

static void test_short_and_interrupted_writes(void **state)
{
    (void)state;
    calls_watch(CALLS_WRITING, 0, 0);
    calls.trickle = true;
    assert_ok(sample_save(place, 8, 1));
    int count = calls.count;
    calls_stop();
    assert_true(count > 200);
    sample_assert_newest(place, 8);
}

/* The message of a full disk has the bytes needed and free. */
static void test_full_disk(void **state)
{
    (void)state;
    assert_ok(sample_save(place, 7, 1));
    calls_watch(1u << CALL_WRITE, 1, ENOSPC);
    calls.from_then = true;
    assert_status(sample_save(place, 8, 1), E_IO);
    calls_stop();
    assert_message("checkpoint-8.tmp/model.safetensors: cannot write: No space left on device");
    assert_message("bytes are free there; make room");
    assert_int_equal(entries(), 1); /* the unfinished folder is removed, so there is room again */
    sample_assert_newest(place, 7);
}

static void test_reading_fails(void **state)
{
    (void)state;
    int fallen_back = 0, refused = 0, n;
    assert_ok(sample_save(place, 7, 2));
    assert_ok(sample_save(place, 8, 2));
    for (size_t e = 0; e < N_ERRORS; e++)
        for (n = 1;; n++) {
            int before = open_files();
            calls_watch(CALLS_READING, n, errors[e]);
            Loaded got = sample_load(NULL, place);
            calls_stop();
            assert_int_equal(open_files(), before);
            if (got.status == OK) {
                assert_true(got.equal);
                assert_true(got.step == 8 || (got.step == 7 && errors[e] == EIO));
                fallen_back += got.step == 7;
            } else { /* EIO may be damage, also after the verification; other errors must not lead to an older one */
                assert_true(got.status == E_IO || (got.status == E_CORRUPT && errors[e] == EIO));
                assert_message(place);
                refused++;
            }
            if (!calls.failed) break;
        }
    print_message("reading failed: %d times the one before was taken, %d times refused\n", fallen_back, refused);
    assert_true(fallen_back >= 10 && refused >= 20);

    /* An unreadable medium. */
    calls_watch(1u << CALL_READ, 1, EIO);
    calls.from_then = true;
    Loaded got = sample_load(NULL, place);
    calls_stop();
    assert_status(got.status, E_CORRUPT);
    assert_message("all 2 checkpoints are damaged");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_every_call_failing),
        TEST(test_every_call_failing_in_a_replacement),
        TEST(test_every_call_failing_over_a_damaged_one),
        TEST(test_short_and_interrupted_writes),
        TEST(test_full_disk),
        TEST(test_reading_fails),
    };
    log_set_level(LOG_ERROR); /* the warnings are many, and expected */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
