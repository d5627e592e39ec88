/* Errors and messages: texts, exit codes, threads, and the log that shows them. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "testing.h"

static Status lower(int x) { return x < 0 ? fail(E_FORMAT, "x is %d, expected at least 0", x) : OK; }

static Status middle(int x)
{
    TRY(lower(x));
    return OK;
}

static Status upper(int x, int *cleaned)
{
    Status status = OK;
    TRY_DONE(middle(x));
    TRY_DONE(middle(x - 10));
done:
    (*cleaned)++;
    return status;
}

static void test_passes_on(void **state)
{
    (void)state;
    int cleaned = 0;
    assert_ok(upper(10, &cleaned));
    assert_status(upper(-3, &cleaned), E_FORMAT);
    assert_string_equal(status_message(), "x is -3, expected at least 0");
    assert_status(upper(7, &cleaned), E_FORMAT);
    assert_string_equal(status_message(), "x is -3, expected at least 0");
    assert_int_equal(cleaned, 3);
}

static void test_context(void **state)
{
    (void)state;
    assert_status(fail(E_IO, "no such file"), E_IO);
    assert_status(status_context(E_IO, "%s: row %d", "train.tsv", 7), E_IO);
    assert_string_equal(status_message(), "train.tsv: row 7: no such file");
    assert_ok(status_context(OK, "not this"));
    assert_string_equal(status_message(), "train.tsv: row 7: no such file");
    /* The old message may be part of the new one. */
    assert_status(fail(E_FAIL, "a <%s> b <%s>", status_message(), status_message()), E_FAIL);
    assert_string_equal(status_message(), "a <train.tsv: row 7: no such file> b <train.tsv: row 7: no such file>");
    errno = ENOENT;
    assert_status(fail(E_IO, "x: %m"), E_IO);
    assert_string_equal(status_message(), "x: No such file or directory");
    errno = ENOMEM;
    assert_status(fail(E_IO, "x: cannot list: %m"), E_MEMORY);
    assert_status(fail(E_IO, "x is a folder"), E_IO);
    assert_status(fail(E_FORMAT, "x: %m"), E_FORMAT);
    errno = EMFILE;
    assert_status(fail(E_IO, "x: cannot open: %m"), E_IO);
    assert_string_equal(status_message(),
                        "x: cannot open: Too many open files. Raise the limit on open files (ulimit -n)");
    assert_status(fail(E_IO, "x is a folder"), E_IO);
    assert_string_equal(status_message(), "x is a folder");
}

static void test_names_and_codes(void **state)
{
    (void)state;
    static const struct {
        Status status;
        const char *name;
        int code;
    } expected[] = {{OK, "OK", 0},
                    {E_FAIL, "E_FAIL", 1},
                    {E_USAGE, "E_USAGE", 2},
                    {E_IO, "E_IO", 1},
                    {E_FORMAT, "E_FORMAT", 1},
                    {E_NUMERIC, "E_NUMERIC", 1},
                    {E_STOPPED, "E_STOPPED", 75},
                    {E_MEMORY, "E_MEMORY", 76},
                    {E_PEER, "E_PEER", 77},
                    {E_DIFFERS, "E_DIFFERS", 78},
                    {E_CORRUPT, "E_CORRUPT", 79}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_string_equal(status_name(expected[i].status), expected[i].name);
        assert_int_equal(status_exit_code(expected[i].status), expected[i].code);
    }
    assert_string_equal(status_meaning(E_IO), "input/output error");
    assert_int_equal(status_exit_code((Status)99), 1);
    assert_string_equal(status_name((Status)99), "E_?");
}

static void test_cuts_long_messages(void **state)
{
    (void)state;
    Buf text = {0};
    for (int i = 0; i < 10000; i++) buf_puts(&text, "\xc3\xa4"); /* ä: two bytes, so that a cut may fall inside one */
    for (int shift = 0; shift < 2; shift++) {
        assert_status(fail(E_FAIL, "%s%s", shift ? "x" : "", text.data), E_FAIL);
        size_t len = strlen(status_message());
        assert_in_range(len, 8000, 8191);
        assert_string_equal(status_message() + len - 3, "\xe2\x80\xa6");
        assert_int_equal((len - 3 - (size_t)shift) % 2, 0);
        assert_status(status_context(E_FAIL, "context"), E_FAIL);
        assert_int_equal(strncmp(status_message(), "context: ", 9), 0);
        assert_string_equal(status_message() + strlen(status_message()) - 3, "\xe2\x80\xa6");
    }
    buf_free(&text);
}

