/* ATTENTION and its backward without dropout, in shapes that cuDNN takes (CAIRN_TEST_ATTENTION=cudnn): heads of 8
   columns and more, sequences far shorter than the longest that there may be, gaps, slots of no sequence.
   CAIRN_TEST_ONLY is a pattern of the tests to run. */
#include "ops/attention_cases.h"

static const Shape shapes[] = {
    {{1}, 1, 1, 1, 1, 8, 0, 0},
    {{2, 1}, 2, 64, 4, 3, 16, 0, 2},
    {{1, 2, 16, 17, 27}, 5, 63, 5, 3, 32, 0, 30},
    {{64}, 1, 64, 1, 2, 64, 0, 64},
    {{65, 30}, 2, 100, 3, 2, 64, 0, 128},
    {{128, 33, 31}, 3, 200, 6, 2, 64, 0, 0},
    {{48, 15}, 2, 64, 2, 2, 80, 0, 48},
    {{33, 31}, 2, 64, 2, 1, 128, 0, 33},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void test_shapes(void **state)
{
    (void)state;
    check_shapes(shapes, N_SHAPES);
}

/* Gaps before the first sequence, between sequences and after the last, one of them empty; and no sequence at all. */
static void test_gaps(void **state)
{
    (void)state;
    static const int32_t spans[][2] = {{3, 20}, {20, 41}, {50, 50}, {50, 51}, {80, 96}};
    enum { N = sizeof spans / sizeof *spans };
    const Shape s = {{0}, 0, 128, N + 2, 2, 32, 0, 32};
    for (int t = 0; t < N_COMPUTE; t++)
        for (int n = 0; n <= N; n += N) {
            OpCase forward, backward;
            forward_init(&forward, &s, compute_types[t]);
            for (int i = 0; i < n; i++) {
                case_set_ints(&forward, "spans", 2 * i, 2, spans[i]);
                case_set_ints(&forward, "seq_index", i, 1, &(int32_t){i});
            }
            case_ctl(&forward)->n_seqs = n;
            case_ctl(&forward)->n_tokens = n ? 100 : 0;
            case_check(&forward, tolerance);
            backward_init(&backward, &s, &forward, compute_types[t]);
            *case_ctl(&backward) = *case_ctl(&forward);
            case_check(&backward, tolerance);
            for (int i = 0; i <= n; i++) {
                int64_t gap = i ? spans[i - 1][1] : 0, end = i < n ? spans[i][0] : 128;
                case_expect_zero_rows(&forward, "o", gap, end);
                case_expect_zero_rows(&forward, "lse", gap, end);
                case_expect_zero_rows(&backward, "dqkv", gap, end);
            }
            case_free(&forward);
            case_free(&backward);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_gaps),
    };
    const char *only = getenv("CAIRN_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
