/* LINEAR, LINEAR_DGRAD, LINEAR_WGRAD. */
#include "ops/harness.h"

typedef struct {
    int64_t rows, k, n;
} Shape;

static const Shape shapes[] = {
    {1, 36, 108}, {63, 36, 36}, {64, 36, 52}, {65, 52, 36}, {200, 128, 384}, {200, 64, 1}, {3, 20, 3}, {128, 192, 65},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static OpAttr attr_of(Shape s) { return (OpAttr){.linear = {.k = s.k, .n = s.n}}; }

enum { BIAS_NONE, BIAS_F32, BIAS_OF_Y, N_BIASES }; /* in F32, or in y's type */

static void linear_init(OpCase *c, Shape s, Dtype x, Dtype y, int bias)
{
    case_init(c, OP_LINEAR, attr_of(s), rows_tokens(s.rows));
    case_add_random(c, "x", x, rows_kind(ROWS_TOKENS), s.k, 1);
    case_copy(c, "w", x, s.n, s.k, false, 0.2);
    if (bias) case_add_random(c, "bias", bias == BIAS_OF_Y ? y : F32, fixed(s.n), 1, 1);
    case_add(c, "y", y, rows_kind(ROWS_TOKENS), s.n);
}

static void dgrad_init(OpCase *c, Shape s, Dtype dtype, bool add)
{
    case_init(c, OP_LINEAR_DGRAD, attr_of(s), rows_tokens(s.rows));
    case_add_random(c, "dy", dtype, rows_kind(ROWS_TOKENS), s.n, 1);
    case_copy(c, "w", dtype, s.n, s.k, true, 0.2);
    if (add) case_add_random(c, "add", dtype, rows_kind(ROWS_TOKENS), s.k, 1);
    case_add(c, "dx", dtype, rows_kind(ROWS_TOKENS), s.k);
}

static void wgrad_init(OpCase *c, Shape s, Dtype dtype, bool db)
{
    case_init(c, OP_LINEAR_WGRAD, attr_of(s), rows_tokens(s.rows));
    case_add_random(c, "x", dtype, rows_kind(ROWS_TOKENS), s.k, 1);
    case_add_random(c, "dy", dtype, rows_kind(ROWS_TOKENS), s.n, 1);
    case_add_random(c, "dw", F32, fixed(s.n), s.k, 1);
    if (db) case_add_random(c, "db", F32, fixed(s.n), 1, 1);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int option = 0; option < N_BIASES; option++) {
                Dtype dtype = compute_types[t];
                OpCase c;
                linear_init(&c, shapes[i], dtype, dtype, option);
                case_check(&c, (Tolerance){0});
                case_free(&c);
                if (option > 1) continue;
                dgrad_init(&c, shapes[i], dtype, option);
                case_check(&c, (Tolerance){0});
                case_free(&c);
                wgrad_init(&c, shapes[i], dtype, option);
                case_check(&c, (Tolerance){0});
                case_expect_accumulated(&c, "dw");
                if (option) case_expect_accumulated(&c, "db");
                case_expect_begun(&c);
                case_free(&c);
            }
}

static void test_fp32_logits_from_bf16(void **state)
{
    (void)state;
    OpCase c;
    linear_init(&c, (Shape){65, 36, 3}, BF16, F32, BIAS_F32);
    case_check(&c, (Tolerance){0});
    case_free(&c);
}

/* ref itself against sums in double, from the stored operands. */
static void test_meaning(void **state)
{
    (void)state;
    const Shape s = {17, 36, 20};
    OpCase c;
    for (int t = 0; t < N_COMPUTE; t++) {
        linear_init(&c, s, compute_types[t], F32, BIAS_F32);
        case_run(&c, ops_ref(), (RunOptions){0});
        float *x = case_values(&c, "x"), *bias = case_values(&c, "bias"), *y = case_values(&c, "y");
        float *expected = mem_array((size_t)(s.rows * s.n), sizeof *expected);
        const float *w = case_initial(&c, "w");
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t j = 0; j < s.n; j++) {
                double sum = (double)bias[j];
                for (int64_t i = 0; i < s.k; i++) {
                    float wji = type_rounded(compute_types[t], w[j * s.k + i]);
                    sum += (double)x[r * s.k + i] * (double)wji;
                }
                expected[r * s.n + j] = (float)sum;
            }
        expect_close("linear", y, expected, s.rows * s.n, 1e-6);
        free(x);
        free(bias);
        free(y);
        free(expected);
        case_free(&c);
    }
}

