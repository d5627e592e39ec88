/* ADDNORM, ADDNORM_BWD in both forms, and AFFINE. */
#include <math.h>

#include "ops/harness.h"
#include "ops/row_dropout.h"

#define EPS 1e-12f

typedef struct {
    int lengths[5], n; /* sequences */
    int64_t rows;      /* of the bucket */
    int64_t hidden;
    NormForm form;
    bool residual;
    float p;
} Shape;

static const Shape shapes[] = {
    {{1}, 1, 1, 36, NORM_FORM_Y, true, 0.1f},
    {{2}, 1, 64, 36, NORM_FORM_XHAT, true, 0.1f},
    {{1, 2, 60}, 3, 63, 36, NORM_FORM_Y, true, 0},
    {{30, 20}, 2, 64, 60, NORM_FORM_Y, true, 0.5f},
    {{30, 20}, 2, 64, 60, NORM_FORM_XHAT, true, 0.5f},
    {{65}, 1, 65, 64, NORM_FORM_Y, false, 0},
    {{65}, 1, 65, 64, NORM_FORM_XHAT, false, 0},
    {{128, 5, 1, 17, 40}, 5, 200, 128, NORM_FORM_Y, true, 0.1f},
    {{128, 5, 1, 17, 40}, 5, 200, 100, NORM_FORM_XHAT, true, 0.1f},
    {{7, 3}, 2, 64, 768, NORM_FORM_Y, true, 0.1f},
    {{7, 3}, 2, 10, 8, NORM_FORM_Y, true, 0.1f},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static OpAttr attr_of(const Shape *s)
{
    return (OpAttr){.norm = {.eps = EPS, .dropout = s->p, .site = 6, .form = s->form}};
}

static void add_common(OpCase *c, const Shape *s)
{
    case_add_random(c, "gamma", F32, fixed(s->hidden), 1, 1);
    case_add_random(c, "beta", F32, fixed(s->hidden), 1, 1);
    if (s->form == NORM_FORM_Y)
        case_random(c, "gamma", 1, 0.5);
    else
        case_set(c, "gamma", 0, 3, (float[]){0, 1e-3f, -2});
    case_add(c, "pos", I32, rows_kind(ROWS_TOKENS), 1);
    case_add(c, "seq", I32, rows_kind(ROWS_TOKENS), 1);
    case_sequences(c, s->lengths, NULL, s->n);
    case_ctl(c)->dropout_key = KEY;
    case_ctl(c)->batch = 5;
}

static void forward_init(OpCase *c, const Shape *s, Dtype dtype)
{
    Rows tokens = rows_kind(ROWS_TOKENS);
    case_init(c, OP_ADDNORM, attr_of(s), rows_tokens(s->rows));
    case_add_random(c, "d", dtype, tokens, s->hidden, 2);
    if (s->residual) case_add_random(c, "x", dtype, tokens, s->hidden, 1);
    add_common(c, s);
    case_add(c, "y", dtype, tokens, s->hidden);
    case_add(c, "rstd", F32, tokens, 1);
    if (s->form == NORM_FORM_XHAT) case_add(c, "xhat", dtype, tokens, s->hidden);
}

/* The backward of a forward case that has run; dy is 0 in rows of no sequence. */
static void backward_init(OpCase *c, const Shape *s, OpCase *forward, Dtype dtype)
{
    Rows tokens = rows_kind(ROWS_TOKENS);
    case_init(c, OP_ADDNORM_BWD, attr_of(s), rows_tokens(s->rows));
    case_take(c, "kept", forward, s->form == NORM_FORM_Y ? "y" : "xhat");
    case_take(c, "rstd", forward, "rstd");
    add_common(c, s);
    case_set(c, "gamma", 0, s->hidden, case_initial(forward, "gamma"));
    case_set(c, "beta", 0, s->hidden, case_initial(forward, "beta"));
    case_add_random(c, "dy", dtype, tokens, s->hidden, 1);
    case_clear_rows(c, "dy", case_ctl(c)->n_tokens);
    case_add(c, "dd", dtype, tokens, s->hidden);
    if (s->residual) case_add(c, "dx", dtype, tokens, s->hidden);
    case_add_random(c, "dgamma", F32, fixed(s->hidden), 1, 1);
    case_add_random(c, "dbeta", F32, fixed(s->hidden), 1, 1);
}

static void check_shapes(const Shape *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            OpCase forward, backward;
            forward_init(&forward, &list[i], compute_types[t]);
            case_check(&forward, (Tolerance){0});
            backward_init(&backward, &list[i], &forward, compute_types[t]);
            case_check(&backward, (Tolerance){0});
            case_expect_accumulated(&backward, "dgamma");
            case_expect_accumulated(&backward, "dbeta");
            case_free(&backward);
            backward_init(&backward, &list[i], &forward, compute_types[t]);
            case_add_random(&backward, "db", F32, fixed(list[i].hidden), 1, 1);
            case_check(&backward, tolerance_of_sums(compute_types[t]));
            case_expect_accumulated(&backward, "db");
            case_expect_begun(&backward);
            case_free(&forward);
            case_free(&backward);
        }
}

