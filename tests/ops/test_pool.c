/* POOL and POOL_BWD: a vector for each sequence, the mean of its rows or its first row. */
#include <math.h>

#include "ops/harness.h"

enum { MOST_SEQS = 6, BUCKET_SEQS = 8, BUCKET_ROWS = 192 };

typedef struct {
    int n, lengths[MOST_SEQS];
    int gap; /* rows before each sequence that are of none */
    int64_t cols;
} Shape;
static const Shape shapes[] = {{1, {1}, 0, 36},          {3, {5, 40, 2}, 0, 36},           {2, {33, 64}, 7, 20},
                               {3, {64, 64, 64}, 0, 36}, {6, {7, 1, 31, 32, 3, 9}, 5, 48}, {2, {3, 150}, 0, 520},
                               {0, {0}, 0, 36}};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

typedef struct {
    bool first, normalize;
} Kind;
static const Kind kinds[] = {{false, false}, {false, true}, {true, false}, {true, true}};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static int first_of(const Shape *s, int sequence)
{
    int row = s->gap;
    for (int i = 0; i < sequence; i++) row += s->lengths[i] + s->gap;
    return row;
}

/* Spans and indices of sequences that are not there must not be read. */
static void place(OpCase *c, const Shape *s, Kind kind)
{
    case_add(c, kind.first ? "first" : "spans", I32, rows_kind(ROWS_SEQS), kind.first ? 1 : 2);
    for (int i = 0; i < BUCKET_SEQS; i++) {
        int32_t from = i < s->n ? first_of(s, i) : -1000, end = i < s->n ? from + s->lengths[i] : 1 << 30;
        if (kind.first)
            case_set_ints(c, "first", i, 1, &from);
        else
            case_set_ints(c, "spans", 2 * i, 2, (int32_t[]){from, end});
    }
    case_ctl(c)->n_seqs = s->n;
    case_ctl(c)->n_tokens = s->n ? first_of(s, s->n) - s->gap : 0;
}

static void init(OpCase *c, Op op, Kind kind)
{
    RowCounts rows = {.count = {[ROWS_TOKENS] = BUCKET_ROWS, [ROWS_SEQS] = BUCKET_SEQS}};
    case_init(c, op, (OpAttr){.pool = {kind.normalize}}, rows);
}

static void forward_init(OpCase *c, const Shape *s, Kind kind, Dtype dtype)
{
    init(c, OP_POOL, kind);
    case_add_random(c, "x", dtype, rows_kind(ROWS_TOKENS), s->cols, 1);
    place(c, s, kind);
    case_add(c, "y", F32, rows_kind(ROWS_SEQS), s->cols);
    case_add(c, "inverse", F32, rows_kind(ROWS_SEQS), 1);
}

/* Runs the forward case on ref, whose outputs it takes. */
static void backward_init(OpCase *c, OpCase *forward, const Shape *s, Kind kind, Dtype dtype)
{
    case_run(forward, ops_ref(), (RunOptions){0});
    init(c, OP_POOL_BWD, kind);
    case_add_random(c, "dy", F32, rows_kind(ROWS_SEQS), s->cols, 1);
    case_take(c, "y", forward, "y");
    case_take(c, "inverse", forward, "inverse");
    place(c, s, kind);
    case_add(c, "dx", dtype, rows_kind(ROWS_TOKENS), s->cols);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_KINDS; k++)
            for (int t = 0; t < N_COMPUTE; t++) {
                OpCase c, d;
                forward_init(&c, &shapes[i], kinds[k], compute_types[t]);
                case_check(&c, (Tolerance){.f32 = 1e-6});
                backward_init(&d, &c, &shapes[i], kinds[k], compute_types[t]);
                case_check(&d, (Tolerance){.f32 = 1e-6});
                case_free(&c);
                case_free(&d);
            }
}

