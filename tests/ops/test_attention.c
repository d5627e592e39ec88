/* ATTENTION and its backward. */
#include "ops/attention_cases.h"

static const Shape shapes[] = {
    {{1}, 1, 1, 1, 3, 12, 0.1f, 0},
    {{2}, 1, 64, 4, 3, 12, 0.5f, 0},
    {{1, 2, 16, 17, 27}, 5, 63, 5, 3, 12, 0.1f, 0},
    {{1, 2, 16, 17, 27}, 5, 64, 8, 2, 20, 0, 0},
    {{64}, 1, 64, 1, 2, 32, 0.1f, 0},
    {{65}, 1, 65, 2, 1, 64, 0.1f, 0},
    {{128, 33, 31}, 3, 200, 3, 2, 64, 0.1f, 0},
    {{48, 15}, 2, 64, 2, 2, 80, 0.5f, 0},
    {{33, 31}, 2, 64, 2, 1, 128, 0.1f, 0},
    {{200}, 1, 200, 1, 1, 32, 0, 0},
    {{300, 129, 5}, 3, 512, 4, 1, 64, 0.1f, 0},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void test_shapes(void **state)
{
    (void)state;
    check_shapes(shapes, N_SHAPES);
}

/* On every backend db holds the sums of dqkv as it is stored, and dqkv the bits that it has without db. */
static void test_db(void **state)
{
    (void)state;
    static const Shape some[] = {
        {{33, 1, 64}, 3, 130, 6, 3, 32, 0.1f, 0},
        {{100, 17}, 2, 128, 3, 2, 64, 0, 0},
        {{16, 80, 7}, 3, 103, 3, 2, 40, 0.1f, 0},
        {{300, 200}, 2, 512, 2, 1, 64, 0.1f, 512},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int t = 0; t < n_long_types(); t++) {
            OpCase forward, with, without;
            forward_init(&forward, &some[i], compute_types[t]);
            case_run(&forward, ops_ref(), (RunOptions){0});
            summed_init(&with, &some[i], &forward, compute_types[t]);
            backward_init(&without, &some[i], &forward, compute_types[t]);
            case_copy_rows(&without, 0, &with, 0, some[i].rows, "do");
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&with, backend)) continue;
                case_run(&with, backend, (RunOptions){0});
                case_run(&without, backend, (RunOptions){0});
                case_expect_rows_equal(&with, 0, &without, 0, some[i].rows, "dqkv");
                case_expect_column_sums(&with, "db", "dqkv");
            }
            case_free(&forward);
            case_free(&with);
            case_free(&without);
        }
}

/* A plan for a GPU that is not here asks for scratch without knowing which kernels that GPU takes. */
static void test_scratch(void **state)
{
    (void)state;
    enum { HEADS = 2, D = 64 };
    static const RowCounts counts[] = {{.count = {[ROWS_TOKENS] = 4096, [ROWS_SEQS] = 8}},
                                       {.count = {[ROWS_TOKENS] = 4096, [ROWS_SEQS] = 200}}};
    OpCall call = {.op = OP_ATTENTION_BWD};
    call.attr.attention.heads = HEADS;
    call.attr.attention.head_dim = D;
    *IN(&call, ATTENTION_BWD, qkv) = (Operand){.dtype = BF16, .rows = rows_kind(ROWS_TOKENS), .cols = 3 * HEADS * D};
    *IN(&call, ATTENTION_BWD, spans) = (Operand){.dtype = I32, .rows = rows_kind(ROWS_SEQS), .cols = 2};
    *OUT(&call, ATTENTION_BWD, dqkv) = *IN(&call, ATTENTION_BWD, qkv);
    *OUT(&call, ATTENTION_BWD, db) = (Operand){.dtype = F32, .rows = fixed(1), .cols = 3 * HEADS * D};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (int i = 0; i < 2; i++) {
            OpCall one = call, two = call;
            one.attr.attention.longest = 512;
            size_t bytes = backend->op[OP_ATTENTION_BWD].scratch(&one, &counts[i]);
            assert_int_equal(backend->op[OP_ATTENTION_BWD].scratch(&two, &counts[i]), bytes);
        }
}

