/* EMBED and its backward. */
#include <math.h>

#include "ops/harness.h"
#include "ops/row_dropout.h"

#define EPS 1e-12f

typedef struct {
    int lengths[5], n;
    int64_t rows, hidden, words, positions, types; /* types: 0 without that table */
    float p;
} Shape;

static const Shape shapes[] = {
    {{1}, 1, 1, 36, 64, 8, 2, 0.1f},
    {{2}, 1, 63, 36, 128, 40, 2, 0.1f},
    {{1, 2, 40}, 3, 64, 36, 128, 40, 2, 0},
    {{30, 35}, 2, 65, 60, 64, 40, 1, 0.5f},
    {{128, 5, 1, 17, 40}, 5, 200, 128, 192, 128, 2, 0.1f},
    {{50, 1, 40}, 3, 100, 36, 128, 60, 0, 0.1f},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static void init(OpCase *c, Op op, const Shape *s, Dtype dtype)
{
    Rows tokens = rows_kind(ROWS_TOKENS);
    case_init(c, op, (OpAttr){.embed = {.eps = EPS, .dropout = s->p, .site = 0}}, rows_tokens(s->rows));
    c->seed = 99; /* tables and ids are the same forward and backward */
    case_add(c, "ids", I32, tokens, 1);
    case_add(c, "types", I32, tokens, 1);
    case_add(c, "pos", I32, tokens, 1);
    case_add(c, "seq", I32, tokens, 1);
    case_add_random(c, "word", F32, fixed(s->words), s->hidden, 1);
    case_add_random(c, "position", F32, fixed(s->positions), s->hidden, 0.5);
    if (s->types) case_add_random(c, "type", F32, fixed(s->types), s->hidden, 0.5);
    case_add_random(c, "gamma", F32, fixed(s->hidden), 1, 1);
    case_set(c, "gamma", 0, 2, (float[]){0, 1e-3f});
    uint64_t random = 7;
    for (int64_t r = 0; r < s->rows; r++) {
        /* few words, so that rows meet in one gradient */
        case_set_ints(c, "ids", r, 1, &(int32_t){(int32_t)(testing_random(&random) % (uint64_t)(s->words / 3))});
        uint64_t any = testing_random(&random);
        case_set_ints(c, "types", r, 1, &(int32_t){s->types ? (int32_t)(any % (uint64_t)s->types) : -7}); /* not read */
    }
    case_sequences(c, s->lengths, NULL, s->n);
    case_ctl(c)->dropout_key = KEY;
    case_ctl(c)->batch = 5;
    if (op == OP_EMBED) {
        case_add_random(c, "beta", F32, fixed(s->hidden), 1, 1);
        case_add(c, "x", dtype, tokens, s->hidden);
        return;
    }
    case_add_random(c, "dx", dtype, tokens, s->hidden, 1);
    case_clear_rows(c, "dx", case_ctl(c)->n_tokens);
    case_add_random(c, "dword", F32, fixed(s->words), s->hidden, 1);
    case_add_random(c, "dposition", F32, fixed(s->positions), s->hidden, 1);
    if (s->types) case_add_random(c, "dtype", F32, fixed(s->types), s->hidden, 1);
    case_add_random(c, "dgamma", F32, fixed(s->hidden), 1, 1);
    case_add_random(c, "dbeta", F32, fixed(s->hidden), 1, 1);
}

static void check_shapes(const Shape *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (int op = 0; op < 2; op++) {
                OpCase c;
                if (testing_brief() && t != (int)i % N_COMPUTE) continue;
                init(&c, op ? OP_EMBED_BWD : OP_EMBED, &list[i], compute_types[t]);
                case_check(&c, (Tolerance){0});
                static const char *const gradients[] = {"dword", "dposition", "dgamma", "dbeta", "dtype"};
                for (int g = 0; op && g < (list[i].types ? 5 : 4); g++) case_expect_accumulated(&c, gradients[g]);
                case_free(&c);
            }
}

static void test_shapes(void **state)
{
    (void)state;
    check_shapes(shapes, N_SHAPES);
}

/* Rows that take more than one warp or thread each, to the longest; one is not a multiple of 8. */
static void test_wide(void **state)
{
    (void)state;
    static const Shape wide[] = {
        {{2}, 1, 3, 1032, 64, 8, 2, 0.1f}, {{1, 2}, 2, 3, 2056, 64, 8, 1, 0.1f}, {{3}, 1, 3, 1100, 64, 8, 2, 0},
        {{2}, 1, 2, 8192, 64, 8, 2, 0.1f}, {{2}, 1, 3, 1032, 64, 8, 0, 0.1f},
    };
    check_shapes(wide, sizeof wide / sizeof *wide);
}

/* Every backend: the sum of three table rows, normalised, scaled, dropped by the definition; 0 beyond the tokens.
 */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            const Shape *s = &shapes[i];
            OpCase c;
            init(&c, OP_EMBED, s, F32);
            case_run(&c, backend, (RunOptions){0});
            int64_t tokens = case_ctl(&c)->n_tokens, h = s->hidden;
            const float *word = case_initial(&c, "word"), *at = case_initial(&c, "position");
            const float *type = s->types ? case_initial(&c, "type") : NULL;
            const float *gamma = case_initial(&c, "gamma"), *beta = case_initial(&c, "beta");
            const int32_t *ids = case_initial(&c, "ids"), *types = case_initial(&c, "types");
            const int32_t *position = case_initial(&c, "pos"), *sequence = case_initial(&c, "seq");
            float *x = case_values(&c, "x"), *want = mem_array((size_t)(s->rows * h), sizeof *want);
            double *sum = mem_array((size_t)h, sizeof *sum);
            for (int64_t r = 0; r < tokens; r++) {
                double mean = 0, variance = 0;
                for (int64_t j = 0; j < h; j++) {
                    sum[j] = (double)word[ids[r] * h + j] + (double)at[position[r] * h + j];
                    if (type) sum[j] += (double)type[types[r] * h + j];
                    mean += sum[j] / (double)h;
                }
                for (int64_t j = 0; j < h; j++) variance += (sum[j] - mean) * (sum[j] - mean) / (double)h;
                for (int64_t j = 0; j < h; j++) {
                    bool drop = row_dropped(0, 5, (uint32_t)sequence[r], (uint32_t)position[r], (uint32_t)j, s->p);
                    double y = (sum[j] - mean) / sqrt(variance + (double)EPS) * (double)gamma[j] + (double)beta[j];
                    want[r * h + j] = drop ? 0 : (float)(y * 65536 / (65536 - (double)lrint(65536.0 * (double)s->p)));
                    if ((x[r * h + j] == 0) != drop)
                        fail_msg("%s: x of row %lld, column %lld is %g; it is %s", backend->name, (long long)r,
                                 (long long)j, (double)x[r * h + j], drop ? "dropped" : "kept");
                }
            }
            expect_close("embed", x, want, tokens * h, 2e-6);
            case_expect_zero_rows(&c, "x", tokens, s->rows);
            free(x);
            free(want);
            free(sum);
            case_free(&c);
        }
}

