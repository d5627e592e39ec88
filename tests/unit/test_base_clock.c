/* Clocks and durations. */
#include <math.h>
#include <time.h>

#include "testing.h"

static void test_clocks(void **state)
{
    (void)state;
    double before = clock_monotonic();
    for (int i = 0; i < 1000; i++) {
        double after = clock_monotonic();
        assert_true(after >= before);
        before = after;
    }
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_true(clock_monotonic() - before >= 0.0049);
    time_t begin = time(NULL);
    double suspended = clock_suspended(clock_monotonic() - 100); /* it was to wake 100 s ago */
    assert_true(suspended >= 100 && suspended < 1900);
    assert_true(clock_suspended(clock_monotonic() + 3600) == 0);
    assert_true(clock_suspended(INFINITY) == 0);
    double wall = clock_wall();
    assert_true(wall >= (double)begin && wall < (double)time(NULL) + 2); /* time() lags by a tick */

    char text[21];
    struct tm tm = {0};
    clock_iso(text, sizeof text);
    assert_int_equal(strlen(text), 20);
    assert_non_null(strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm));
    time_t written = timegm(&tm);
    assert_true(written >= begin && written <= time(NULL));
    clock_iso(text, 5);
    assert_string_equal(text, "");
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"0", 0},
                 {"90", 90},
                 {"90s", 90},
                 {"100ms", 0.1},
                 {"20m", 1200},
                 {"1.5h", 5400},
                 {"0.25", 0.25},
                 {"2d", 172800},
                 {"007", 7},
                 {"02:03:04", 7384},
                 {"1-02:03:04", 93784},
                 {"59:30", 3570},
                 {"0:05", 5},
                 {"90:00", 5400},
                 {"100:00:00", 360000},
                 {"1-02", 93600},
                 {"1-02:03", 93780},
                 {"0-00:00:01", 1},
                 {"36500d", 3153600000.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        assert_ok(clock_parse_duration(cases[i].text, &seconds));
        if (seconds != cases[i].seconds) fail_msg("%s gave %g", cases[i].text, seconds);
    }
}

static void test_bad_durations(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        " ",
                                        "s",
                                        "h1",
                                        "-1",
                                        "-",
                                        "+5",
                                        "1 h",
                                        " 90",
                                        "90 ",
                                        "1h30m",
                                        "1e3",
                                        "0x10",
                                        "nan",
                                        "inf",
                                        "1.2.3",
                                        ".5",
                                        "5.",
                                        "5.h",
                                        "90w",
                                        "20M",
                                        "20min",
                                        "1:2:3:4",
                                        ":30",
                                        "30:",
                                        "1::2",
                                        "00:60",
                                        "01:60:00",
                                        "1-24:00",
                                        "1-",
                                        "1-2-3",
                                        "-02:03:04",
                                        "1-02:03:",
                                        "1.5:00",
                                        "UNLIMITED",
                                        "NOT_SET",
                                        "12345678901234567890123",
                                        "1234567890:00",
                                        "36501d",
                                        "9999999999",
                                        "36501-00:00:00",
                                        "1-02:03:04x"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double seconds = -1;
        Status status = clock_parse_duration(texts[i], &seconds);
        if (status != E_USAGE) fail_msg("'%s' gave %s, %g", texts[i], status_name(status), seconds);
        assert_true(seconds == -1);
        char *quoted = mem_printf("'%s' is ", texts[i]);
        assert_message(quoted);
        free(quoted);
    }
}

static void test_format(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0s"},
                 {3.4, "3s"},
                 {59.6, "1m 00s"},
                 {123, "2m 03s"},
                 {3723, "1h 02m 03s"},
                 {93784, "1d 02h 03m 04s"},
                 {8640000, "100d 00h 00m 00s"},
                 {-1, "?"},
                 {(double)NAN, "?"},
                 {(double)INFINITY, "?"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        clock_format_duration(cases[i].seconds, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    char text[4];
    clock_format_duration(3723, text, sizeof text);
    assert_string_equal(text, "1h ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_bad_durations),
        cmocka_unit_test(test_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