static void *fails_elsewhere(void *arg)
{
    *(int *)arg = status_message()[0] == '\0';
    (void)fail(E_IO, "of the other thread");
    return NULL;
}

static void test_each_thread_has_its_own(void **state)
{
    (void)state;
    int was_empty = 0;
    (void)fail(E_FAIL, "of the main thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fails_elsewhere, &was_empty), 0);
    pthread_join(thread, NULL);
    assert_true(was_empty);
    assert_string_equal(status_message(), "of the main thread");
}

static int checks(void *arg)
{
    int rows = *(int *)arg;
    CHECK(rows > 3, "rows is %d", rows);
    return 0;
}

static int fails(void *arg)
{
    volatile Status status = *(Status *)arg;
    return fail(status, "no reason") == status ? 0 : 1;
}

static void test_check_aborts(void **state)
{
    (void)state;
    Buf errors = {0};
    int rows = 4, wait_status = testing_child(checks, &rows, &errors);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    rows = 2;
    wait_status = testing_child(checks, &rows, &errors);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGABRT);
    assert_non_null(strstr(errors.data, "test_base_status.c:"));
    assert_non_null(strstr(errors.data, "not (rows > 3): rows is 2\n"));
    Status status = E_BUSY;
    wait_status = testing_child(fails, &status, &errors);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    status = OK;
    wait_status = testing_child(fails, &status, &errors);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGABRT);
    assert_non_null(strstr(errors.data, "a failure with the status OK: no reason\n"));
    buf_free(&errors);
}

static int logs(void *arg)
{
    (void)arg;
    log_error("file %s is bad", "a\033[2Jb");
    log_warn("two\n");
    log_info("three");
    log_debug("four, not shown");
    log_set_level(LOG_DEBUG);
    log_debug("five");
    log_set_level(LOG_ERROR);
    log_warn("six, not shown");
    errno = EPIPE;
    log_error("seven");
    return errno == EPIPE ? 0 : 1;
}

static void test_log_lines(void **state)
{
    (void)state;
    Buf errors = {0};
    assert_int_equal(testing_child(logs, NULL, &errors), 0);
    assert_string_equal(errors.data, "error: file a\\x1b[2Jb is bad\nwarning: two\nthree\ndebug: five\nerror: seven\n");
    buf_free(&errors);
}

enum { THREADS = 4, LINES = 100 };

static void mark_before(void) { dprintf(STDERR_FILENO, "<"); }
static void mark_after(void) { dprintf(STDERR_FILENO, ">"); }

static void *logs_much(void *arg)
{
    char text[301];
    memset(text, 'a' + *(int *)arg, 300);
    text[300] = '\0';
    for (int i = 0; i < LINES; i++) log_info("%s", text);
    return NULL;
}

static int logs_from_threads(void *arg)
{
    (void)arg;
    pthread_t thread[THREADS];
    int number[THREADS];
    log_set_hook(mark_before, mark_after);
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, logs_much, &number[i]) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    log_set_hook(NULL, NULL);
    log_info("end");
    return 0;
}

static void test_log_from_threads(void **state)
{
    (void)state;
    Buf errors = {0};
    assert_int_equal(testing_child(logs_from_threads, NULL, &errors), 0);
    int count[THREADS] = {0};
    const char *p = errors.data;
    for (int i = 0; i < THREADS * LINES; i++, p += 303) { /* "<", 300 equal letters, newline, ">" */
        assert_int_equal(p[0], '<');
        assert_in_range(p[1], 'a', 'a' + THREADS - 1);
        assert_int_equal(strspn(p + 1, (char[]){p[1], '\0'}), 300);
        assert_memory_equal(p + 301, "\n>", 2);
        count[p[1] - 'a']++;
    }
    assert_string_equal(p, "end\n");
    for (int i = 0; i < THREADS; i++) assert_int_equal(count[i], LINES);
    buf_free(&errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_on),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_names_and_codes),
        cmocka_unit_test(test_cuts_long_messages),
        cmocka_unit_test(test_each_thread_has_its_own),
        cmocka_unit_test(test_check_aborts),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_log_from_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
