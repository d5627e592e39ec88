/* XENT of classes and of targets, MSE and BCE: losses of one row per sequence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "ops/harness.h"

typedef struct {
    int64_t rows, cols;
    int32_t classes, real;
} Shape;
static const Shape shapes[] = {{1, 2, 2, 1},    {4, 3, 3, 3},   {64, 3, 3, 64},
                               {63, 10, 7, 40}, {65, 1, 1, 65}, {8, 3, 3, 0}};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

typedef enum { KIND_XENT, KIND_MSE, KIND_BCE, KIND_SOFT, N_KINDS } Kind;
static const Op ops[N_KINDS] = {OP_XENT, OP_MSE, OP_BCE, OP_XENT};

/* The gradient's type is `dtype`; NULL gradient in evaluation. Labels of pad rows must not be read. */
static void init(OpCase *c, Kind kind, Shape s, Dtype dtype, bool training)
{
    Op op = ops[kind];
    bool wide = kind == KIND_BCE || kind == KIND_SOFT;
    int32_t width = wide ? s.classes : 1;
    RowCounts rows = {.count = {[ROWS_SEQS] = s.rows}};
    case_init(c, op, (OpAttr){.loss = {.slot = 1, .classes = s.classes}}, rows);
    case_add_random(c, "logits", F32, rows_kind(ROWS_SEQS), s.cols, 4);
    case_add(c, "labels", kind == KIND_XENT ? I32 : F32, rows_kind(ROWS_SEQS), width);
    uint64_t random = 5;
    for (int64_t i = 0; i < s.rows; i++) {
        int32_t label = i < s.real ? (int32_t)(testing_random(&random) % (uint64_t)s.classes) : 1 << 30;
        for (int32_t j = 0; op == OP_BCE && j < width; j++)
            case_set(c, "labels", i * width + j, 1, (float[]){i < s.real ? (float)((label ^ j) & 1) : NAN});
        for (int32_t j = 0; kind == KIND_SOFT && j < width; j++)
            case_set(c, "labels", i * width + j, 1,
                     (float[]){i < s.real ? (j == label ? 0.75f : 0) + 0.0625f * (float)(j + 1) : NAN});
        if (wide) continue;
        if (op == OP_MSE)
            case_set(c, "labels", i, 1, (float[]){i < s.real ? (float)label + 0.3f : NAN});
        else
            case_set_ints(c, "labels", i, 1, &label);
    }
    if (training) case_add(c, "dlogits", dtype, rows_kind(ROWS_SEQS), s.cols);
    case_add(c, "loss", F32, rows_kind(ROWS_SEQS), 1);
    *(Stats *)case_initial(c, "stats") = (Stats){.loss = {3, 1000}, .correct = {5, 7}};
    *case_ctl(c) = (Ctl){.n_seqs = s.real, .scale_seqs = 0.125f, .scale_masked = 77};
    case_scaling(c, 4);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int training = 0; training < 2; training++)
                for (Kind kind = 0; kind < N_KINDS; kind++) {
                    OpCase c;
                    init(&c, kind, shapes[i], compute_types[t], training);
                    case_check(&c, (Tolerance){0});
                    case_free(&c);
                }
}

