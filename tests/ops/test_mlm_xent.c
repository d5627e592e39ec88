/* MLM_XENT: the decoder's product with its loss. */
#include <math.h>

#include "asan.h"
#include "ops/harness.h"

typedef struct {
    int64_t rows, hidden, padded;
    int32_t classes, real;
} Shape;
static const Shape shapes[] = {
    {1, 36, 64, 60, 1},
    {63, 36, 128, 101, 40},
    {64, 20, 128, 128, 64},
    {65, 64, 1024, 1000, 33},
    {16, 36, 64, 60, 0},
    /* many rows, and vocabularies of several tiles of a block, whose last is not full */
    {300, 24, 64, 60, 290},
    {5, 16, 8320, 8300, 4},
    {3, 8, 20544, 20490, 3},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void init(OpCase *c, Shape s, Dtype dtype, bool training)
{
    RowCounts rows = {.count = {[ROWS_MASKED] = s.rows}};
    case_init(c, OP_MLM_XENT, (OpAttr){.loss = {.slot = 0, .classes = s.classes, .k = s.hidden, .n = s.padded}}, rows);
    case_add_random(c, "h", dtype, rows_kind(ROWS_MASKED), s.hidden, 2);
    case_copy(c, "w", dtype, s.padded, s.hidden, false, 0.5);
    case_clear_rows(c, "w", 0);
    OpCase real = {0}; /* pad rows of the weight are 0 */
    case_init(&real, OP_MLM_XENT, c->attr, rows);
    case_copy(&real, "w", dtype, s.classes, s.hidden, false, 0.5);
    case_set(c, "w", 0, s.classes * s.hidden, case_initial(&real, "w"));
    case_free(&real);
    case_add_random(c, "bias", F32, fixed(s.padded), 1, 1);
    case_set(c, "bias", s.padded - 1, 1, (float[]){s.padded > s.classes ? 1e30f : 1}); /* a pad row, if there is one */
    case_add(c, "labels", I32, rows_kind(ROWS_MASKED), 1);
    uint64_t random = 5;
    for (int64_t i = 0; i < s.rows; i++) {
        int32_t label = (int32_t)(testing_random(&random) % (uint64_t)s.classes);
        case_set_ints(c, "labels", i, 1, &(int32_t){i < s.real ? label : 1 << 30});
    }
    case_add(c, "loss", F32, rows_kind(ROWS_MASKED), 1);
    *(Stats *)case_initial(c, "stats") = (Stats){.loss = {3, 1000}, .correct = {5, 7}};
    *case_ctl(c) = (Ctl){.n_masked = s.real, .scale_masked = 0.125f, .scale_seqs = 77};
    case_scaling(c, 4);
    if (!training) return;
    case_copy(c, "wt", dtype, s.padded, s.hidden, true, 0.5);
    case_set(c, "wt", 0, s.padded * s.hidden, case_initial(c, "w"));
    case_add(c, "dh", dtype, rows_kind(ROWS_MASKED), s.hidden);
    case_add_random(c, "dw", F32, fixed(s.padded), s.hidden, 1);
    case_add_random(c, "db", F32, fixed(s.padded), 1, 1);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int training = 0; training < 2; training++) {
                OpCase c;
                if (TESTING_ASAN && shapes[i].rows > 200 && compute_types[t] != BF16) continue; /* slow */
                init(&c, shapes[i], compute_types[t], training);
                bool half = compute_types[t] != F32; /* the gradient of the logits is rounded on the way to dw */
                case_check(&c, (Tolerance){.f32 = half ? 2e-3 : 0, .bf16 = half ? 8e-3 : 0});
                if (training) case_expect_begun(&c);
                case_free(&c);
            }
}

