/* Ranks leave a store while others write and read there. */
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "comm/meet/store_internal.h"

static atomic_bool removing;

static void *remove_again_and_again(void *path)
{
    while (atomic_load(&removing)) tidy_remove(path);
    return NULL;
}

/* Rank 0 ends its meeting and removes the run's folder while another rank writes and reads there. */
static void test_removed(void **state)
{
    pthread_t thread;
    const StoreKind *kind;
    void *self, *data;
    size_t size;
    int lost = 0;
    char *run = mem_printf("%s/cairn-%016d/run", (char *)*state, 0);
    assert_ok(store_file_open(*state, (Hash128){0}, true, &kind, &self));
    atomic_store(&removing, true);
    assert_int_equal(pthread_create(&thread, NULL, remove_again_and_again, run), 0);
    double end = clock_monotonic() + 600;
    for (int i = 0; i < 1000 || (lost == 0 && clock_monotonic() < end); i++) {
        Status status = kind->set(self, "run/joined-1", "x", 1);
        if (status != OK) assert_status(status, E_PEER), lost++;
        assert_ok(kind->get(self, "run/joined-1", 0, &data, &size));
        free(data);
    }
    atomic_store(&removing, false);
    pthread_join(thread, NULL);
    assert_true(lost > 0);
    kind->close(self);
    free(run);
}

static void *leave_again_and_again(void *folder)
{
    while (atomic_load(&removing)) {
        rmdir(folder);
        usleep(1); /* or a rank that is slow, as under a sanitizer, never has its turn */
    }
    return NULL;
}

/* Ranks leave an earlier meeting, and remove its empty folder, while a rank comes to the next one. */
static void test_emptied(void **state)
{
    pthread_t thread;
    const StoreKind *kind;
    void *self;
    char *folder = mem_printf("%s/cairn-%016d", (char *)*state, 0), *hello = mem_printf("%s/hello-1", folder);
    atomic_store(&removing, true);
    assert_int_equal(pthread_create(&thread, NULL, leave_again_and_again, folder), 0);
    for (int i = 0; i < 1000; i++) {
        assert_ok(store_file_open(*state, (Hash128){0}, false, &kind, &self));
        assert_ok(kind->set(self, "hello-1", "x", 1));
        assert_int_equal(unlink(hello), 0);
        kind->close(self);
    }
    atomic_store(&removing, false);
    pthread_join(thread, NULL);
    free(folder);
    free(hello);
}

static void *linger(void *server)
{
    store_server_linger(server, 1200);
    return NULL;
}

/* Who leaves the store that it serves waits until the others have read why. */
static void test_linger(void **state)
{
    (void)state;
    pthread_t thread;
    StoreServer *server;
    Store *s;
    void *data;
    size_t size;
    World w = {.rank = 1, .size = 2, .source = "test", .job = "job"};
    assert_ok(store_serve(&w, true, 0, "token", &server));
    char *where = mem_printf("served://127.0.0.1:%d", store_server_port(server));
    assert_ok(store_open(&w, where, "token", 600, NULL, &s));
    double begin = clock_monotonic();
    store_server_linger(server, 0.05);
    assert_true(clock_monotonic() - begin >= 0.05);
    assert_int_equal(pthread_create(&thread, NULL, linger, server), 0);
    assert_ok(store_set(s, "why", "x", 1));
    assert_ok(store_get(s, "why", 600, &data, &size));
    free(data);
    assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    store_close(s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(clock_monotonic() - begin < 600);
    store_server_close(server);
    free(where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_removed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_emptied, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_linger),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