static void test_shapes(void **state)
{
    (void)state;
    check_shapes(shapes, N_SHAPES);
}

/* Rows for each way to hold them, to the longest; two are not a multiple of 8. */
static void test_wide(void **state)
{
    (void)state;
    static const Shape wide[] = {
        {{2, 1}, 2, 4, 264, NORM_FORM_XHAT, true, 0.1f}, {{3}, 1, 3, 520, NORM_FORM_Y, true, 0.1f},
        {{2, 3}, 2, 6, 1024, NORM_FORM_XHAT, true, 0},   {{2}, 1, 3, 1032, NORM_FORM_Y, true, 0.1f},
        {{2}, 1, 2, 4104, NORM_FORM_XHAT, false, 0.1f},  {{1, 1}, 2, 3, 8192, NORM_FORM_Y, true, 0.1f},
        {{2}, 1, 2, 8190, NORM_FORM_XHAT, true, 0.1f},   {{2, 1}, 2, 3, 300, NORM_FORM_Y, true, 0.1f},
    };
    check_shapes(wide, sizeof wide / sizeof *wide);
}

/* On every backend db holds the sums of dd as it is stored; the other outputs have the bits that they have without. */
static void test_db(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            OpCase forward, with, without;
            const Shape *s = &shapes[i];
            forward_init(&forward, s, compute_types[t]);
            case_run(&forward, ops_ref(), (RunOptions){0});
            backward_init(&without, s, &forward, compute_types[t]);
            backward_init(&with, s, &forward, compute_types[t]);
            case_add_random(&with, "db", F32, fixed(s->hidden), 1, 1);
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&with, backend)) continue;
                case_run(&with, backend, (RunOptions){0});
                case_run(&without, backend, (RunOptions){0});
                case_expect_rows_equal(&with, 0, &without, 0, s->rows, "dd");
                if (s->residual) case_expect_rows_equal(&with, 0, &without, 0, s->rows, "dx");
                case_expect_rows_equal(&with, 0, &without, 0, s->hidden, "dgamma");
                case_expect_rows_equal(&with, 0, &without, 0, s->hidden, "dbeta");
                case_expect_column_sums(&with, "db", "dd");
            }
            case_free(&forward);
            case_free(&with);
            case_free(&without);
        }
}

