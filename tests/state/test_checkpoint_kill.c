/* kill -9 at random moments, many times over the same folder. The folder always loads afterwards, equals a saved state,
   and is at least as new as the last state that the saver reported as durable. */
#include "checkpoint_sample.h"
#include "place.h"

#include <signal.h>
#include <sys/mman.h>

/* Reports of the child, in shared memory, so that they survive it. */
typedef struct {
    volatile int64_t started, durable; /* newest step begun; newest that the saver reported as durable; −1 */
    volatile int saving;               /* a save is in progress */
} Told;

/* Resumes from the newest state and saves for ever; in every second round in the background. */
static void train(Told *told, int round)
{
    Saver saver;
    Loaded got = sample_load(NULL, place);
    if (got.status != OK || (got.step >= 0 && !got.equal)) _exit(1);
    if (saver_init(&saver, place, 1 + round % 3) != OK) _exit(2);
    for (int64_t step = got.step + 1;; step++) {
        Sample *s = sample_of(step);
        s->state.beside = round % 2;
        told->started = step;
        told->saving = 1;
        if (saver_begin(&saver, &s->state) != OK) _exit(3);
        if (saver_wait(&saver) != OK) _exit(4);
        sample_free(s);
        told->durable = step;
        told->saving = 0;
    }
}

/* Only an unfinished save or removal leaves this folder. */
static bool unfinished(void)
{
    bool found = false;
    FileList list;
    assert_ok(file_list(place, &list));
    for (int i = 0; i < list.count; i++) found = found || strstr(file_basename(list.paths[i]), ".tmp");
    file_list_free(&list);
    return found;
}

static void await_save(const Told *told, pid_t child)
{
    while (!told->saving) {
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        usleep(200);
    }
}

static void test_kill_at_random(void **state)
{
    (void)state;
    const int kills = testing_rounds(40, 240);
    int inside = 0, left = 0, before = 0, after = 0;
    uint64_t random = (uint64_t)getpid() * 2654435761u + 1;
    Told *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    told->durable = told->started = -1;
    double start = clock_monotonic();
    for (int i = 0; i < 5; i++) assert_ok(sample_save(place, i, 1));
    double save = (clock_monotonic() - start) / 5;
    assert_ok(file_remove_tree(place));
    for (int i = 0; i < kills; i++) {
        int wait_status;
        told->saving = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) train(told, i);
        if (i % 4) await_save(told, child);                                          /* slow on a busy machine */
        usleep((useconds_t)((double)(testing_random(&random) % 1000) * 3e3 * save)); /* 0 to 3 saves long */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &wait_status, 0), child);
        assert_true(WIFSIGNALED(wait_status)); /* the child did not fail */
        inside += told->saving;
        left += unfinished();
        Loaded got = sample_load(NULL, place);
        assert_ok(got.status);
        if (got.step >= 0) assert_true(got.equal);
        assert_true(got.step >= told->durable && got.step <= told->started);
        before += got.step == told->durable;
        after += got.step > told->durable;
    }
    print_message(
        "%d kills, %d inside a save, %d left something unfinished; the last durable state was found %d times, a "
        "newer one %d times; step %lld\n",
        kills, inside, left, before, after, (long long)told->durable);
    assert_true(inside > 0 && left > 0);
    munmap(told, sizeof *told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_kill_at_random, make_place, remove_place)};
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