/* dx + add is rounded once: adding 0 changes nothing, and the sum is not made from a rounded dx. */
static void test_add_rounds_once(void **state)
{
    (void)state;
    OpCase c;
    dgrad_init(&c, (Shape){1, 1, 1}, BF16, true);
    case_set(&c, "dy", 0, 1, (float[]){1.0f});
    case_set(&c, "w", 0, 1, (float[]){1.0f});
    case_set(&c, "add", 0, 1, (float[]){0x1p-8f}); /* half a last place of 1: alone, a tie to even */
    case_run(&c, ops_ref(), (RunOptions){0});
    float *dx = case_values(&c, "dx");
    assert_true(dx[0] == 1.0f);
    free(dx);
    case_set(&c, "dy", 0, 1, (float[]){1.0078125f}); /* its square, 1.01568…, is not a bf16 */
    case_set(&c, "w", 0, 1, (float[]){1.0078125f});
    case_run(&c, ops_ref(), (RunOptions){0});
    dx = case_values(&c, "dx");
    assert_true(dx[0] == bf16_to_f32(bf16_from_f32(1.0078125f * 1.0078125f + 0x1p-8f)));
    assert_true(dx[0] != bf16_to_f32(bf16_from_f32(bf16_to_f32(bf16_from_f32(1.0078125f * 1.0078125f)) + 0x1p-8f)));
    free(dx);
    case_free(&c);
}

static void test_gradients(void **state)
{
    (void)state;
    const Shape s = {5, 12, 7};
    OpCase forward, dgrad, wgrad;
    linear_init(&forward, s, F32, F32, BIAS_F32);
    dgrad_init(&dgrad, s, F32, false);
    case_set(&dgrad, "w", 0, s.n * s.k, case_initial(&forward, "w"));
    case_run(&dgrad, ops_ref(), (RunOptions){0});
    wgrad_init(&wgrad, s, F32, true);
    case_set(&wgrad, "x", 0, s.rows * s.k, case_initial(&forward, "x"));
    case_set(&wgrad, "dy", 0, s.rows * s.n, case_initial(&dgrad, "dy"));
    case_clear_rows(&wgrad, "dw", 0);
    case_clear_rows(&wgrad, "db", 0);
    case_run(&wgrad, ops_ref(), (RunOptions){0});
    expect_gradient(&forward, "x", "y", &dgrad, "dy", &dgrad, "dx", 0.25, 1e-5);
    expect_gradient(&forward, "w", "y", &dgrad, "dy", &wgrad, "dw", 0.25, 1e-5);
    expect_gradient(&forward, "bias", "y", &dgrad, "dy", &wgrad, "db", 0.25, 1e-5);
    case_free(&forward);
    case_free(&dgrad);
    case_free(&wgrad);
}

