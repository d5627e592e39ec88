/* SPAN_XENT: two cross-entropies per sequence, over its rows. */
#include <math.h>

#include "ops/harness.h"

enum { MOST_SEQS = 6, BUCKET_SEQS = 8, BUCKET_ROWS = 128 };

typedef struct {
    int n, lengths[MOST_SEQS];
} Shape;
static const Shape shapes[] = {{1, {1}}, {3, {5, 40, 2}}, {2, {33, 64}}, {6, {7, 1, 31, 32, 3, 9}}, {0, {0}}};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* Labels are anywhere in the sequence; those of pad sequences must not be read. Rows of no sequence lie behind. */
static void init(OpCase *c, const Shape *s, Dtype dtype, bool training)
{
    RowCounts rows = {.count = {[ROWS_TOKENS] = BUCKET_ROWS, [ROWS_SEQS] = BUCKET_SEQS}};
    uint64_t random = 11;
    case_init(c, OP_SPAN_XENT, (OpAttr){.loss = {.slot = 0, .classes = 2}}, rows);
    case_add(c, "spans", I32, rows_kind(ROWS_SEQS), 2);
    case_add(c, "labels", I32, rows_kind(ROWS_SEQS), 2);
    case_add_random(c, "logits", F32, rows_kind(ROWS_TOKENS), 2, 4);
    for (int i = 0; i < BUCKET_SEQS; i++) {
        uint64_t n = i < s->n ? (uint64_t)s->lengths[i] : 1;
        int32_t start = (int32_t)(testing_random(&random) % n), end = (int32_t)(testing_random(&random) % n);
        case_set_ints(c, "labels", 2 * i, 2, i < s->n ? (int32_t[]){start, end} : (int32_t[]){1 << 30, 1 << 30});
    }
    if (training) case_add(c, "dlogits", dtype, rows_kind(ROWS_TOKENS), 2);
    case_add(c, "loss", F32, rows_kind(ROWS_SEQS), 1);
    *(Stats *)case_initial(c, "stats") = (Stats){.loss = {1000, 3}, .correct = {7, 5}};
    case_sequences(c, s->lengths, NULL, s->n);
    case_ctl(c)->scale_seqs = 0.125f;
    case_ctl(c)->scale_masked = 77;
    case_scaling(c, 4);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int training = 0; training < 2; training++) {
                OpCase c;
                init(&c, &shapes[i], compute_types[t], training);
                case_check(&c, (Tolerance){0});
                case_free(&c);
            }
}

/* −log of the softmax of x at `label`, in double; g += half of 0.5·(softmax − onehot). */
static double column(const float *x, int n, int32_t label, float *g, bool *right)
{
    double all = 0;
    int best = 0;
    for (int i = 0; i < n; i++) all += exp((double)x[2 * i]);
    for (int i = 0; i < n; i++) {
        g[2 * i] = (float)((exp((double)x[2 * i]) / all - (i == label)) * 0.25);
        if (x[2 * i] > x[2 * best]) best = i;
    }
    *right = *right && best == label;
    return log(all) - (double)x[2 * label];
}

/* Every backend against the definition in double. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            const Shape *s = &shapes[i];
            OpCase c;
            init(&c, s, F32, true);
            case_run(&c, backend, (RunOptions){0});
            const int32_t *labels = case_initial(&c, "labels");
            float *logits = case_values(&c, "logits"), *loss = case_values(&c, "loss");
            float *gradient = case_values(&c, "dlogits"), want[BUCKET_SEQS] = {0}, want_gradient[2 * BUCKET_ROWS] = {0};
            double sum = 0;
            int64_t row = 0, correct = 0;
            for (int k = 0; k < s->n; k++) {
                bool right = true;
                double start = column(logits + 2 * row, s->lengths[k], labels[2 * k], want_gradient + 2 * row, &right);
                double end =
                    column(logits + 2 * row + 1, s->lengths[k], labels[2 * k + 1], want_gradient + 2 * row + 1, &right);
                want[k] = (float)(0.5 * (start + end));
                sum += (double)loss[k];
                correct += right;
                row += s->lengths[k];
            }
            expect_close("loss", loss, want, BUCKET_SEQS, 2e-6);
            expect_close("dlogits", gradient, want_gradient, 2 * BUCKET_ROWS, 2e-6);
            case_expect_zero_rows(&c, "loss", s->n, BUCKET_SEQS);
            case_expect_zero_rows(&c, "dlogits", row, BUCKET_ROWS);
            const Stats *stats = case_bytes(&c, "stats");
            assert_true(fabs(stats->loss[0] - (1000 + sum)) <= 1e-12 * (1000 + sum));
            assert_true(stats->loss[1] == 3 && stats->correct[1] == 5);
            assert_int_equal(stats->correct[0], 7 + correct);
            free(logits);
            free(loss);
            free(gradient);
            case_free(&c);
        }
}

static void test_gradients(void **state)
{
    (void)state;
    const Shape s = {3, {4, 9, 2}};
    OpCase forward, backward;
    float weight[BUCKET_SEQS], expected[2 * BUCKET_ROWS];
    init(&forward, &s, F32, false);
    init(&backward, &s, F32, true);
    case_run(&backward, ops_ref(), (RunOptions){0});
    float *found = case_values(&backward, "dlogits");
    for (int i = 0; i < BUCKET_SEQS; i++) weight[i] = 0.5f; /* scale_seqs · the loss scale */
    case_differences(&forward, "logits", "loss", weight, 0x1p-6, expected);
    expect_close("gradient of the loss", found, expected, 2 * BUCKET_ROWS, 2e-4);
    free(found);
    case_free(&forward);
    case_free(&backward);
}

/* Equal largest logits: the first counts. A sequence without an answer counts for nothing. Rows between sequences, as
   in a padded rectangle, have no gradient. */
static void test_ties_gaps_and_missing_labels(void **state)
{
    (void)state;
    OpCase c;
    init(&c, &(Shape){3, {3, 3, 3}}, F32, true);
    case_set(&c, "logits", 0, 24, (float[]){1, 0, 2, 5, 2, 5, 9, 9, 3, 0, 1, 0, 1, 0, 9, 9, 0, 0, 300, 0, 0, 0, 9, 9});
    case_set_ints(&c, "spans", 0, 6, (int32_t[]){0, 3, 4, 7, 8, 11});
    case_set_ints(&c, "labels", 0, 6, (int32_t[]){1, 1, -1, 2, 0, 1});
    case_ctl(&c)->n_tokens = 12;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        case_run(&c, backend, (RunOptions){0});
        float *loss = case_values(&c, "loss"), third = (float)(0.5 * (300 + log(3)));
        assert_int_equal(((const Stats *)case_bytes(&c, "stats"))->correct[0], 7 + 1);
        assert_true(loss[1] == 0);
        expect_close("loss", &loss[2], &third, 1, 1e-6);
        case_expect_zero_rows(&c, "dlogits", 3, 8);
        case_expect_zero_rows(&c, "dlogits", 11, BUCKET_ROWS);
        free(loss);
    }
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_ties_gaps_and_missing_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