/* Every backend: loss, right answers and the gradients of bias and weight from a softmax over the real vocabulary, in
   double; pad rows of the batch are 0, pad rows of the vocabulary untouched. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            const Shape *s = &shapes[i];
            OpCase c;
            if (TESTING_ASAN && s->rows > 200) continue; /* slow */
            init(&c, *s, F32, true);
            case_run(&c, backend, (RunOptions){0});
            float *h = case_values(&c, "h"), *loss = case_values(&c, "loss"), *db = case_values(&c, "db");
            float *dw = case_values(&c, "dw"), *bias = case_values(&c, "bias");
            const float *w = case_initial(&c, "w");
            const int32_t *labels = case_initial(&c, "labels");
            float *want_loss = mem_array((size_t)s->rows, sizeof(float));
            double *p = mem_array((size_t)s->classes, sizeof(double));
            double *want_db = mem_array((size_t)s->classes, sizeof(double)), sum = 0;
            double *want_dw = mem_array((size_t)(s->classes * s->hidden), sizeof(double));
            int64_t correct = 0;
            for (int64_t r = 0; r < s->real; r++) {
                double all = 0;
                int best = 0;
                for (int v = 0; v < s->classes; v++) {
                    p[v] = (double)bias[v];
                    for (int64_t j = 0; j < s->hidden; j++)
                        p[v] += (double)h[r * s->hidden + j] * (double)w[v * s->hidden + j];
                    if (p[v] > p[best]) best = v;
                    all += exp(p[v]);
                }
                want_loss[r] = (float)(log(all) - p[labels[r]]);
                correct += best == labels[r];
                sum += (double)loss[r];
                for (int v = 0; v < s->classes; v++) {
                    double d = 0.5 * (exp(p[v]) / all - (v == labels[r]));
                    want_db[v] += d;
                    for (int64_t j = 0; j < s->hidden; j++)
                        want_dw[v * s->hidden + j] += d * (double)h[r * s->hidden + j];
                }
            }
            const float *old_db = case_initial(&c, "db"), *old_dw = case_initial(&c, "dw");
            for (int v = 0; v < s->classes; v++) assert_true(fabs((double)(db[v] - old_db[v]) - want_db[v]) < 1e-5);
            for (int64_t j = 0; j < s->classes * s->hidden; j++)
                assert_true(fabs((double)(dw[j] - old_dw[j]) - want_dw[j]) < 2e-5);
            size_t pad = (size_t)(s->padded - s->classes);
            assert_memory_equal(db + s->classes, old_db + s->classes, pad * sizeof(float));
            assert_memory_equal(dw + s->classes * s->hidden, old_dw + s->classes * s->hidden,
                                pad * (size_t)s->hidden * sizeof(float));
            expect_close("loss", loss, want_loss, s->rows, 2e-6);
            case_expect_zero_rows(&c, "loss", s->real, s->rows);
            case_expect_zero_rows(&c, "dh", s->real, s->rows);
            const Stats *stats = case_bytes(&c, "stats");
            assert_true(fabs(stats->loss[0] - (3 + sum)) <= 1e-12 * (3 + sum));
            assert_true(stats->loss[1] == 1000 && stats->correct[1] == 7);
            assert_int_equal(stats->correct[0], 5 + correct);
            float *const all[] = {h, loss, db, dw, bias, want_loss};
            for (size_t j = 0; j < sizeof all / sizeof *all; j++) free(all[j]);
            free(p);
            free(want_db);
            free(want_dw);
            case_free(&c);
        }
}

/* dh by differences of the loss; dw and db are held to their definition above. */
static void test_gradient(void **state)
{
    (void)state;
    const Shape s = {5, 12, 64, 30, 4};
    OpCase forward, backward;
    init(&forward, s, F32, false);
    init(&backward, s, F32, true);
    case_set(&backward, "w", 0, s.padded * s.hidden, case_initial(&forward, "w"));
    case_set(&forward, "bias", s.padded - 1, 1, (float[]){0}); /* 1e30 has no neighbours to take a difference of */
    case_clear_rows(&backward, "dw", 0);
    case_clear_rows(&backward, "db", 0);
    case_run(&backward, ops_ref(), (RunOptions){0});
    static const char *const pairs[][2] = {{"h", "dh"}, {"w", "dw"}, {"bias", "db"}};
    const float weight[5] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f}; /* scale_masked · the loss scale */
    for (size_t i = 0; i < 3; i++) {
        int64_t n = case_count(&forward, pairs[i][0]);
        float *expected = mem_array((size_t)n, sizeof *expected), *found = case_values(&backward, pairs[i][1]);
        case_differences(&forward, pairs[i][0], "loss", weight, 0x1p-6, expected);
        expect_close(pairs[i][1], found, expected, n, 1e-3);
        free(expected);
        free(found);
    }
    case_free(&forward);
    case_free(&backward);
}

