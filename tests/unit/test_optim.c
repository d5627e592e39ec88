/* Schedules and segments. The optimizers' arithmetic is tested as ops (tests/ops) and against PyTorch (tests/model). */
#include "testing.h"

#include <math.h>

#include "optim/optim.h"

static RateSchedule schedule(const char *text, double rate, int64_t warmup, int64_t total)
{
    RateSchedule s = {.learning_rate = rate, .warmup_steps = warmup, .total_steps = total};
    assert_ok(rate_schedule_parse(text, &s));
    return s;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fmax(1, fabs(b)))) fail_msg("%.17g, expected %.17g", a, b);
}

static void test_continuous(void **state)
{
    (void)state;
    RateSchedule s = schedule("linear", 1, 10, 110);
    near(rate_schedule_at(&s, 1), 0.1);
    near(rate_schedule_at(&s, 10), 1);
    near(rate_schedule_at(&s, 11), 1);
    near(rate_schedule_at(&s, 61), 0.5);
    near(rate_schedule_at(&s, 110), 0.01);
    near(rate_schedule_at(&s, 111), 0);
    s = schedule("poly:0.5", 1, 10, 110);
    near(rate_schedule_at(&s, 61), sqrt(0.5));
    s = schedule("cosine", 1, 10, 110);
    near(rate_schedule_at(&s, 5), 0.5);
    near(rate_schedule_at(&s, 10), 1);
    near(rate_schedule_at(&s, 36), 0.5 * (1 + cos(0.25 * acos(-1.0))));
    near(rate_schedule_at(&s, 61), 0.5);
    near(rate_schedule_at(&s, 111), 0);
    s = schedule("constant", 2, 10, 110);
    near(rate_schedule_at(&s, 5), 1);
    near(rate_schedule_at(&s, 110), 2);
    s = schedule("linear", 1, 0, 4);
    near(rate_schedule_at(&s, 1), 1);
    near(rate_schedule_at(&s, 4), 0.25);
}

/* NVIDIA's PolyWarmUp with phase 1's numbers: 1 at the end of warmup, 0.846 right after. */
static void test_discontinuous(void **state)
{
    (void)state;
    RateSchedule s = schedule("poly:0.5-nvidia", 6e-3, 2000, 7038);
    near(rate_schedule_at(&s, 2000), 6e-3);
    near(rate_schedule_at(&s, 2001), 6e-3 * sqrt(1 - 2001.0 / 7038));
    assert_true(fabs(rate_schedule_at(&s, 2001) / 6e-3 - 0.846) < 1e-3);
    near(rate_schedule_at(&s, 7038), 0);
}

/* MLPerf's checkpoint lies 200000 steps into a warmup of 200330. */
static void test_warmup_that_began_before(void **state)
{
    (void)state;
    RateSchedule s = schedule("poly:1-nvidia", 4e-4, 200330, 3680);
    s.warmup_start = -200000;
    near(rate_schedule_at(&s, 1), 4e-4 * 200001 / 200330);
    near(rate_schedule_at(&s, 329), 4e-4 * 200329 / 200330);
    near(rate_schedule_at(&s, 330), 4e-4);
    near(rate_schedule_at(&s, 331), 4e-4 * (1 - 331.0 / 3680));
    near(rate_schedule_at(&s, 3680), 0);
    s = schedule("linear", 1, 20, 110); /* half of it is over; down over the 100 steps that are left */
    s.warmup_start = -10;
    near(rate_schedule_at(&s, 1), 11.0 / 20);
    near(rate_schedule_at(&s, 10), 1);
    near(rate_schedule_at(&s, 11), 1);
    near(rate_schedule_at(&s, 61), 0.5);
    near(rate_schedule_at(&s, 110), 0.01);
    s.warmup_start = 10; /* it begins later: no rate until then */
    near(rate_schedule_at(&s, 10), 0);
    near(rate_schedule_at(&s, 11), 1.0 / 20);
    near(rate_schedule_at(&s, 30), 1);
}

static void test_bad_schedules(void **state)
{
    static const char *const bad[] = {"",        "cosines", "poly:",   "poly:0",   "poly:x",
                                      "poly:11", "linear-", "-nvidia", "poly:0.5x"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RateSchedule s = {0};
        assert_status(rate_schedule_parse(bad[i], &s), E_USAGE);
    }
}

static void test_warmup(void **state)
{
    static const struct {
        const char *text;
        int64_t steps;
    } good[] = {{"0.1", 100},    {"0", 0},       {"10%", 100},    {"250", 250}, {"1", 1},
                {"0.2843", 284}, {"100%", 1000}, {"28.43%", 285}, {"0.01%", 1}, {"8.1%", 81}};
    static const char *const bad[] = {"", "x", "-1", "1.5", "101%", "10%%", "nan", "5 ", "1.0"};
    int64_t n;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(warmup_parse(good[i].text, 1000, false, &n));
        assert_int_equal(n, good[i].steps);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_status(warmup_parse(bad[i], 1000, true, &n), E_USAGE);
    assert_status(warmup_parse("1001", 1000, false, &n), E_USAGE);
    assert_ok(warmup_parse("1001", 1000, true, &n));
    assert_int_equal(n, 1000);
}

static void test_bias(void **state)
{
    float b1, b2;
    (void)state;
    optim_bias(&(Optimizer){.beta1 = 0.9f, .beta2 = 0.999f}, 1, &b1, &b2);
    assert_true(b1 == 1 && b2 == 1);
    optim_bias(&(Optimizer){.beta1 = 0.5f, .beta2 = 0.75f, .bias_correction = true}, 2, &b1, &b2);
    assert_true(fabs((double)b1 - 1 / (1 - 0.25)) < 1e-6);
    assert_true(fabs((double)b2 - 1 / (1 - 0.5625)) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_continuous),    cmocka_unit_test(test_discontinuous),
        cmocka_unit_test(test_bad_schedules), cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_bias),          cmocka_unit_test(test_warmup_that_began_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
