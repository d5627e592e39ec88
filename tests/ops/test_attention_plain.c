/* ATTENTION and its backward without dropout, in shapes that cuDNN takes (CAIRN_TEST_ATTENTION=cudnn): heads of 8
   columns and more, sequences far shorter than the longest that there may be, gaps, slots of no sequence. */
#include <math.h>

#include "ops/harness.h"

typedef struct {
    int lengths[6], n;  /* sequences */
    int64_t rows, seqs; /* of the bucket */
    int32_t heads, head_dim, longest;
} Shape;

static const Shape shapes[] = {
    {{1}, 1, 1, 1, 1, 8, 0},         {{2, 1}, 2, 64, 4, 3, 16, 2},      {{1, 2, 16, 17, 27}, 5, 63, 5, 3, 32, 30},
    {{64}, 1, 64, 1, 2, 64, 64},     {{65, 30}, 2, 100, 3, 2, 64, 128}, {{128, 33, 31}, 3, 200, 6, 2, 64, 0},
    {{48, 15}, 2, 64, 2, 2, 80, 48}, {{33, 31}, 2, 64, 2, 1, 128, 33},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* P and dS may be rounded to bf16 before their products. */
static const Tolerance tolerance = {.f32 = 2e-5, .bf16 = 8e-3};

static void init(OpCase *c, Op op, const Shape *s)
{
    RowCounts rows = rows_tokens(s->rows);
    rows.count[ROWS_SEQS] = s->seqs;
    OpAttr attr = {.attention = {.heads = s->heads,
                                 .head_dim = s->head_dim,
                                 .scale = (float)(1 / sqrt((double)s->head_dim)),
                                 .longest = s->longest}};
    case_init(c, op, attr, rows);
    case_add(c, "spans", I32, rows_kind(ROWS_SEQS), 2);
    case_add(c, "seq_index", I32, rows_kind(ROWS_SEQS), 1);
    case_sequences(c, s->lengths, NULL, s->n);
    for (int64_t i = s->n; i < s->seqs; i++)
        case_set_ints(c, "spans", 2 * i, 2, (int32_t[]){-7, 1 << 30}); /* not read */
}

static void forward_init(OpCase *c, const Shape *s, Dtype dtype)
{
    int64_t hidden = s->heads * s->head_dim;
    init(c, OP_ATTENTION, s);
    case_add_random(c, "qkv", dtype, rows_kind(ROWS_TOKENS), 3 * hidden, 2);
    case_add(c, "o", dtype, rows_kind(ROWS_TOKENS), hidden);
    case_add(c, "lse", F32, rows_kind(ROWS_TOKENS), s->heads);
}

/* The backward of a forward case that has run. */
static void backward_init(OpCase *c, const Shape *s, const OpCase *forward, Dtype dtype)
{
    int64_t hidden = s->heads * s->head_dim;
    init(c, OP_ATTENTION_BWD, s);
    case_take(c, "qkv", forward, "qkv");
    case_take(c, "o", forward, "o");
    case_take(c, "lse", forward, "lse");
    case_take(c, "spans", forward, "spans");
    case_add_random(c, "do", dtype, rows_kind(ROWS_TOKENS), hidden, 1);
    case_add(c, "dqkv", dtype, rows_kind(ROWS_TOKENS), 3 * hidden);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int t = 0; t < N_COMPUTE; t++) {
            OpCase forward, backward;
            forward_init(&forward, &shapes[i], compute_types[t]);
            case_check(&forward, tolerance);
            int64_t tokens = case_ctl(&forward)->n_tokens;
            case_expect_zero_rows(&forward, "o", tokens, shapes[i].rows);
            case_expect_zero_rows(&forward, "lse", tokens, shapes[i].rows);
            backward_init(&backward, &shapes[i], &forward, compute_types[t]);
            case_check(&backward, tolerance);
            case_expect_zero_rows(&backward, "dqkv", tokens, shapes[i].rows);
            case_free(&forward);
            case_free(&backward);
        }
}

/* Gaps before the first sequence, between sequences and after the last, one of them empty; and no sequence at all. */
static void test_gaps(void **state)
{
    (void)state;
    static const int32_t spans[][2] = {{3, 20}, {20, 41}, {50, 50}, {50, 51}, {80, 96}};
    enum { N = sizeof spans / sizeof *spans };
    const Shape s = {{0}, 0, 128, N + 2, 2, 32, 32};
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
    return cmocka_run_group_tests(tests, NULL, NULL);
}