/* A row of the result has the same bits in any company and at any place: not on a GPU, where the library's algorithm is
   chosen per bucket, and evaluation keeps to one bucket. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    static const int64_t takes[][2] = {{137, 1}, {100, 63}, {70, 64}, {0, 65}, {199, 1}};
    for (int t = 0; t < N_COMPUTE; t++)
        for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
            Shape all = {200, 36, 52}, part = {takes[i][1], 36, 52};
            OpCase a, b, da, db;
            linear_init(&a, all, compute_types[t], compute_types[t], BIAS_F32);
            linear_init(&b, part, compute_types[t], compute_types[t], BIAS_F32);
            case_set(&b, "w", 0, 36 * 52, case_initial(&a, "w"));
            case_set(&b, "bias", 0, 52, case_initial(&a, "bias"));
            case_copy_rows(&b, 0, &a, takes[i][0], takes[i][1], "x");
            dgrad_init(&da, all, compute_types[t], false);
            dgrad_init(&db, part, compute_types[t], false);
            case_set(&db, "w", 0, 36 * 52, case_initial(&da, "w"));
            case_copy_rows(&db, 0, &da, takes[i][0], takes[i][1], "dy");
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&a, backend) || strcmp(backend->name, "cuda") == 0) continue;
                case_run(&a, backend, (RunOptions){0});
                case_run(&b, backend, (RunOptions){0});
                case_expect_rows_equal(&a, takes[i][0], &b, 0, takes[i][1], "y");
                case_run(&da, backend, (RunOptions){0});
                case_run(&db, backend, (RunOptions){0});
                case_expect_rows_equal(&da, takes[i][0], &db, 0, takes[i][1], "dx");
            }
            case_free(&a);
            case_free(&b);
            case_free(&da);
            case_free(&db);
        }
}

/* ---- with GELU in the kernel ---- */

static void fused_init(OpCase *c, Shape s, Dtype dtype, GeluKind kind, bool again)
{
    OpAttr attr = {.linear = {.k = s.k, .n = s.n, .fused = true, .gelu = kind}};
    case_init(c, OP_LINEAR, attr, rows_tokens(s.rows));
    case_add_random(c, "x", dtype, rows_kind(ROWS_TOKENS), s.k, 1);
    case_copy(c, "w", dtype, s.n, s.k, false, 0.2);
    case_add_random(c, "bias", dtype, fixed(s.n), 1, 1);
    case_add(c, "y", dtype, rows_kind(ROWS_TOKENS), s.n);
    if (again) case_add(c, "g", dtype, rows_kind(ROWS_TOKENS), s.n);
}

static void fused_back_init(OpCase *c, Shape s, Dtype dtype, GeluKind kind, bool again, bool db)
{
    OpAttr attr = {.linear = {.k = s.k, .n = s.n, .fused = true, .gelu = kind}};
    case_init(c, OP_LINEAR_DGRAD, attr, rows_tokens(s.rows));
    case_add_random(c, "dy", dtype, rows_kind(ROWS_TOKENS), s.n, 1);
    case_copy(c, "w", dtype, s.n, s.k, true, 0.2);
    case_add_random(c, "pre", dtype, rows_kind(ROWS_TOKENS), s.k, 4);
    case_add(c, "dx", dtype, rows_kind(ROWS_TOKENS), s.k);
    if (again) case_add(c, "g", dtype, rows_kind(ROWS_TOKENS), s.k);
    if (db) case_add_random(c, "db", F32, fixed(s.k), 1, 1);
}

/* ref has the bits of the two ops. (Cases with operands in the same order hold the same numbers.) */
static void test_fused_meaning(void **state)
{
    const Shape s = {65, 36, 52};
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++)
        for (int kind = GELU_ERF; kind <= GELU_TANH; kind++) {
            OpCase both, product, gelu;
            fused_init(&both, s, compute_types[t], kind, true);
            linear_init(&product, s, compute_types[t], compute_types[t], BIAS_OF_Y);
            case_init(&gelu, OP_GELU, (OpAttr){.gelu = {kind}}, rows_tokens(s.rows));
            case_add(&gelu, "pre", compute_types[t], rows_kind(ROWS_TOKENS), s.n);
            case_add(&gelu, "g", compute_types[t], rows_kind(ROWS_TOKENS), s.n);
            case_run(&both, ops_ref(), (RunOptions){0});
            case_run(&product, ops_ref(), (RunOptions){0});
            float *y = case_values(&product, "y");
            case_set(&gelu, "pre", 0, s.rows * s.n, y);
            case_run(&gelu, ops_ref(), (RunOptions){0});
            case_expect_rows_equal(&both, 0, &product, 0, s.rows, "y");
            case_expect_rows_equal(&both, 0, &gelu, 0, s.rows, "g");
            free(y);
            case_free(&both);
            case_free(&product);
            case_free(&gelu);
        }
}