/* A row's loss and dh have the same bits in any company. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    for (int t = 0; t < N_COMPUTE; t++) {
        OpCase a, b;
        init(&a, (Shape){65, 64, 1024, 1000, 60}, compute_types[t], true);
        init(&b, (Shape){21, 64, 1024, 1000, 21}, compute_types[t], true);
        case_set(&b, "w", 0, 1024 * 64, case_initial(&a, "w"));
        case_set(&b, "wt", 0, 1024 * 64, case_initial(&a, "w"));
        case_set(&b, "bias", 0, 1024, case_initial(&a, "bias"));
        case_copy_rows(&b, 0, &a, 37, 21, "h");
        case_copy_rows(&b, 0, &a, 37, 21, "labels");
        case_expect_independent(&a, 37, &b, 21, "loss", "dh");
        case_free(&a);
        case_free(&b);
    }
}

/* A label of −1 is none: its row has loss 0 and gradient 0. A column whose bias is −1e30 has the probability 0, so the
   other columns have the results that they have without it. */
static void test_rows_and_columns_that_do_not_count(void **state)
{
    (void)state;
    enum { ROWS = 70, HIDDEN = 40, COLUMNS = 128, REAL = 75 };
    for (int t = 0; t < N_COMPUTE; t++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase all, real;
            init(&all, (Shape){ROWS, HIDDEN, COLUMNS, COLUMNS, ROWS}, compute_types[t], true);
            init(&real, (Shape){ROWS, HIDDEN, COLUMNS, REAL, ROWS}, compute_types[t], true);
            case_clear_rows(&all, "w", REAL);
            case_clear_rows(&all, "wt", REAL);
            for (int64_t j = REAL; j < COLUMNS; j++) case_set(&all, "bias", j, 1, (float[]){-1e30f});
            case_clear_rows(&all, "dw", 0);
            case_clear_rows(&real, "dw", 0);
            for (int64_t r = 0; r < ROWS; r++) {
                int32_t label = r % 3 == 1 || r > 60 ? -1 : (int32_t)(r * 7 % REAL);
                case_set_ints(&all, "labels", r, 1, &label);
                case_set_ints(&real, "labels", r, 1, &label);
            }
            case_copy_rows(&real, 0, &all, 0, ROWS, "h");
            case_set(&real, "w", 0, REAL * HIDDEN, case_initial(&all, "w"));
            case_set(&real, "wt", 0, REAL * HIDDEN, case_initial(&all, "wt"));
            case_set(&real, "bias", 0, REAL, case_initial(&all, "bias"));
            if (case_runs_on(&all, backend)) {
                case_run(&all, backend, (RunOptions){0});
                case_run(&real, backend, (RunOptions){0});
                case_expect_rows_equal(&all, 0, &real, 0, ROWS, "loss");
                case_expect_rows_equal(&all, 0, &real, 0, ROWS, "dh");
                case_expect_rows_equal(&all, 0, &real, 0, REAL, "dw");
                for (int r = 0; r < ROWS; r++)
                    if (r % 3 == 1 || r > 60) case_expect_zero_rows(&all, "dh", r, r + 1);
                float *dw = case_values(&all, "dw");
                for (int64_t i = REAL * HIDDEN; i < COLUMNS * HIDDEN; i++) assert_true(fabsf(dw[i]) < 1e-30f);
                free(dw);
            }
            case_free(&all);
            case_free(&real);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_rows_and_columns_that_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
