/* GATHER and SCATTER: rows for sequences, masked positions and all that heads read. */
#include "ops/harness.h"

typedef struct {
    RowKind kind;
    int64_t tokens, rows; /* rows: of the gathered side's bucket */
    int32_t real;
    int64_t cols;
} Shape;

static const Shape shapes[] = {
    {ROWS_SEQS, 1, 1, 1, 36},      {ROWS_SEQS, 64, 4, 3, 36},       {ROWS_SEQS, 200, 64, 0, 20},
    {ROWS_MASKED, 65, 63, 50, 36}, {ROWS_MASKED, 200, 64, 64, 128}, {ROWS_READ, 130, 70, 33, 36},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* Distinct rows, the last and the first among them; beyond the real ones an index that must not be read. */
static void add_index(OpCase *c, const Shape *s)
{
    case_add(c, "index", I32, rows_kind(s->kind), 1);
    for (int64_t i = 0; i < s->rows; i++) {
        int32_t row = (int32_t)(s->tokens - 1 - i * (s->tokens - 1) / s->rows);
        if (i == s->real - 1 && i > 0) row = 0;
        case_set_ints(c, "index", i, 1, &(int32_t){i < s->real ? row : -1000});
    }
    case_ctl(c)->n_tokens = (int32_t)s->tokens;
    *(s->kind == ROWS_SEQS     ? &case_ctl(c)->n_seqs
      : s->kind == ROWS_MASKED ? &case_ctl(c)->n_masked
                               : &case_ctl(c)->n_read) = s->real;
}

static RowCounts rows_of_shape(const Shape *s)
{
    RowCounts rows = rows_tokens(s->tokens);
    rows.count[s->kind] = s->rows;
    return rows;
}

static void gather_init(OpCase *c, const Shape *s, Dtype dtype)
{
    case_init(c, OP_GATHER, (OpAttr){0}, rows_of_shape(s));
    case_add_random(c, "x", dtype, rows_kind(ROWS_TOKENS), s->cols, 1);
    add_index(c, s);
    case_add(c, "y", dtype, rows_kind(s->kind), s->cols);
}

static void scatter_init(OpCase *c, const Shape *s, Dtype dtype, bool add)
{
    case_init(c, OP_SCATTER, (OpAttr){0}, rows_of_shape(s));
    case_add_random(c, "dy", dtype, rows_kind(s->kind), s->cols, 1);
    add_index(c, s);
    if (add) case_add_random(c, "add", dtype, rows_kind(ROWS_TOKENS), s->cols, 1);
    case_add(c, "dx", dtype, rows_kind(ROWS_TOKENS), s->cols);
}

static void test_gather(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            OpCase c;
            gather_init(&c, &shapes[i], compute_types[t]);
            case_check(&c, (Tolerance){1e-30, 1e-30}); /* copies: nothing to round */
            const int32_t *index = case_initial(&c, "index");
            float *x = case_values(&c, "x"), *y = case_values(&c, "y");
            for (int64_t j = 0; j < shapes[i].rows * shapes[i].cols; j++) {
                int64_t r = j / shapes[i].cols, col = j % shapes[i].cols;
                assert_true(y[j] == (r < shapes[i].real ? x[index[r] * shapes[i].cols + col] : 0));
            }
            free(x);
            free(y);
            case_free(&c);
        }
}

static void test_scatter(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int add = 0; add < 2; add++) {
                OpCase c;
                const Shape *s = &shapes[i];
                scatter_init(&c, s, compute_types[t], add);
                int64_t n = s->tokens * s->cols;
                float *want = mem_array((size_t)n, sizeof *want);
                case_check(&c, (Tolerance){1e-30, 1e-30});
                for (int64_t j = 0; add && j < n; j++) {
                    const void *values = case_initial(&c, "add");
                    Dtype dtype = compute_types[t];
                    want[j] = dtype == F32    ? ((const float *)values)[j]
                              : dtype == BF16 ? bf16_to_f32(((const uint16_t *)values)[j])
                                              : f16_to_f32(((const uint16_t *)values)[j]);
                }
                const int32_t *index = case_initial(&c, "index");
                float *dy = case_values(&c, "dy"), *dx = case_values(&c, "dx");
                for (int64_t r = 0; r < s->real; r++)
                    for (int64_t j = 0; j < s->cols; j++) {
                        float *w = &want[index[r] * s->cols + j];
                        *w = type_rounded(compute_types[t], *w + dy[r * s->cols + j]);
                    }
                for (int64_t j = 0; j < n; j++) assert_true(dx[j] == want[j]);
                free(want);
                free(dy);
                free(dx);
                case_free(&c);
            }
}

/* Several rows may go to one place. */
static void test_rows_that_meet(void **state)
{
    (void)state;
    const Shape s = {ROWS_MASKED, 5, 3, 3, 4};
    OpCase c;
    scatter_init(&c, &s, F32, false);
    case_set_ints(&c, "index", 0, 3, (int32_t[]){2, 4, 2});
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        case_run(&c, backend, (RunOptions){0});
        float *dy = case_values(&c, "dy"), *dx = case_values(&c, "dx");
        for (int j = 0; j < 4; j++) {
            assert_true(dx[2 * 4 + j] == dy[j] + dy[2 * 4 + j]);
            assert_true(dx[4 * 4 + j] == dy[4 + j]);
        }
        case_expect_zero_rows(&c, "dx", 0, 2);
        case_expect_zero_rows(&c, "dx", 3, 4);
        free(dy);
        free(dx);
    }
    case_free(&c);
}

static void test_gradient(void **state)
{
    (void)state;
    const Shape s = {ROWS_SEQS, 9, 4, 3, 5};
    OpCase forward, backward;
    gather_init(&forward, &s, F32);
    scatter_init(&backward, &s, F32, false);
    case_run(&backward, ops_ref(), (RunOptions){0});
    expect_gradient(&forward, "x", "y", &backward, "dy", &backward, "dx", 0.25, 1e-6);
    case_free(&forward);
    case_free(&backward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_rows_that_meet),
        cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
