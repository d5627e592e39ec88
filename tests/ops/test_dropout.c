/* The op DROPOUT, and the draws of every op: the counters of docs/contracts.md 4, their statistics, and that no two
 * sites, batches, sequences, positions or heads share a mask. */
#include <math.h>

#include "ops/harness.h"
#include "ops/row_dropout.h"

/* Row i is of sequence 100 + 3i; with `tokens` at position 7 + i, else at 0. */
static void init(OpCase *c, bool tokens, int64_t seqs, int64_t cols, Dtype dtype, float p, uint32_t site)
{
    RowCounts rows = {.count = {[ROWS_SEQS] = seqs}};
    case_init(c, OP_DROPOUT, (OpAttr){.dropout = {p, site}}, rows);
    case_add_random(c, "x", dtype, rows_kind(ROWS_SEQS), cols, 1);
    case_add(c, "seq_index", I32, rows_kind(ROWS_SEQS), 1);
    case_add(c, "y", dtype, rows_kind(ROWS_SEQS), cols);
    if (tokens) case_add(c, "pos", I32, rows_kind(ROWS_SEQS), 1);
    for (int32_t i = 0; i < seqs; i++) case_set_ints(c, "seq_index", i, 1, &(int32_t){100 + 3 * i});
    for (int32_t i = 0; tokens && i < seqs; i++) case_set_ints(c, "pos", i, 1, &(int32_t){7 + i});
    case_ctl(c)->dropout_key = KEY;
    case_ctl(c)->batch = 77;
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 36}, {2, 7}, {63, 36}, {64, 64}, {65, 20}};
    static const float rates[] = {0, 0.1f, 0.5f};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < N_COMPUTE; t++)
            for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
                OpCase c;
                init(&c, i % 2, shapes[i][0], shapes[i][1], compute_types[t], rates[r], 9);
                case_check(&c, (Tolerance){0});
                case_free(&c);
            }
}

/* Exactly the values that the definition drops are 0; the others are x·scale, rounded once. */
static void test_meaning(void **state)
{
    (void)state;
    static const float rates[] = {0, 0.1f, 0.5f};
    for (int t = 0; t < N_COMPUTE; t++)
        for (size_t k = 0; k < 2 * (sizeof rates / sizeof *rates); k++)
            for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
                OpCase c;
                size_t r = k / 2;
                bool tokens = k % 2;
                init(&c, tokens, 5, 100, compute_types[t], rates[r], 1023);
                if (case_runs_on(&c, backend)) {
                    case_run(&c, backend, (RunOptions){0});
                    float *x = case_values(&c, "x"), *y = case_values(&c, "y");
                    for (uint32_t i = 0; i < 500; i++) {
                        bool drop =
                            row_dropped(1023, 77, 100 + 3 * (i / 100), tokens ? 7 + i / 100 : 0, i % 100, rates[r]);
                        float kept = x[i] * (float)(65536.0 / (65536.0 - (double)lrint(65536.0 * (double)rates[r])));
                        kept = type_rounded(compute_types[t], kept);
                        if (y[i] != (drop ? 0 : kept))
                            fail_msg("%s: y[%u] is %g of x %g, %s", backend->name, i, (double)y[i], (double)x[i],
                                     drop ? "dropped" : "kept");
                    }
                    free(x);
                    free(y);
                }
                case_free(&c);
            }
}

/* ---- statistics of the draws ---- */

enum { COLUMNS = 1 << 14 };

/* A mask over COLUMNS: of a row, or of one query's keys. */
typedef struct {
    const char *what;
    bool attention;
    uint32_t site, batch, sequence, at, head; /* at: position or query */
} Draw;

static void draw(const Draw *d, float p, bool *drop)
{
    static float factor[COLUMNS];
    Ctl ctl = {.dropout_key = KEY, .batch = d->batch};
    Dropout dropout = dropout_of(&ctl, p, d->site);
    if (d->attention)
        dropout_query(factor, &dropout, d->head, d->sequence, d->at, COLUMNS);
    else
        dropout_row(factor, &dropout, d->at, d->sequence, COLUMNS);
    for (int i = 0; i < COLUMNS; i++) drop[i] = factor[i] == 0;
}

