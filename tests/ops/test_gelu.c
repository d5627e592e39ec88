/* GELU and its backward, both kinds. */
#include <math.h>

#include "ops/harness.h"

typedef struct {
    int64_t rows, cols;
} Shape;
static const Shape shapes[] = {{1, 52}, {63, 52}, {64, 144}, {65, 20}, {200, 52}, {1, 1}, {130, 264}};
static const GeluKind kinds[] = {GELU_ERF, GELU_TANH};

static void forward_init(OpCase *c, Shape s, Dtype dtype, GeluKind kind, double scale)
{
    case_init(c, OP_GELU, (OpAttr){.gelu = {kind}}, rows_tokens(s.rows));
    case_add_random(c, "pre", dtype, rows_kind(ROWS_TOKENS), s.cols, scale);
    case_add(c, "g", dtype, rows_kind(ROWS_TOKENS), s.cols);
}

static void backward_init(OpCase *c, Shape s, Dtype dtype, GeluKind kind, double scale, bool again)
{
    case_init(c, OP_GELU_BWD, (OpAttr){.gelu = {kind}}, rows_tokens(s.rows));
    case_add_random(c, "pre", dtype, rows_kind(ROWS_TOKENS), s.cols, scale);
    case_add_random(c, "dg", dtype, rows_kind(ROWS_TOKENS), s.cols, 1);
    case_add(c, "dpre", dtype, rows_kind(ROWS_TOKENS), s.cols);
    if (again) case_add(c, "g", dtype, rows_kind(ROWS_TOKENS), s.cols);
}

/* With db, the column sums of dpre. */
static void summed_init(OpCase *c, Shape s, Dtype dtype, GeluKind kind, double scale, bool again)
{
    backward_init(c, s, dtype, kind, scale, again);
    case_add_random(c, "db", F32, fixed(s.cols), 1, 1);
}

static void test_shapes(void **state)
{
    (void)state;
    static const double scales[] = {4, 60};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int kind = 0; kind < 2; kind++)
                for (int scale = 0; scale < 2; scale++) {
                    OpCase c;
                    forward_init(&c, shapes[i], compute_types[t], kinds[kind], scales[scale]);
                    case_check(&c, (Tolerance){0});
                    case_free(&c);
                    for (int again = 0; again < 2; again++) {
                        backward_init(&c, shapes[i], compute_types[t], kinds[kind], scales[scale], again);
                        case_check(&c, (Tolerance){0});
                        case_free(&c);
                        summed_init(&c, shapes[i], compute_types[t], kinds[kind], scales[scale], again);
                        case_check(&c, tolerance_of_sums(compute_types[t]));
                        case_expect_accumulated(&c, "db");
                        case_expect_begun(&c);
                        case_free(&c);
                    }
                }
}

/* On every backend db holds the sums of dpre as it is stored, and dpre the bits that it has without db. */
static void test_db(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++) {
        OpCase with, without;
        Shape s = {200, 264};
        summed_init(&with, s, compute_types[t], GELU_ERF, 4, true);
        backward_init(&without, s, compute_types[t], GELU_ERF, 4, true);
        case_copy_rows(&without, 0, &with, 0, s.rows, "pre");
        case_copy_rows(&without, 0, &with, 0, s.rows, "dg");
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&with, backend)) continue;
            case_run(&with, backend, (RunOptions){0});
            case_run(&without, backend, (RunOptions){0});
            case_expect_rows_equal(&with, 0, &without, 0, s.rows, "dpre");
            case_expect_rows_equal(&with, 0, &without, 0, s.rows, "g");
            case_expect_column_sums(&with, "db", "dpre");
        }
        case_free(&with);
        case_free(&without);
    }
}

static double exact(GeluKind kind, double x)
{
    if (kind == GELU_ERF) return x * 0.5 * erfc(-x / sqrt(2.0));
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}

/* Every backend against the definition in double, element by element; tails included, where 1 + erf would cancel. */
static void test_meaning(void **state)
{
    (void)state;
    static const float points[] = {0, 1,  -1, 0.5f, -0.5f, 3,    -3,    5,      -5,
                                   8, -8, 20, -20,  100,   -100, 1e-6f, -1e-6f, 1e-30f};
    enum { N = sizeof points / sizeof *points };
    for (int kind = 0; kind < 2; kind++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase c;
            forward_init(&c, (Shape){1, N}, F32, kinds[kind], 1);
            case_set(&c, "pre", 0, N, points);
            case_run(&c, backend, (RunOptions){0});
            float *g = case_values(&c, "g");
            for (int i = 0; i < N; i++) {
                double want = exact(kinds[kind], (double)points[i]);
                if (fabs((double)g[i] - want) > 2e-6 * fabs(want) + 1e-7 * fabs((double)points[i]) * (points[i] < 0))
                    fail_msg("%s: gelu %d of %g is %.9g, expected %.9g", backend->name, kind, (double)points[i],
                             (double)g[i], want);
            }
            free(g);
            case_free(&c);
        }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        OpCase forward, backward;
        Shape s = {9, 20};
        forward_init(&forward, s, F32, kinds[kind], 4);
        backward_init(&backward, s, F32, kinds[kind], 4, true);
        case_set(&backward, "pre", 0, s.rows * s.cols, case_initial(&forward, "pre"));
        case_run(&backward, ops_ref(), (RunOptions){0});
        expect_gradient(&forward, "pre", "g", &backward, "dg", &backward, "dpre", 0x1p-7, 1e-4);
        case_free(&forward);
        case_free(&backward);
    }
}

/* The recomputed g has the same bits as the first, on every backend and in place. */
static void test_recomputed_is_the_same(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++)
        for (int kind = 0; kind < 2; kind++) {
            OpCase forward, backward;
            Shape s = {65, 52};
            forward_init(&forward, s, compute_types[t], kinds[kind], 4);
            backward_init(&backward, s, compute_types[t], kinds[kind], 4, true);
            case_copy_rows(&backward, 0, &forward, 0, s.rows, "pre");
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&forward, backend)) continue;
                case_run(&forward, backend, (RunOptions){0});
                for (unsigned share = 0; share < 4; share++) {
                    case_run(&backward, backend, (RunOptions){.share = share});
                    case_expect_rows_equal(&forward, 0, &backward, 0, s.rows, "g");
                }
            }
            case_free(&forward);
            case_free(&backward);
        }
}

/* GELU works on rows of any number in any place alike, and a zero gradient stays exactly zero. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++) {
        OpCase all, part;
        backward_init(&all, (Shape){200, 52}, compute_types[t], GELU_ERF, 4, true);
        backward_init(&part, (Shape){37, 52}, compute_types[t], GELU_ERF, 4, true);
        case_copy_rows(&part, 0, &all, 101, 37, "pre");
        case_copy_rows(&part, 0, &all, 101, 37, "dg");
        case_clear_rows(&all, "dg", 138);
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&all, backend)) continue;
            case_run(&all, backend, (RunOptions){0});
            case_run(&part, backend, (RunOptions){0});
            case_expect_rows_equal(&all, 101, &part, 0, 37, "dpre");
            case_expect_rows_equal(&all, 101, &part, 0, 37, "g");
            case_expect_zero_rows(&all, "dpre", 138, 200);
        }
        case_free(&all);
        case_free(&part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_db),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_recomputed_is_the_same),
        cmocka_unit_test(test_rows_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
