/* What a rank tells its agent by an inherited pipe, and what it leaves alone. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "comm/meet/report.h"

static void use_pipe(int fd)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    setenv("CAIRN_REPORTS", number, 1);
}

static void test_reports(void **state)
{
    (void)state;
    static const struct {
        Report what;
        int rank;
        bool silent;
    } told[] = {{REPORT_MET, -1, false},  {REPORT_TRAINS, -1, false}, {REPORT_LOST, 3, true},
                {REPORT_LOST, 0, false},  {REPORT_SILENT, 7, false},  {REPORT_FROZEN, 1, false},
                {REPORT_SAVED, -1, false}};
    enum { N = sizeof told / sizeof *told };
    int ends[2], rank;
    char text[512], *rest = text, *line;
    Report what;
    bool silent;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    use_pipe(ends[1]);
    for (int i = 0; i < N; i++) report_to_agent(told[i].what, told[i].rank, told[i].silent);
    assert_true(fcntl(ends[1], F_GETFD) & FD_CLOEXEC); /* processes that the rank starts do not keep it open */
    ssize_t n = read(ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    for (int i = 0; i < N; i++) {
        line = strsep(&rest, "\n");
        assert_true(report_parse(line, &what, &rank, &silent));
        assert_true(what == told[i].what && rank == told[i].rank && silent == told[i].silent);
    }
    assert_string_equal(rest, "");
    close(ends[0]);
    close(ends[1]);
}

static void test_no_reports(void **state)
{
    (void)state;
    int rank;
    Report what;
    bool silent;
    static const char *const lines[] = {"", "lost", "lost 1", "gone 1 0", "lost one 0", "lostlostlostlostlost 1 0"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_false(report_parse(lines[i], &what, &rank, &silent));
}

/* A full pipe drops the report. */
static void test_full(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], "x", 1) == 1) {}
    assert_int_equal(errno, EAGAIN);
    use_pipe(ends[1]);
    report_to_agent(REPORT_SAVED, -1, false);
    close(ends[0]);
    close(ends[1]);
}

/* The variable may be left from a process that had the pipe: another file of that number gets nothing. */
static void test_other_files(void **state)
{
    (void)state;
    int blocking[2], full[2];
    char byte;
    FILE *file = tmpfile();
    assert_non_null(file);
    use_pipe(fileno(file));
    report_to_agent(REPORT_MET, -1, false);
    assert_int_equal(lseek(fileno(file), 0, SEEK_END), 0);
    fclose(file);
    assert_true(pipe(blocking) == 0 && pipe2(full, O_NONBLOCK) == 0);
    use_pipe(blocking[1]);
    report_to_agent(REPORT_MET, -1, false);
    assert_int_equal(fcntl(blocking[0], F_SETFL, O_NONBLOCK), 0);
    assert_true(read(blocking[0], &byte, 1) < 0 && errno == EAGAIN);
    use_pipe(full[0]); /* the reading end */
    report_to_agent(REPORT_MET, -1, false);
    use_pipe(9999);
    report_to_agent(REPORT_MET, -1, false);
    unsetenv("CAIRN_REPORTS");
    report_to_agent(REPORT_MET, -1, false);
    for (int k = 0; k < 2; k++) close(blocking[k]), close(full[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reports), cmocka_unit_test(test_no_reports),
                                       cmocka_unit_test(test_full), cmocka_unit_test(test_other_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