static void test_gradients(void **state)
{
    (void)state;
    static const Shape small[] = {
        {{4, 1, 2}, 3, 9, 12, 12, 5, 2, 0.5f}, {{4, 3}, 2, 7, 20, 12, 4, 2, 0.1f}, {{4, 3}, 2, 7, 20, 12, 4, 0, 0.1f}};
    static const char *const tables[][2] = {
        {"word", "dword"}, {"position", "dposition"}, {"gamma", "dgamma"}, {"beta", "dbeta"}, {"type", "dtype"}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        OpCase forward, backward;
        size_t n = small[i].types ? 5 : 4;
        init(&forward, OP_EMBED, &small[i], F32);
        init(&backward, OP_EMBED_BWD, &small[i], F32);
        for (size_t j = 0; j < n; j++) case_clear_rows(&backward, tables[j][1], 0);
        case_run(&backward, ops_ref(), (RunOptions){0});
        for (size_t j = 0; j < n; j++)
            expect_gradient(&forward, tables[j][0], "x", &backward, "dx", &backward, tables[j][1], 0x1p-7, 1e-3);
        case_free(&forward);
        case_free(&backward);
    }
}

/* A sequence alone has the bits it has among others. */
static void test_sequences_are_independent(void **state)
{
    (void)state;
    static const int alone[] = {17}, index[] = {3};
    const Shape one = {{17}, 1, 17, 128, 192, 128, 2, 0.1f};
    for (int t = 0; t < N_COMPUTE; t++) {
        OpCase a, b;
        init(&a, OP_EMBED, &shapes[4], compute_types[t]);
        init(&b, OP_EMBED, &one, compute_types[t]);
        case_sequences(&b, alone, index, 1);
        case_copy_rows(&b, 0, &a, 134, 17, "ids");
        case_copy_rows(&b, 0, &a, 134, 17, "types");
        case_expect_independent(&a, 134, &b, 17, "x", NULL);
        case_free(&a);
        case_free(&b);
    }
}

/* Rows of the tables that no token uses keep their gradient, pad rows add nothing for any ids in them. */
static void test_untouched_rows(void **state)
{
    (void)state;
    const Shape *s = &shapes[1]; /* 2 tokens in 63 rows */
    OpCase c;
    init(&c, OP_EMBED_BWD, s, F32);
    const int32_t *ids = case_initial(&c, "ids");
    const float *before = case_initial(&c, "dword");
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        case_run(&c, backend, (RunOptions){0});
        float *dword = case_values(&c, "dword");
        for (int64_t w = 0; w < s->words; w++) {
            bool used = w == ids[0] || w == ids[1];
            bool same = memcmp(dword + w * s->hidden, before + w * s->hidden, (size_t)s->hidden * sizeof(float)) == 0;
            if (used == same)
                fail_msg("%s: dword of word %lld: used %d, unchanged %d", backend->name, (long long)w, used, same);
        }
        free(dword);
    }
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_sequences_are_independent),
        cmocka_unit_test(test_untouched_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