/* The forward in double from the stored operands, with the dropout's definition; xhat and y. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        const Shape *s = &shapes[i];
        OpCase c;
        forward_init(&c, s, F32);
        case_run(&c, ops_ref(), (RunOptions){0});
        float *d = case_values(&c, "d"), *x = s->residual ? case_values(&c, "x") : NULL, *y = case_values(&c, "y");
        float *rstd = case_values(&c, "rstd"), *gamma = case_values(&c, "gamma"), *beta = case_values(&c, "beta");
        float *want_y = mem_array((size_t)(s->rows * s->hidden), sizeof(float));
        float *want_rstd = mem_array((size_t)s->rows, sizeof(float));
        double *sum = mem_array((size_t)s->hidden, sizeof(double));
        const int32_t *position = case_initial(&c, "pos"), *sequence = case_initial(&c, "seq");
        double scale = 65536 / (65536 - (double)lrint(65536.0 * (double)s->p));
        for (int64_t r = 0; r < s->rows; r++) {
            double mean = 0, variance = 0;
            for (int64_t j = 0; j < s->hidden; j++) {
                bool drop = row_dropped(6, 5, (uint32_t)sequence[r], (uint32_t)position[r], (uint32_t)j, s->p);
                sum[j] = (drop ? 0 : (double)d[r * s->hidden + j] * scale) + (x ? (double)x[r * s->hidden + j] : 0);
                mean += sum[j] / (double)s->hidden;
            }
            for (int64_t j = 0; j < s->hidden; j++) variance += (sum[j] - mean) * (sum[j] - mean) / (double)s->hidden;
            want_rstd[r] = (float)(1 / sqrt(variance + (double)EPS));
            for (int64_t j = 0; j < s->hidden; j++)
                want_y[r * s->hidden + j] =
                    (float)((sum[j] - mean) / sqrt(variance + (double)EPS) * (double)gamma[j] + (double)beta[j]);
        }
        expect_close("y", y, want_y, s->rows * s->hidden, 1e-6);
        expect_close("rstd", rstd, want_rstd, s->rows, 1e-6);
        free(d);
        free(x);
        free(y);
        free(rstd);
        free(gamma);
        free(beta);
        free(want_y);
        free(want_rstd);
        free(sum);
        case_free(&c);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    static const Shape small[] = {
        {{3, 1, 2}, 3, 8, 36, NORM_FORM_Y, true, 0.5f}, {{3, 1, 2}, 3, 8, 36, NORM_FORM_XHAT, true, 0.5f},
        {{3, 1, 2}, 3, 8, 36, NORM_FORM_Y, true, 0.1f}, {{5}, 1, 5, 20, NORM_FORM_Y, false, 0},
        {{5}, 1, 5, 20, NORM_FORM_XHAT, false, 0.1f},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        OpCase forward, backward;
        forward_init(&forward, &small[i], F32);
        case_run(&forward, ops_ref(), (RunOptions){0});
        backward_init(&backward, &small[i], &forward, F32);
        case_clear_rows(&backward, "dgamma", 0);
        case_clear_rows(&backward, "dbeta", 0);
        case_run(&backward, ops_ref(), (RunOptions){0});
        const double step = 0x1p-6, tolerance = 1e-3;
        expect_gradient(&forward, "d", "y", &backward, "dy", &backward, "dd", step, tolerance);
        if (small[i].residual) expect_gradient(&forward, "x", "y", &backward, "dy", &backward, "dx", step, tolerance);
        expect_gradient(&forward, "gamma", "y", &backward, "dy", &backward, "dgamma", step, tolerance);
        expect_gradient(&forward, "beta", "y", &backward, "dy", &backward, "dbeta", step, tolerance);
        case_free(&forward);
        case_free(&backward);
    }
}

/* On every backend: dd is 0 exactly where the forward dropped, dx nowhere; both are exactly 0 in rows of no sequence.
 */
static void test_masks(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            const Shape *s = &shapes[i];
            OpCase forward, backward;
            forward_init(&forward, s, compute_types[t]);
            case_run(&forward, ops_ref(), (RunOptions){0});
            backward_init(&backward, s, &forward, compute_types[t]);
            if (s->form == NORM_FORM_XHAT)
                case_random(&backward, "gamma", 1, 0.5); /* a zero gradient would hide a mask */
            int64_t tokens = case_ctl(&backward)->n_tokens;
            const int32_t *position = case_initial(&backward, "pos"), *sequence = case_initial(&backward, "seq");
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&backward, backend)) continue;
                case_run(&backward, backend, (RunOptions){0});
                float *dd = case_values(&backward, "dd");
                for (int64_t j = 0; j < tokens * s->hidden; j++) {
                    int64_t r = j / s->hidden;
                    bool drop = row_dropped(6, 5, (uint32_t)sequence[r], (uint32_t)position[r],
                                            (uint32_t)(j % s->hidden), s->p);
                    if ((dd[j] == 0) != drop)
                        fail_msg("%s: dd of row %lld, column %lld is %g; it is %s", backend->name, (long long)r,
                                 (long long)(j % s->hidden), (double)dd[j], drop ? "dropped" : "kept");
                }
                free(dd);
                case_expect_zero_rows(&backward, "dd", tokens, s->rows);
                if (s->residual) case_expect_zero_rows(&backward, "dx", tokens, s->rows);
            }
            case_free(&forward);
            case_free(&backward);
        }
}