/* Sequences of every length up to 128, then of some up to 512, where a plan says that they are the longest. */
static void test_lengths(void **state)
{
    (void)state;
    static const int longer[] = {129, 144, 191, 192, 193, 256, 257, 449, 512};
    enum { MOST = 128, LONGER = sizeof longer / sizeof *longer };
    int lengths[MOST], n = longest_said == 128 ? MOST : longest_said ? LONGER : 0;
    Shape s = {{0}, 0, 3, n, 1, 16, 0.1f, longest_said};
    for (int i = 0; i < n; i++) s.rows += lengths[i] = n == MOST ? i + 1 : longer[i];
    for (int t = 0; t < n_long_types() && n; t++) {
        OpCase forward, backward;
        forward_init(&forward, &s, compute_types[t]);
        case_sequences(&forward, lengths, NULL, n);
        case_check(&forward, tolerance);
        backward_init(&backward, &s, &forward, compute_types[t]);
        *case_ctl(&backward) = *case_ctl(&forward);
        case_check(&backward, tolerance);
        case_free(&forward);
        case_free(&backward);
    }
}

/* The definition: one draw by its counter, the four keys of a call written out. */
static bool dropped(uint32_t head, uint32_t sequence, int query, int key, float p)
{
    static const int keys[4][4] = {{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}};
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 4; i++) {
            if (keys[c][i] != key % 16) continue;
            Philox4 draws = philox4(KEY, (uint32_t)(key / 16 * 4 + c),
                                    (uint32_t)(query / 16 * 8 + query % 8) | head << 16, sequence, SITE | BATCH << 10);
            return philox_draw16(&draws, i + (query % 16 >= 8 ? 4 : 0)) < (uint32_t)lrint(65536.0 * (double)p);
        }
    return false;
}

/* Softmax attention with dropout, in double, straight from the formula; and the log-sum-exp. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        const Shape *s = &shapes[i];
        int64_t d = s->head_dim, hidden = s->heads * d, width = 3 * hidden;
        OpCase c;
        forward_init(&c, s, F32);
        case_run(&c, ops_ref(), (RunOptions){0});
        float *qkv = case_values(&c, "qkv"), *o = case_values(&c, "o"), *lse = case_values(&c, "lse");
        float *want_o = mem_array((size_t)(s->rows * hidden), sizeof *want_o);
        float *want_lse = mem_array((size_t)(s->rows * s->heads), sizeof *want_lse);
        double *p = mem_array((size_t)s->rows, sizeof *p),
               keep = 65536 / (65536 - (double)lrint(65536.0 * (double)s->p));
        int64_t first = 0;
        for (int n = 0; n < s->n; first += s->lengths[n++])
            for (int h = 0; h < s->heads; h++)
                for (int a = 0; a < s->lengths[n]; a++) {
                    double sum = 0;
                    for (int b = 0; b < s->lengths[n]; b++) {
                        double dot = 0;
                        for (int64_t j = 0; j < d; j++)
                            dot += (double)qkv[(first + a) * width + h * d + j] *
                                   (double)qkv[(first + b) * width + hidden + h * d + j];
                        sum += p[b] = exp(dot / sqrt((double)d));
                    }
                    want_lse[(first + a) * s->heads + h] = (float)log(sum);
                    for (int64_t j = 0; j < d; j++) {
                        double out = 0;
                        for (int b = 0; b < s->lengths[n]; b++)
                            if (!dropped((uint32_t)h, (uint32_t)n, a, b, s->p))
                                out += p[b] / sum * keep * (double)qkv[(first + b) * width + 2 * hidden + h * d + j];
                        want_o[(first + a) * hidden + h * d + j] = (float)out;
                    }
                }
        expect_close("o", o, want_o, s->rows * hidden, 2e-6);
        expect_close("lse", lse, want_lse, s->rows * s->heads, 2e-6);
        free(qkv);
        free(o);
        free(lse);
        free(want_o);
        free(want_lse);
        free(p);
        case_free(&c);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    static const Shape small[] = {
        {{1, 2, 5}, 3, 9, 4, 2, 5, 0.5f, 0},
        {{18}, 1, 18, 1, 1, 12, 0.1f, 0},
        {{9, 3}, 2, 12, 2, 3, 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        OpCase forward, backward;
        forward_init(&forward, &small[i], F32);
        case_random(&forward, "qkv", 0, 1);
        case_run(&forward, ops_ref(), (RunOptions){0});
        backward_init(&backward, &small[i], &forward, F32);
        case_run(&backward, ops_ref(), (RunOptions){0});
        expect_gradient(&forward, "qkv", "o", &backward, "do", &backward, "dqkv", 0x1p-6, 5e-4);
        case_free(&forward);
        case_free(&backward);
    }
}

/* Masks, exactly, on every backend: all probabilities alike (q = 0) and v a window of the identity, so that
   o[query][j] is the factor of key window + j over the length. Backward likewise: do = 1 in one column shows dv. */
