/* The interval of evaluations in pretraining. */
#include "testing.h"

#include "tasks/pretrain/run.h"

static void the_rule_of_mlperf(void **state)
{
    static const struct {
        int64_t batch, samples;
    } known[] = {{256, 150000},  {768, 150000},  {2171, 150000}, {2172, 175000},
                 {4096, 175000}, {8192, 225000}, {65536, 900000}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char rule[] = "mlperf";
        Config c = {.batch_size = known[i].batch, .eval_samples = rule};
        int64_t samples = -1;
        assert_ok(pretrain_eval_samples(&c, &samples));
        assert_int_equal(samples, known[i].samples);
    }
}

static void a_count(void **state)
{
    static const char *const bad[] = {"0", "-5", "x", "5x", " ", "mlperf2"};
    char none[] = "", count[] = "2500";
    int64_t samples = -1;
    (void)state;
    assert_ok(pretrain_eval_samples(&(Config){.eval_samples = none}, &samples));
    assert_int_equal(samples, 0);
    assert_ok(pretrain_eval_samples(&(Config){.eval_samples = count}, &samples));
    assert_int_equal(samples, 2500);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = mem_strdup(bad[i]);
        assert_status(pretrain_eval_samples(&(Config){.eval_samples = text}, &samples), E_USAGE);
        assert_non_null(strstr(status_message(), "expected a count of sequences, or mlperf"));
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_rule_of_mlperf), cmocka_unit_test(a_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
