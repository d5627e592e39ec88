/* A step whose loss couples its sequences: what layers keep, what runs by plans for saves and poison do not change a
   bit of it, on each backend, with dropout; and it learns. */
#include "training.h"

#include "far_backend.h"

static const Coupling couplings[] = {
    {.loss = COUPLE_INFONCE, .rows = 3, .texts = 2, .temperature = 0.05f},
    {.loss = COUPLE_INFONCE, .rows = 3, .texts = 2, .temperature = 0.1f, .symmetric = true},
    {.loss = COUPLE_INFONCE, .rows = 70, .texts = 3, .temperature = 0.05f, .symmetric = true},
    {.loss = COUPLE_COSINE, .rows = 3, .texts = 2},
    {.loss = COUPLE_TRIPLET, .rows = 2, .texts = 3, .margin = 5}};

enum { POLICY_STEPS = 3 };

static void train(Training *t, TrainingOptions o, int steps)
{
    training_open(t, &o);
    training_begin(t);
    training_steps(t, 0, steps);
}

static void check_policies(TrainingOptions o, const char *what)
{
    static const char *const policies[] = {"lean", "full", "every:2", "x+o+y1×1 none×1", "offload"};
    Training none, other;
    o.may_skip = o.compute == F16;
    train(&none, o, POLICY_STEPS);
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        o.policy = policies[p];
        if (strcmp(o.policy, "offload") == 0 && !backend_offloads(none.backend)) continue;
        o.poison = p % 2;
        train(&other, o, POLICY_STEPS);
        training_same_bits(&other, &none, 0, POLICY_STEPS, SHORT_TEXT("%s, %s", what, policies[p]));
        training_close(&other);
    }
    o = (TrainingOptions){.backend = o.backend,
                          .compute = o.compute,
                          .coupling = o.coupling,
                          .pooling = o.pooling,
                          .may_skip = o.may_skip,
                          .kfac = o.kfac,
                          .change = far_make};
    if (strcmp(o.backend, "ref") == 0 && o.compute == F32) { /* a device makes sums for biases from other roundings */
        train(&other, o, POLICY_STEPS);
        training_same_bits(&other, &none, 0, POLICY_STEPS, SHORT_TEXT("%s, far away", what));
        training_close(&other);
    }
    training_close(&none);
}

static void test_policies(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    static const Dtype types[] = {F32, BF16};
    for (size_t k = 0; k < 4; k++)
        for (size_t c = 0; c < sizeof couplings / sizeof *couplings; c++)
            for (int pooling = POOLING_MEAN; pooling <= POOLING_CLS; pooling++)
                check_policies((TrainingOptions){.backend = backends[k / 2],
                                                 .compute = types[k % 2],
                                                 .coupling = &couplings[c],
                                                 .pooling = (Pooling)pooling},
                               SHORT_TEXT("%s, loss %zu, pooling %d", backends[k / 2], c, pooling));
}

static void test_kfac(void **state)
{
    (void)state;
    for (int pooling = POOLING_MEAN; pooling <= POOLING_CLS; pooling++)
        check_policies((TrainingOptions){.backend = "ref",
                                         .coupling = couplings,
                                         .pooling = (Pooling)pooling,
                                         .kfac = {.interval = 2, .damping = 0.01f}},
                       SHORT_TEXT("K-FAC, pooling %d", pooling));
}

static void test_learns(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof couplings / sizeof *couplings; c++) {
        Training t;
        train(&t, (TrainingOptions){.backend = "ref", .coupling = &couplings[c], .no_dropout = true}, TRAINING_STEPS);
        if (!(t.loss[TRAINING_STEPS - 1] < 0.9 * t.loss[0]))
            fail_msg("loss %zu: %g after %d steps, %g at first", c, t.loss[TRAINING_STEPS - 1], TRAINING_STEPS,
                     t.loss[0]);
        training_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_policies), cmocka_unit_test(test_kfac),
                                       cmocka_unit_test(test_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
