/* The thread that samples a device, and gpu.csv. */
#include "testing.h"

#include <math.h>
#include <time.h>

#include "train/sampling.h"

static struct {
    volatile int asked;
    int fail_from; /* the call that fails first; 0: the very first */
} device;

static Status sample(Device *d, DeviceSample *s)
{
    (void)d;
    int n = device.asked++;
    if (n >= device.fail_from) return fail(E_FAIL, "the GPU is gone");
    *s = (DeviceSample){.sm_mhz = 1000 + n, .memory_mhz = 2619, .watts = 500.25, .celsius = NAN, .memory_bytes = 1e11};
    return OK;
}

static void wait_for(int asked)
{
    double until = clock_monotonic() + 20;
    while (device.asked < asked && clock_monotonic() < until) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_true(device.asked >= asked);
}

static void test_samples(void **state)
{
    (void)state;
    Device d = {.sample = sample};
    const SampleRecord *r;
    device.asked = 0;
    device.fail_from = 1 << 30;
    Sampling *s = sampling_start(&d);
    assert_non_null(s);
    wait_for(4);
    int n = sampling_stop(s, &r);
    assert_true(n >= 5 && n == device.asked); /* one more at the end */
    for (int i = 0; i < n; i++) {
        assert_true(r[i].device.sm_mhz == 1000 + i);
        if (i > 0) assert_true(r[i].when > r[i - 1].when);
    }
    assert_true(r[3].when - r[0].when > 2.5 * SAMPLING_EVERY); /* at its interval */
    assert_int_equal(sampling_stop(s, &r), n);
    assert_int_equal(device.asked, n);
    sampling_free(s);
}

static int start_without(void *d) { return sampling_start(d) ? 1 : 0; }

static void test_no_figures(void **state)
{
    (void)state;
    Device silent = {0}, broken = {.sample = sample};
    const SampleRecord *r;
    Buf errors = {0};
    device.asked = device.fail_from = 0;
    assert_int_equal(testing_child(start_without, &silent, &errors), 0);
    assert_int_equal(errors.len, 0);
    assert_int_equal(testing_child(start_without, &broken, &errors), 0);
    assert_string_equal(errors.data, "profile: no gpu.csv: the GPU is gone\n");
    buf_free(&errors);
    assert_int_equal(sampling_stop(NULL, &r), 0);
    assert_null(r);
    sampling_free(NULL);
}

/* Samples taken before the failure stay. */
static void test_lost_on_the_way(void **state)
{
    (void)state;
    Device d = {.sample = sample};
    const SampleRecord *r;
    device.asked = 0;
    device.fail_from = 2;
    Sampling *s = sampling_start(&d);
    wait_for(3);
    assert_int_equal(sampling_stop(s, &r), 2);
    assert_int_equal(device.asked, 4); /* no further samples */
    sampling_free(s);
}

static void test_csv(void **state)
{
    (void)state;
    const SampleRecord r[] = {{10.5, {1980, 2619, 698.5, 61, 75161927680.0}}, {10.625, {NAN, 2619, NAN, NAN, 1}}};
    Buf text = {0};
    sampling_csv(r, 2, 10, &text);
    assert_string_equal(text.data, "seconds,sm_mhz,memory_mhz,watts,celsius,memory_bytes\n"
                                   "0.500,1980,2619,698.500,61,75161927680\n"
                                   "0.625,,2619,,,1\n");
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_no_figures),
        cmocka_unit_test(test_lost_on_the_way),
        cmocka_unit_test(test_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
