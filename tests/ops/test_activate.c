/* ACTIVATE and its backward, of both kinds. */
#include <math.h>

#include "ops/harness.h"

static const ActivateKind kinds[] = {ACTIVATE_TANH, ACTIVATE_RELU};

static void init(OpCase *c, Op op, ActivateKind kind, int64_t seqs, int64_t cols, Dtype dtype)
{
    RowCounts rows = {.count = {[ROWS_SEQS] = seqs}};
    case_init(c, op, (OpAttr){.activate = {kind}}, rows);
    if (op == OP_ACTIVATE) {
        case_add_random(c, "x", dtype, rows_kind(ROWS_SEQS), cols, 3);
        case_add(c, "y", dtype, rows_kind(ROWS_SEQS), cols);
    } else {
        case_add_random(c, "y", dtype, rows_kind(ROWS_SEQS), cols, 1);
        case_add_random(c, "dy", dtype, rows_kind(ROWS_SEQS), cols, 1);
        case_add(c, "dx", dtype, rows_kind(ROWS_SEQS), cols);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 63, 64, 65};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int k = 0; k < 4; k++) {
                OpCase c;
                init(&c, k / 2 ? OP_ACTIVATE_BWD : OP_ACTIVATE, kinds[k % 2], rows[i], 36, compute_types[t]);
                case_check(&c, (Tolerance){0});
                case_free(&c);
            }
}

static double meaning(ActivateKind kind, double x) { return kind == ACTIVATE_RELU ? fmax(x, 0) : tanh(x); }

static void check_meaning(Backend *backend, ActivateKind kind)
{
    static const float points[] = {0, 1e-6f, -1e-6f, 0.1f, -0.1f, 1, -1, 4, -4, 9, -9, 20, -20, 100, -100, 1e30f};
    enum { N = sizeof points / sizeof *points };
    OpCase c;
    init(&c, OP_ACTIVATE, kind, 1, N, F32);
    case_set(&c, "x", 0, N, points);
    case_run(&c, backend, (RunOptions){0});
    float *y = case_values(&c, "y");
    for (int i = 0; i < N; i++) {
        double want = meaning(kind, (double)points[i]);
        if (fabs((double)y[i] - want) > 1e-6 * fabs(want))
            fail_msg("%s, kind %d: of %g is %.9g", backend->name, kind, (double)points[i], (double)y[i]);
    }
    free(y);
    case_free(&c);
}

static void test_meaning(void **state)
{
    (void)state;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (int k = 0; k < 2; k++) check_meaning(backend, kinds[k]);
}

static void test_gradient(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        OpCase forward, backward;
        init(&forward, OP_ACTIVATE, kinds[k], 7, 20, F32);
        init(&backward, OP_ACTIVATE_BWD, kinds[k], 7, 20, F32);
        float *x = case_initial(&forward, "x");
        for (int i = 0; i < 140; i++) /* no bend within a step of the differences */
            if (fabsf(x[i]) < 0x1p-6f) x[i] = 0.5f;
        case_run(&forward, ops_ref(), (RunOptions){0});
        case_take(&backward, "y", &forward, "y");
        case_clear_rows(&backward, "dy", 6); /* a pad row */
        case_run(&backward, ops_ref(), (RunOptions){0});
        expect_gradient(&forward, "x", "y", &backward, "dy", &backward, "dx", 0x1p-7, 1e-4);
        case_expect_zero_rows(&backward, "dx", 6, 7);
        case_free(&forward);
        case_free(&backward);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
