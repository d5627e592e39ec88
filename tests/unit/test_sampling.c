/* The thread that samples a device, gpu.csv, and the summary. */
#include "testing.h"

#include <math.h>
#include <time.h>

#include "train/measure/sampling.h"

static struct {
    volatile int asked;
    int fail_from; /* the call that fails first; 0: the very first */
} device;

/* Half of the samples are throttled by heat; each has one error of its memory more. */
static Status sample(Device *d, DeviceSample *s)
{
    (void)d;
    int n = device.asked++;
    if (n >= device.fail_from) return fail(E_FAIL, "the GPU is gone");
    *s = (DeviceSample){.sm_mhz = 1000 + n,
                        .memory_mhz = 2619,
                        .watts = 500.25,
                        .celsius = NAN,
                        .memory_bytes = 1e11,
                        .throttle = n % 2 ? 0x20 | 0x1 : 0,
                        .ecc_corrected = n};
    return OK;
}

static void wait_for(int asked)
{
    double until = clock_monotonic() + 600;
    while (device.asked < asked && clock_monotonic() < until) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_true(device.asked >= asked);
}

/* Samples are kept until they are taken, and the thread goes on or ends there. */
static void test_samples(void **state)
{
    (void)state;
    Device d = {.sample = sample};
    const SampleRecord *r;
    Sampling *s;
    for (int until_taken = 0; until_taken < 2; until_taken++) {
        SamplingOptions options = {.every = 0.02, .keep = true, .until_taken = until_taken};
        device.asked = 0;
        device.fail_from = 1 << 30;
        assert_ok(sampling_open(&d, &options, &s));
        wait_for(2);
        sampling_step(s, 7);
        wait_for(5);
        int n = sampling_take(s, &r);
        assert_true(n >= 4 && n <= device.asked);
        for (int i = 0; i < n; i++) {
            assert_true(r[i].device.sm_mhz == 1000 + i);
            assert_true(r[i].step == 0 || r[i].step == 7);
            if (i > 0) assert_true(r[i].when > r[i - 1].when && r[i].step >= r[i - 1].step);
        }
        assert_true(r[0].step == 0 &&
                    r[3].when - r[0].when > 2 * options.every); /* at its interval; the first may be late by as much */
        if (until_taken)
            assert_int_equal(device.asked, n);
        else
            wait_for(n + 3);
        assert_int_equal(sampling_take(s, &r), n);
        sampling_close(s);
    }
}

static void test_no_figures(void **state)
{
    (void)state;
    SamplingOptions options = {.every = 0.02};
    Device silent = {0}, broken = {.sample = sample};
    const SampleRecord *r;
    Sampling *s;
    device.asked = device.fail_from = 0;
    assert_int_equal(sampling_open(NULL, &options, &s), E_FAIL);
    assert_int_equal(sampling_open(&silent, &options, &s), E_FAIL);
    assert_string_equal(status_message(), "this backend has no GPU");
    assert_int_equal(sampling_open(&broken, &options, &s), E_FAIL);
    assert_string_equal(status_message(), "the GPU is gone");
    assert_null(s);
    sampling_step(NULL, 1);
    assert_int_equal(sampling_take(NULL, &r), 0);
    assert_null(r);
    assert_true(isnan(sampling_summary(NULL).sm_mhz));
    sampling_close(NULL);
}

/* Samples before the failure stay. */
static void test_lost_on_the_way(void **state)
{
    (void)state;
    SamplingOptions options = {.every = 0.02, .keep = true, .until_taken = true};
    Device d = {.sample = sample};
    const SampleRecord *r;
    Sampling *s;
    device.asked = 0;
    device.fail_from = 2;
    assert_ok(sampling_open(&d, &options, &s));
    wait_for(3);
    assert_int_equal(sampling_take(s, &r), 2);
    assert_int_equal(device.asked, 3); /* no further samples */
    sampling_close(s);
}

static char *text_at(const char *path)
{
    Buf text = {0};
    assert_ok(file_read(path, 1 << 20, &text));
    return text.data;
}

/* A line for each sample, behind the lines of an earlier process; the summary is of the samples within steps. */
static void test_file(void **state)
{
    (void)state;
    char *dir = testing_directory(), *path = file_join(dir, "gpu.csv");
    SamplingOptions options = {.every = 0.02, .path = path, .rank = 3};
    Device d = {.sample = sample};
    Sampling *s;
    int lines = 0, asked = 0;
    for (int process = 0; process < 3; process++) { /* the last one begins anew */
        options.append = process == 1;
        device.asked = 0;
        device.fail_from = 1 << 30;
        assert_ok(sampling_open(&d, &options, &s));
        wait_for(2);
        sampling_step(s, 5);
        wait_for(device.asked + 6);
        SamplingSummary sum = sampling_summary(s);
        assert_true(sum.sm_mhz > 1000 && sum.watts == 500.25 && isnan(sum.celsius));
        assert_true(sum.slowed > 0.2 && sum.slowed < 0.8 && sum.reasons == 0x20);
        assert_true(sum.ecc >= 4);
        sampling_close(s);
        asked = process == 1 ? asked + device.asked : device.asked;
        char *text = text_at(path), *rest = text, *line;
        assert_string_equal(strsep(&rest, "\n"), "time,rank,step,sm_mhz,memory_mhz,watts,celsius,memory_bytes,"
                                                 "throttle,ecc_corrected,ecc_uncorrected");
        double before = clock_wall() - 60;
        for (lines = 0; (line = strsep(&rest, "\n")) && *line; lines++) {
            char *comma = strchr(line, ',');
            double when = strtod(line, NULL);
            assert_true(when >= before && when <= clock_wall() + 60);
            if (lines == 0 || lines == 1)
                assert_string_equal(comma, lines ? ",3,0,1001,2619,500.250,,100000000000,idle|heat,1,0"
                                                 : ",3,0,1000,2619,500.250,,100000000000,none,0,0");
            assert_true(lines < 2 || process == 1 || strncmp(comma, ",3,", 3) == 0);
        }
        assert_int_equal(lines, asked);
        free(text);
    }
    assert_ok(file_remove_tree(dir));
    free(path);
    free(dir);
}

/* A file that cannot be written ends nothing. */
static void test_no_file(void **state)
{
    (void)state;
    SamplingOptions options = {.every = 0.02, .path = "/nonexistent/gpu.csv", .keep = true, .until_taken = true};
    Device d = {.sample = sample};
    const SampleRecord *r;
    Sampling *s;
    device.asked = 0;
    device.fail_from = 1 << 30;
    assert_ok(sampling_open(&d, &options, &s));
    wait_for(2);
    assert_true(sampling_take(s, &r) >= 2);
    sampling_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples), cmocka_unit_test(test_no_figures), cmocka_unit_test(test_lost_on_the_way),
        cmocka_unit_test(test_file),    cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