static void test_masks(void **state)
{
    (void)state;
    enum { LENGTH = 77, D = 32, HEADS = 2 };
    const Shape s = {{3, LENGTH}, 2, 80, 2, HEADS, D, 0.3f, 0};
    for (int t = 0; t < n_types(); t++)
        for (int window = 0; window < LENGTH; window += D) {
            OpCase forward, backward;
            forward_init(&forward, &s, compute_types[t]);
            case_clear_rows(&forward, "qkv", 0);
            for (int j = 0; j < D && window + j < LENGTH; j++)
                for (int h = 0; h < HEADS; h++)
                    case_set(&forward, "qkv", (3 + window + j) * 3 * HEADS * D + 2 * HEADS * D + h * D + j, 1,
                             (float[]){1});
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                if (!case_runs_on(&forward, backend)) continue;
                case_run(&forward, backend, (RunOptions){0});
                float *o = case_values(&forward, "o");
                /* do: query window + j has 1 in column j, so dv[key][j] is the factor of (window + j, key) */
                backward_init(&backward, &s, &forward, compute_types[t]);
                case_clear_rows(&backward, "do", 0);
                for (int j = 0; j < D && window + j < LENGTH; j++)
                    for (int h = 0; h < HEADS; h++)
                        case_set(&backward, "do", (3 + window + j) * HEADS * D + h * D + j, 1, (float[]){1});
                case_run(&backward, backend, (RunOptions){0});
                float *dqkv = case_values(&backward, "dqkv");
                for (int h = 0; h < HEADS; h++)
                    for (int a = 0; a < LENGTH; a++)
                        for (int j = 0; j < D && window + j < LENGTH; j++) {
                            bool there = dropped((uint32_t)h, 1, a, window + j, s.p);
                            bool back = dropped((uint32_t)h, 1, window + j, a, s.p);
                            if ((o[(3 + a) * HEADS * D + h * D + j] == 0) != there)
                                fail_msg("%s: head %d, query %d, key %d is %s", backend->name, h, a, window + j,
                                         there ? "dropped, but o is not 0" : "kept, but o is 0");
                            if ((dqkv[(3 + a) * 3 * HEADS * D + 2 * HEADS * D + h * D + j] == 0) != back)
                                fail_msg("%s: head %d, query %d, key %d is %s", backend->name, h, window + j, a,
                                         back ? "dropped, but dv is not 0" : "kept, but dv is 0");
                        }
                free(o);
                free(dqkv);
                case_free(&backward);
            }
            case_free(&forward);
        }
}

/* A sequence has the same bits alone, among others and at another place. */
static void test_sequences_are_independent(void **state)
{
    (void)state;
    const int32_t columns = getenv("CAIRN_CUDA_NATIVE_ATTENTION") ? 24 : 12; /* which is for multiples of 8 */
    const Shape many = {{5, 70, 33, 1, 16}, 5, 128, 8, 3, columns, 0.1f, 0};
    for (int t = 0; t < n_types(); t++) {
        OpCase a, da;
        forward_init(&a, &many, compute_types[t]);
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&a, backend)) continue;
            case_run(&a, backend, (RunOptions){0});
            backward_init(&da, &many, &a, compute_types[t]);
            case_run(&da, backend, (RunOptions){0});
            for (int64_t s = 0, first = 0; s < many.n; first += many.lengths[s++]) {
                int length = many.lengths[s];
                const int lengths[] = {7, length}, index[] = {50, (int)s};
                const Shape one = {{7, length}, 2, 7 + length, 2, 3, columns, 0.1f, 0};
                OpCase b, db;
                forward_init(&b, &one, compute_types[t]);
                case_sequences(&b, lengths, index, 2);
                case_copy_rows(&b, 7, &a, first, length, "qkv");
                case_run(&b, backend, (RunOptions){0});
                case_expect_rows_equal(&a, first, &b, 7, length, "o");
                case_expect_rows_equal(&a, first, &b, 7, length, "lse");
                backward_init(&db, &one, &b, compute_types[t]);
                case_copy_rows(&db, 7, &da, first, length, "do");
                case_run(&db, backend, (RunOptions){0});
                case_expect_rows_equal(&da, first, &db, 7, length, "dqkv");
                case_free(&b);
                case_free(&db);
            }
            case_free(&da);
        }
        case_free(&a);
    }
}