static const Draw draws[] = {
    {"a row", false, 3, 5, 7, 11, 0},
    {"another site", false, 4, 5, 7, 11, 0},
    {"the last site", false, 1023, 5, 7, 11, 0},
    {"another batch", false, 3, 6, 7, 11, 0},
    {"a late batch", false, 3, (1u << 22) - 1, 7, 11, 0},
    {"another sequence", false, 3, 5, 8, 11, 0},
    {"another position", false, 3, 5, 7, 12, 0},
    {"a query", true, 2, 5, 7, 11, 0},
    {"its partner in the tile", true, 2, 5, 7, 3, 0},
    {"the next query", true, 2, 5, 7, 12, 0},
    {"the query a tile on", true, 2, 5, 7, 27, 0},
    {"another head", true, 2, 5, 7, 11, 1},
    {"the 16th head", true, 2, 5, 7, 11, 15},
    {"another sequence's query", true, 2, 5, 8, 11, 0},
    {"another site's query", true, 5, 5, 7, 11, 0},
    {"another batch's query", true, 2, 6, 7, 11, 0},
};
enum { N_DRAWS = sizeof draws / sizeof *draws };

static void expect_share(const char *what, double found, double share)
{
    double sigma = sqrt(share * (1 - share) / COLUMNS);
    if (fabs(found - share) > 5 * sigma) fail_msg("%s: %.5f, expected %.5f within %.5f", what, found, share, 5 * sigma);
}

/* The share that is dropped; two masks agree as often as independent ones do; neighbours in a mask too. */
static void test_statistics(void **state)
{
    (void)state;
    static const float rates[] = {0.1f, 0.5f};
    static bool masks[N_DRAWS][COLUMNS];
    for (size_t r = 0; r < 2; r++) {
        double p = dropout_threshold(rates[r]) / 65536.0, agree = p * p + (1 - p) * (1 - p);
        for (int i = 0; i < N_DRAWS; i++) {
            draw(&draws[i], rates[r], masks[i]);
            int share = 0, same = 0;
            for (int j = 0; j < COLUMNS; j++) {
                share += masks[i][j];
                same += masks[i][j] == masks[i][(j + 1) % COLUMNS];
            }
            expect_share(draws[i].what, (double)share / COLUMNS, p);
            expect_share(draws[i].what, (double)same / COLUMNS, agree);
        }
        for (int i = 0; i < N_DRAWS; i++)
            for (int j = 0; j < i; j++) {
                int same = 0;
                for (int k = 0; k < COLUMNS; k++) same += masks[i][k] == masks[j][k];
                char *what = mem_printf("%s and %s", draws[i].what, draws[j].what);
                expect_share(what, (double)same / COLUMNS, agree);
                free(what);
            }
    }
}

/* The rate is rounded to 1/65536 and the scale keeps the mean. */
static void test_rates(void **state)
{
    (void)state;
    static const float rates[] = {0, 0.1f, 0.5f, 0.9f, 1e-6f};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double p = dropout_threshold(rates[i]) / 65536.0;
        assert_true(fabs(p - (double)rates[i]) <= 0.5 / 65536);
        assert_true(fabs((1 - p) * (double)dropout_scale(rates[i]) - 1) < 1e-6);
    }
    assert_true(dropout_scale(0) == 1.0f);
}

/* The order inside a tile, element by element against the definition. */
static void test_tile_order(void **state)
{
    (void)state;
    static const int keys[4][4] = {{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}};
    enum { LENGTH = 50, HEAD = 3, SITE = 8 };
    const float p = 0.5f;
    Ctl ctl = {.dropout_key = KEY, .batch = 77};
    Dropout dropout = dropout_of(&ctl, p, SITE);
    float factor[LENGTH];
    int checked = 0;
    for (int query = 0; query < LENGTH; query++) {
        dropout_query(factor, &dropout, HEAD, 1234, query, LENGTH);
        for (int tile = 0; tile * 16 < LENGTH; tile++)
            for (int c = 0; c < 4; c++)
                for (int i = 0; i < 4; i++) {
                    int key = tile * 16 + keys[c][i];
                    if (key >= LENGTH) continue;
                    Philox4 call = philox4(KEY, (uint32_t)(tile * 4 + c),
                                           (uint32_t)(query / 16 * 8 + query % 8) | HEAD << 16, 1234, SITE | 77u << 10);
                    bool drop = philox_draw16(&call, query % 16 / 8 * 4 + i) < 32768;
                    assert_true(factor[key] == (drop ? 0.0f : 2.0f));
                    checked++;
                }
    }
    assert_int_equal(checked, LENGTH * LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_meaning),    cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_rates),  cmocka_unit_test(test_tile_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
