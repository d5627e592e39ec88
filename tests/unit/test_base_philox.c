/* Philox4x32-10 against the known answers published with Random123, and the layout of draws that contracts.md fixes. */
#include <math.h>

#include "testing.h"

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], expected[4];
    } cases[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822),
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t *c = cases[i].counter;
        Philox4 p = philox4(cases[i].key, c[0], c[1], c[2], c[3]);
        for (int j = 0; j < 4; j++) assert_int_equal(p.v[j], cases[i].expected[j]);
    }
}

static void test_draws(void **state)
{
    (void)state;
    Philox4 p = {{0x22221111, 0x44443333, 0x66665555, 0x88887777}};
    for (int i = 0; i < 8; i++) assert_int_equal(philox_draw16(&p, i), 0x1111 * (i + 1));
    assert_true(philox_unit(0) == 0x1p-32);
    assert_true(philox_unit(0xffffffff) == 1.0);
    assert_true(philox_unit(0x7fffffff) == 0.5);
}

static void test_dropout(void **state)
{
    (void)state;
    assert_int_equal(dropout_threshold(0.0f), 0);
    assert_int_equal(dropout_threshold(0.5f), 32768);
    assert_int_equal(dropout_threshold(0.1f), 6554);
    assert_true(dropout_scale(0.0f) == 1.0f);
    assert_true(dropout_scale(0.5f) == 2.0f);
    assert_true(dropout_scale(0.1f) == (float)(65536.0 / 58982.0));
    assert_int_equal(dropout_c3(5, 7), 5 | 7 << 10);
    assert_int_equal(dropout_c3(1023, 0), 1023);
    assert_int_equal(dropout_c3(0, 4194303), 0xfffffc00);
}

/* The dropped share over many counters is p within five standard deviations: a swap of bits or words would show. */
static void test_dropout_rate(void **state)
{
    (void)state;
    enum { CALLS = 50000 };
    const float p = 0.1f;
    int dropped[8] = {0};
    for (uint32_t i = 0; i < CALLS; i++) {
        Philox4 w = philox4(42 ^ PHILOX_DROPOUT, i % 96, i / 96, 3, dropout_c3(2, 9));
        for (int j = 0; j < 8; j++) dropped[j] += philox_draw16(&w, j) < dropout_threshold(p);
    }
    double expected = 6554.0 / 65536 * CALLS, deviation = sqrt(expected * (1 - 6554.0 / 65536));
    for (int j = 0; j < 8; j++) assert_true(fabs(dropped[j] - expected) < 5 * deviation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