/* Every backend against the definitions in double: row losses, their sum, right answers, the gradient's scale, pad
 * rows. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (Kind kind = 0; kind < N_KINDS; kind++)
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                const Shape *s = &shapes[i];
                OpCase c;
                init(&c, kind, *s, F32, true);
                case_run(&c, backend, (RunOptions){0});
                float *logits = case_values(&c, "logits"), *loss = case_values(&c, "loss");
                float *gradient = case_values(&c, "dlogits");
                float *want_loss = mem_array((size_t)s->rows, sizeof(float));
                float *want_gradient = mem_array((size_t)(s->rows * s->cols), sizeof(float));
                double sum = 0;
                int64_t correct = 0;
                for (int64_t r = 0; r < s->real; r++) {
                    const float *x = logits + r * s->cols;
                    float *g = want_gradient + r * s->cols;
                    if (kind == KIND_BCE) {
                        const float *y = (const float *)case_initial(&c, "labels") + r * s->classes;
                        double all = 0;
                        bool right = true;
                        for (int j = 0; j < s->classes; j++) {
                            double p = 1 / (1 + exp(-(double)x[j]));
                            all -= (double)y[j] * log(p) + (1 - (double)y[j]) * log(1 - p);
                            g[j] = (float)((p - (double)y[j]) / s->classes * 0.5);
                            right = right && (x[j] > 0) == (y[j] > 0);
                        }
                        want_loss[r] = (float)(all / s->classes);
                        correct += right;
                    } else if (kind == KIND_MSE) {
                        double error = (double)x[0] - (double)((const float *)case_initial(&c, "labels"))[r];
                        want_loss[r] = (float)(error * error);
                        g[0] = (float)(2 * error * 0.5);
                    } else {
                        const void *labels = case_initial(&c, "labels");
                        double all = 0, targets = 0, target[10];
                        int best = 0, likely = 0;
                        for (int j = 0; j < s->classes; j++) {
                            target[j] = kind == KIND_SOFT ? (double)((const float *)labels)[r * s->classes + j]
                                                          : j == ((const int32_t *)labels)[r];
                            all += exp((double)x[j]);
                            targets += target[j];
                            if (x[j] > x[best]) best = j;
                            if (target[j] > target[likely]) likely = j;
                        }
                        double wanted = 0;
                        for (int j = 0; j < s->classes; j++) {
                            wanted += target[j] * (log(all) - (double)x[j]);
                            g[j] = (float)((targets * (exp((double)x[j]) / all) - target[j]) * 0.5);
                        }
                        want_loss[r] = s->classes > 1 ? (float)wanted : 0; /* one class: certain */
                        correct += best == likely;
                    }
                    sum += (double)loss[r];
                }
                expect_close("loss", loss, want_loss, s->rows, 2e-6);
                expect_close("dlogits", gradient, want_gradient, s->rows * s->cols, 2e-6);
                case_expect_zero_rows(&c, "loss", s->real, s->rows);
                case_expect_zero_rows(&c, "dlogits", s->real, s->rows);
                const Stats *stats = case_bytes(&c, "stats");
                assert_true(fabs(stats->loss[1] - (1000 + sum)) <=
                            1e-12 * (1000 + sum)); /* the sum of the stored losses */
                assert_true(stats->loss[0] == 3 && stats->correct[0] == 5);
                assert_int_equal(stats->correct[1], 7 + correct);
                free(logits);
                free(loss);
                free(gradient);
                free(want_loss);
                free(want_gradient);
                case_free(&c);
            }
}

enum { GOLDEN_ROWS = 4, GOLDEN_MOST = 16 };

static void read_floats(FILE *f, float *v, int n) // (n)
{
    for (int i = 0; i < n; i++) assert_int_equal(fscanf(f, "%f", &v[i]), 1);
}

/* The targets of the rows' labels, as micro-batches have them; the gradient is that of the weighted mean. */
static void set_targets(OpCase *c, FILE *f, int classes, const int32_t *label, const float *loss) // (4), (4)
{
    float v[GOLDEN_MOST], mean;
    double weight = 0, sum = 0;
    read_floats(f, v, classes + 1);
    read_floats(f, &mean, 1);
    Examples e = {.label = (int32_t *)(uintptr_t)label, .weights = v + 1, .n_weights = classes};
    e.smoothing = (double)v[0];
    for (int64_t r = 0; r < GOLDEN_ROWS; r++) {
        for (int32_t j = 0; j < classes; j++)
            case_set(c, "labels", r * classes + j, 1, (float[]){example_target(&e, r, j)});
        weight += example_weight(&e, r);
        sum += (double)loss[r];
    }
    case_ctl(c)->scale_seqs = (float)(0.25 / weight); /* the loss scale is 4 */
    expect_close("mean", (float[]){(float)(sum / weight)}, &mean, 1, 2e-6);
}