/* A padded rectangle: gaps between sequences are 0 in o, lse and dqkv, and the sequences have the packed rows' bits. */
static void test_rectangle(void **state)
{
    (void)state;
    static const int lengths[] = {5, 16, 1};
    const Shape rectangle = {{0}, 0, 64, 4, 3, 12, 0.1f, 0}, packed = {{5, 16, 1}, 3, 22, 3, 3, 12, 0.1f, 0};
    for (int t = 0; t < n_types(); t++) {
        OpCase a, b, da, db;
        forward_init(&a, &rectangle, compute_types[t]);
        forward_init(&b, &packed, compute_types[t]);
        for (int32_t s = 0, first = 0; s < 3; first += lengths[s++]) {
            case_set_ints(&a, "spans", 2 * s, 2, (int32_t[]){20 * s, 20 * s + lengths[s]});
            case_set_ints(&a, "seq_index", s, 1, &s);
            case_copy_rows(&b, first, &a, 20 * s, lengths[s], "qkv");
        }
        case_ctl(&a)->n_seqs = 3;
        case_ctl(&a)->n_tokens = 60;
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&a, backend)) continue;
            case_run(&a, backend, (RunOptions){0});
            case_run(&b, backend, (RunOptions){0});
            backward_init(&da, &rectangle, &a, compute_types[t]);
            backward_init(&db, &packed, &b, compute_types[t]);
            *case_ctl(&da) = *case_ctl(&a);
            for (int s = 0, first = 0; s < 3; first += lengths[s++])
                case_copy_rows(&db, first, &da, 20 * s, lengths[s], "do");
            case_run(&da, backend, (RunOptions){0});
            case_run(&db, backend, (RunOptions){0});
            for (int s = 0, first = 0; s < 3; first += lengths[s++]) {
                int64_t gap = 20 * s + lengths[s], end = s == 2 ? 64 : 20 * (s + 1);
                case_expect_rows_equal(&a, 20 * s, &b, first, lengths[s], "o");
                case_expect_rows_equal(&a, 20 * s, &b, first, lengths[s], "lse");
                case_expect_rows_equal(&da, 20 * s, &db, first, lengths[s], "dqkv");
                case_expect_zero_rows(&a, "o", gap, end);
                case_expect_zero_rows(&a, "lse", gap, end);
                case_expect_zero_rows(&da, "dqkv", gap, end);
            }
            case_free(&da);
            case_free(&db);
        }
        case_free(&a);
        case_free(&b);
    }
}

/* More sequences than a warp has lanes, some empty, with gaps of all sizes: before the first, between, after the last.
 */
static void test_many_sequences(void **state)
{
    (void)state;
    enum { N = 70, ROWS = 1100 };
    const Shape s = {{0}, 0, ROWS, N + 3, 2, 8, 0.1f, 0};
    for (int t = 0; t < n_long_types(); t++) {
        OpCase forward, backward;
        forward_init(&forward, &s, compute_types[t]);
        int32_t end = 0;
        for (int32_t i = 0; i < N; i++) {
            int32_t first = end + (i % 9 == 0 ? 67 - i / 9 * 8 : i % 3);
            end = first + i % 7 * (i % 5);
            case_set_ints(&forward, "spans", 2 * i, 2, (int32_t[]){first, end});
            case_set_ints(&forward, "seq_index", i, 1, (int32_t[]){3 * i});
        }
        assert_true(end < ROWS - 130);
        case_ctl(&forward)->n_seqs = N;
        case_ctl(&forward)->n_tokens = end;
        case_check(&forward, tolerance);
        case_expect_zero_rows(&forward, "o", end, ROWS);
        backward_init(&backward, &s, &forward, compute_types[t]);
        *case_ctl(&backward) = *case_ctl(&forward);
        case_check(&backward, tolerance);
        case_expect_zero_rows(&backward, "dqkv", end, ROWS);
        case_free(&forward);
        case_free(&backward);
    }
}