/* A sequence alone and among others: the same bits, with the same index in the global batch. */
static void test_sequences_are_independent(void **state)
{
    (void)state;
    static const int lengths[] = {5, 70, 33, 16}, alone[] = {33}, index[] = {2};
    for (int form = 0; form < 2; form++)
        for (int t = 0; t < N_COMPUTE; t++) {
            Shape many = {{5, 70, 33, 16}, 4, 128, 36, (NormForm)form, true, 0.1f};
            Shape one = {{33}, 1, 33, 36, (NormForm)form, true, 0.1f};
            OpCase a, b;
            forward_init(&a, &many, compute_types[t]);
            case_sequences(&a, lengths, NULL, 4);
            forward_init(&b, &one, compute_types[t]);
            case_sequences(&b, alone, index, 1);
            case_copy_rows(&b, 0, &a, 75, 33, "d");
            case_copy_rows(&b, 0, &a, 75, 33, "x");
            case_set(&b, "gamma", 0, 36, case_initial(&a, "gamma"));
            case_set(&b, "beta", 0, 36, case_initial(&a, "beta"));
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&a, backend)) continue;
                case_run(&a, backend, (RunOptions){0});
                case_run(&b, backend, (RunOptions){0});
                case_expect_rows_equal(&a, 75, &b, 0, 33, "y");
                case_expect_rows_equal(&a, 75, &b, 0, 33, "rstd");
                OpCase da, db;
                backward_init(&da, &many, &a, compute_types[t]);
                backward_init(&db, &one, &b, compute_types[t]);
                case_sequences(&db, alone, index, 1);
                case_copy_rows(&db, 0, &da, 75, 33, "dy");
                case_run(&da, backend, (RunOptions){0});
                case_run(&db, backend, (RunOptions){0});
                case_expect_rows_equal(&da, 75, &db, 0, 33, "dd");
                case_expect_rows_equal(&da, 75, &db, 0, 33, "dx");
                case_free(&da);
                case_free(&db);
            }
            case_free(&a);
            case_free(&b);
        }
}

/* AFFINE of the kept xhat gives y's bits; so does ADDNORM in form XHAT without keeping it, as in evaluation. */
static void test_affine_rebuilds_y(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            const Shape *s = &shapes[i];
            if (s->form != NORM_FORM_XHAT) continue;
            OpCase forward, unkept, affine;
            forward_init(&forward, s, compute_types[t]);
            forward_init(&unkept, s, compute_types[t]);
            case_add(&unkept, "xhat", compute_types[t], rows_kind(ROWS_TOKENS), 0);
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&forward, backend)) continue;
                case_run(&forward, backend, (RunOptions){0});
                case_run(&unkept, backend, (RunOptions){0});
                case_expect_rows_equal(&forward, 0, &unkept, 0, s->rows, "y");
                case_init(&affine, OP_AFFINE, (OpAttr){0}, rows_tokens(s->rows));
                case_take(&affine, "xhat", &forward, "xhat");
                case_take(&affine, "gamma", &forward, "gamma");
                case_take(&affine, "beta", &forward, "beta");
                case_add(&affine, "y", compute_types[t], rows_kind(ROWS_TOKENS), s->hidden);
                case_run(&affine, backend, (RunOptions){0});
                case_expect_rows_equal(&forward, 0, &affine, 0, s->rows, "y");
                if (backend == ops_ref()) case_check(&affine, (Tolerance){0});
                case_free(&affine);
            }
            case_free(&forward);
            case_free(&unkept);
        }
}

/* A row without variance: y is β, and nothing overflows. */
static void test_constant_row(void **state)
{
    (void)state;
    Shape s = {{2}, 1, 2, 36, NORM_FORM_Y, false, 0};
    float constant[36];
    for (int j = 0; j < 36; j++) constant[j] = 3;
    OpCase c;
    forward_init(&c, &s, F32);
    case_set(&c, "d", 36, 36, constant);
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        case_run(&c, backend, (RunOptions){0});
        float *y = case_values(&c, "y");
        const float *beta = case_initial(&c, "beta");
        for (int j = 0; j < 36; j++) assert_true(y[36 + j] == beta[j]);
        free(y);
    }
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_db),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_sequences_are_independent),
        cmocka_unit_test(test_affine_rebuilds_y),
        cmocka_unit_test(test_constant_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