/* Every backend against the definition in double. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_KINDS; k++)
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                const Shape *s = &shapes[i];
                OpCase c;
                forward_init(&c, s, kinds[k], F32);
                case_run(&c, backend, (RunOptions){0});
                float *x = case_values(&c, "x"), *y = case_values(&c, "y"), *inverse = case_values(&c, "inverse");
                for (int q = 0; q < s->n; q++) {
                    const float *rows = x + first_of(s, q) * s->cols;
                    int n = kinds[k].first ? 1 : s->lengths[q];
                    double squares = 0, mean[520];
                    for (int64_t j = 0; j < s->cols; j++) {
                        mean[j] = 0;
                        for (int r = 0; r < n; r++) mean[j] += (double)rows[r * s->cols + j] / n;
                        squares += mean[j] * mean[j];
                    }
                    double length = kinds[k].normalize ? sqrt(squares) : 1;
                    assert_true(fabs((double)inverse[q] * length - 1) < 1e-6);
                    for (int64_t j = 0; j < s->cols; j++)
                        assert_true(fabs((double)y[q * s->cols + j] * length - mean[j]) < 1e-6);
                }
                case_expect_zero_rows(&c, "y", s->n, BUCKET_SEQS);
                case_expect_zero_rows(&c, "inverse", s->n, BUCKET_SEQS);
                free(x);
                free(y);
                free(inverse);
                case_free(&c);
            }
}

static void test_gradients(void **state)
{
    (void)state;
    const Shape s = {3, {4, 1, 9}, 2, 12};
    for (size_t k = 0; k < N_KINDS; k++) {
        OpCase forward, backward;
        forward_init(&forward, &s, kinds[k], F32);
        backward_init(&backward, &forward, &s, kinds[k], F32);
        case_run(&backward, ops_ref(), (RunOptions){0});
        expect_gradient(&forward, "x", "y", &backward, "dy", &backward, "dx", 0x1p-8, 1e-4);
        case_free(&forward);
        case_free(&backward);
    }
}

/* Rows of no sequence have no gradient, before, between and behind the sequences; by the first row the others of a
   sequence have none either. */
static void test_rows_without_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_KINDS; k++)
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                const Shape *s = &shapes[i];
                OpCase forward, c;
                int end = 0;
                forward_init(&forward, s, kinds[k], F32);
                backward_init(&c, &forward, s, kinds[k], F32);
                case_run(&c, backend, (RunOptions){0});
                for (int q = 0; q < s->n; q++) {
                    int first = first_of(s, q), n = kinds[k].first ? 1 : s->lengths[q];
                    case_expect_zero_rows(&c, "dx", end, first);
                    for (int r = 1; r < n; r++) case_expect_rows_equal(&c, first, &c, first + r, 1, "dx");
                    end = first + n;
                }
                case_expect_zero_rows(&c, "dx", end, BUCKET_ROWS);
                case_free(&forward);
                case_free(&c);
            }
}

/* A sequence's vector and gradient have the same bits at any place and in any company. */
static void test_sequences_are_independent(void **state)
{
    (void)state;
    const Shape many = {4, {11, 37, 2, 60}, 3, 40}, one = {1, {37}, 0, 40};
    int from = first_of(&many, 1);
    for (int t = 0; t < N_COMPUTE; t++)
        for (size_t k = 0; k < N_KINDS; k++) {
            OpCase a, b, da, db;
            forward_init(&a, &many, kinds[k], compute_types[t]);
            forward_init(&b, &one, kinds[k], compute_types[t]);
            case_copy_rows(&b, 0, &a, from, 37, "x");
            case_expect_independent(&a, 1, &b, 1, "y", "inverse");
            backward_init(&da, &a, &many, kinds[k], compute_types[t]);
            backward_init(&db, &b, &one, kinds[k], compute_types[t]);
            case_copy_rows(&db, 0, &da, 1, 1, "dy");
            case_expect_independent(&da, from, &db, 37, "dx", NULL);
            case_free(&a);
            case_free(&b);
            case_free(&da);
            case_free(&db);
        }
}

/* A vector of zeros stays one: its length counts as 1e-12. */
static void test_length_zero(void **state)
{
    (void)state;
    const Shape s = {2, {3, 4}, 0, 24};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        OpCase c, d;
        forward_init(&c, &s, (Kind){.normalize = true}, F32);
        case_clear_rows(&c, "x", 3);
        case_run(&c, backend, (RunOptions){0});
        case_expect_zero_rows(&c, "y", 1, 2);
        assert_true(((const float *)case_bytes(&c, "inverse"))[1] == 1e12f);
        backward_init(&d, &c, &s, (Kind){.normalize = true}, F32);
        case_run(&d, backend, (RunOptions){0});
        float *dy = case_values(&d, "dy"), *dx = case_values(&d, "dx");
        for (int64_t j = 0; j < s.cols; j++)
            assert_true(fabs((double)dx[3 * s.cols + j] / (double)dy[s.cols + j] / 0.25e12 - 1) < 1e-6);
        free(dy);
        free(dx);
        case_free(&c);
        case_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_rows_without_gradient),
        cmocka_unit_test(test_sequences_are_independent),
        cmocka_unit_test(test_length_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