/* Scores far apart and all equal: nothing overflows. */
static void test_extreme_scores(void **state)
{
    (void)state;
    const Shape s = {{40, 7}, 2, 64, 2, 2, 20, 0.1f, 0};
    static const double sizes[] = {0, 12, 60};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < n_types(); t++) {
            OpCase forward, backward;
            forward_init(&forward, &s, compute_types[t]);
            case_random(&forward, "qkv", 0, sizes[i]);
            case_check(&forward, (Tolerance){1e-3, 1e-2}); /* scores up to 5000 lose digits */
            backward_init(&backward, &s, &forward, compute_types[t]);
            case_check(&backward, (Tolerance){1e-2, 2e-2});
            case_free(&forward);
            case_free(&backward);
        }
}

/* All scores far below 0: a key behind the sequence's end, whose score would be 0, has no part in dq. */
static void test_low_scores(void **state)
{
    (void)state;
    enum { LENGTH = 21, D = 32 };
    const Shape s = {{LENGTH}, 1, 64, 1, 1, D, 0, 0};
    for (int t = 0; t < n_types(); t++) {
        OpCase forward, backward;
        float row[3 * D];
        forward_init(&forward, &s, compute_types[t]);
        for (int i = 0; i < LENGTH; i++) {
            for (int j = 0; j < 3 * D; j++)
                row[j] = (j < D ? 8.0f : j < 2 * D ? -8.0f : 1.0f) + (float)(i * j % 7) / 64;
            case_set(&forward, "qkv", i * 3 * D, 3 * D, row);
        }
        case_check(&forward, (Tolerance){1e-3, 1e-2});
        backward_init(&backward, &s, &forward, compute_types[t]);
        case_check(&backward, (Tolerance){1e-2, 2e-2});
        case_free(&forward);
        case_free(&backward);
    }
}

/* The groups below say that sequences have at most 128, and at most 512 tokens. */
static int at_most_128(void **state)
{
    (void)state;
    longest_said = 128;
    return 0;
}
static int at_most_512(void **state)
{
    (void)state;
    longest_said = 512;
    return 0;
}

static bool on_a_device(void)
{
    for (Backend *b = ops_next(NULL); b; b = ops_next(b))
        if (b->device) return true;
    return false;
}

int main(void)
{
    const struct CMUnitTest of_ref[] = {
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_db),
        cmocka_unit_test(test_scratch),        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_masks),          cmocka_unit_test(test_sequences_are_independent),
        cmocka_unit_test(test_rectangle),      cmocka_unit_test(test_many_sequences),
        cmocka_unit_test(test_extreme_scores), cmocka_unit_test(test_low_scores),
    };
    const struct CMUnitTest of_lengths[] = {cmocka_unit_test(test_lengths)};
    int failed = 0;
    /* Without a list of backends, once for all runs of this program. */
    if (!getenv("CAIRN_TEST_BACKENDS")) failed += cmocka_run_group_tests(of_ref, NULL, NULL);
    /* Native: kernels of the backward are chosen by the longest. */
    if (!getenv("CAIRN_CUDA_NATIVE_ATTENTION")) failed += cmocka_run_group_tests(tests, NULL, NULL);
    if (on_a_device()) /* which chooses kernels by the longest */
        return failed + cmocka_run_group_tests(tests, at_most_128, NULL) +
               cmocka_run_group_tests(tests, at_most_512, NULL);
    return failed + cmocka_run_group_tests(of_lengths, at_most_128, NULL) +
           cmocka_run_group_tests(of_lengths, at_most_512, NULL);
}