/* PyTorch's losses: tests/golden/make_losses.py. */
static void test_golden(void **state)
{
    static const char *const names[N_KINDS] = {"xent", "mse", "bce", "soft"};
    FILE *f = fopen("tests/golden/losses.txt", "r");
    char name[16];
    int classes, cases = 0;
    (void)state;
    assert_non_null(f);
    while (fgetc(f) != '\n') assert_false(feof(f));
    for (; fscanf(f, "%15s %d", name, &classes) == 2; cases++) {
        Kind kind = 0;
        while (strcmp(names[kind], name) != 0) assert_true(++kind < N_KINDS);
        int labels = kind == KIND_BCE ? classes : 1, width = 2 * classes + labels + 1;
        float v[GOLDEN_ROWS * GOLDEN_MOST], loss[GOLDEN_ROWS], gradient[GOLDEN_ROWS * GOLDEN_MOST];
        int32_t label[GOLDEN_ROWS];
        assert_true(width <= GOLDEN_MOST);
        read_floats(f, v, GOLDEN_ROWS * width);
        OpCase c;
        init(&c, kind, (Shape){GOLDEN_ROWS, classes, classes, GOLDEN_ROWS}, F32, true);
        for (int r = 0; r < GOLDEN_ROWS; r++) {
            const float *row = v + r * width;
            case_set(&c, "logits", r * classes, classes, row);
            label[r] = (int32_t)row[classes];
            if (kind == KIND_XENT) case_set_ints(&c, "labels", r, 1, &label[r]);
            if (kind == KIND_BCE || kind == KIND_MSE) case_set(&c, "labels", r * labels, labels, row + classes);
            loss[r] = row[classes + labels];
            for (int j = 0; j < classes; j++)
                gradient[r * classes + j] = (kind == KIND_SOFT ? 1 : 0.5f) * row[classes + labels + 1 + j];
        }
        if (kind == KIND_SOFT) set_targets(&c, f, classes, label, loss);
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            case_run(&c, backend, (RunOptions){0});
            float *found_loss = case_values(&c, "loss"), *found = case_values(&c, "dlogits");
            expect_close(name, found_loss, loss, GOLDEN_ROWS, 2e-6);
            expect_close("gradient", found, gradient, (int64_t)GOLDEN_ROWS * classes, 2e-6);
            MEM_FREE(found_loss, found);
        }
        case_free(&c);
    }
    assert_true(feof(f) && cases == 8);
    fclose(f);
}

static void test_gradients(void **state)
{
    (void)state;
    const Shape s = {6, 5, 4, 5};
    for (Kind kind = 0; kind < N_KINDS; kind++) {
        OpCase forward, backward;
        init(&forward, kind, s, F32, false);
        init(&backward, kind, s, F32, true);
        case_run(&backward, ops_ref(), (RunOptions){0});
        float *found = case_values(&backward, "dlogits"), weight[6], expected[30];
        for (int r = 0; r < 6; r++) weight[r] = 0.5f; /* scale_seqs · the loss scale */
        case_differences(&forward, "logits", "loss", weight, 0x1p-6, expected);
        expect_close("gradient of the loss", found, expected, 30, 2e-4);
        free(found);
        case_free(&forward);
        case_free(&backward);
    }
}

/* Equal largest logits: the first counts. A row without a label (negative) counts for nothing. Far-apart logits:
 * finite. */
static void test_ties_and_missing_labels(void **state)
{
    (void)state;
    OpCase c;
    init(&c, KIND_XENT, (Shape){4, 3, 3, 4}, F32, true);
    case_set(&c, "logits", 0, 12, (float[]){1, 2, 2, 2, 1, 2, 5, 0, 0, -300, 300, 0});
    case_set_ints(&c, "labels", 0, 4, (int32_t[]){1, 0, -1, 0});
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        case_run(&c, backend, (RunOptions){0});
        float *loss = case_values(&c, "loss");
        const Stats *stats = case_bytes(&c, "stats");
        assert_int_equal(stats->correct[1], 7 + 2);
        assert_true(loss[2] == 0 && loss[3] == 600);
        case_expect_zero_rows(&c, "dlogits", 2, 3);
        free(loss);
    }
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_ties_and_missing_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