static bool on_a_gpu(void)
{
    for (Backend *b = ops_next(NULL); b; b = ops_next(b))
        if (strcmp(b->name, "cuda") == 0) return true;
    return false;
}

static bool runs_beside_ref(const OpCase *c)
{
    for (Backend *b = ops_next(ops_ref()); b; b = ops_next(b))
        if (case_runs_on(c, b)) return true;
    return false;
}

/* Tiles that rows and columns do not fill, one, several; on a GPU also four for each of 132 multiprocessors, which take
   turns there. The last rows alone, and without g and db, have the same bits. */
static void test_fused_shapes(void **state)
{
    static const Shape sizes[] = {{1, 64, 256},    {64, 8, 256},     {65, 72, 512},
                                  {200, 256, 256}, {130, 512, 1024}, {8400, 72, 1024}};
    const size_t n = sizeof sizes / sizeof *sizes - !on_a_gpu();
    (void)state;
    for (size_t i = 0; i < n; i++) {
        const Shape s = sizes[i], back = {s.rows, s.n, s.k};
        const int64_t part = s.rows < 37 ? s.rows : 37, first = s.rows - part;
        OpCase all, some;
        fused_init(&all, s, BF16, GELU_ERF, true);
        fused_init(&some, (Shape){part, s.k, s.n}, BF16, GELU_ERF, false);
        case_copy_rows(&some, 0, &all, first, part, "x");
        assert_true(runs_beside_ref(&all) || !env_is_on("CAIRN_CUDA_FUSED_GELU"));
        case_check(&all, (Tolerance){0});
        case_expect_independent(&all, first, &some, part, "y", NULL);
        case_free(&all);
        case_free(&some);

        fused_back_init(&all, back, BF16, GELU_ERF, true, true);
        fused_back_init(&some, (Shape){part, s.n, s.k}, BF16, GELU_ERF, false, false);
        case_copy_rows(&some, 0, &all, first, part, "dy");
        case_copy_rows(&some, 0, &all, first, part, "pre");
        case_check(&all, tolerance_of_sums(BF16));
        case_expect_accumulated(&all, "db");
        case_expect_begun(&all);
        case_expect_independent(&all, first, &some, part, "dx", NULL);
        case_free(&all);
        case_free(&some);
    }
}

/* Rows whose dy is 0 have dx 0 and add nothing to dw, whatever x holds there. */
static void test_pad_rows(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++) {
        OpCase d, a, b;
        dgrad_init(&d, (Shape){64, 36, 52}, compute_types[t], false);
        case_clear_rows(&d, "dy", 50);
        wgrad_init(&a, (Shape){64, 36, 52}, compute_types[t], true);
        wgrad_init(&b, (Shape){64, 36, 52}, compute_types[t], true);
        case_clear_rows(&a, "dy", 50);
        case_clear_rows(&b, "dy", 50);
        case_clear_rows(&b, "x", 50);
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&a, backend)) continue;
            case_run(&d, backend, (RunOptions){0});
            case_expect_zero_rows(&d, "dx", 50, 64);
            case_run(&a, backend, (RunOptions){0});
            case_run(&b, backend, (RunOptions){0});
            case_expect_rows_equal(&a, 0, &b, 0, 52, "dw");
            case_expect_rows_equal(&a, 0, &b, 0, 52, "db");
        }
        case_free(&d);
        case_free(&a);
        case_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_fp32_logits_from_bf16),
        cmocka_unit_test(test_meaning),      cmocka_unit_test(test_add_rounds_once),
        cmocka_unit_test(test_gradients),    cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_pad_rows),     cmocka_unit_test(test_fused_meaning),
        cmocka_unit_test(test_fused_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
