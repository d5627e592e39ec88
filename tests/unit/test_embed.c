/* `cairn embed`'s reader, the order of its steps, its losses on the host, and its metrics against scikit-learn and
   SciPy (tests/golden/embed_metrics.txt). */
#include "testing.h"

#include <math.h>

#include "tasks/embed/embed.h"
#include "train/parts/coupling.h"
#include "train/ranks/signals.h"

#define GOLDEN "tests/golden/embed_metrics.txt"

static const char vocab_lines[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n";
enum { CLS = 2, SEP = 3, A = 5, LENGTH = 8 };

/* ---- reading ---- */

static Status read_as(const char *name, const char *data, const char *texts, const char *score, int use,
                      EmbedScores scores, EmbedTexts *x)
{
    EmbedColumns c;
    Vocab *v = NULL;
    Status status = OK;
    assert_ok(vocab_parse("made", vocab_lines, sizeof vocab_lines - 1, NULL, &v));
    Tokenizer *t = tokenizer_new(v, tokenizer_options(true));
    TRY_DONE(embed_columns(texts, score, &c));
    TRY_DONE(embed_read(x, name, data, strlen(data), &c, use, scores, t, LENGTH));
done:
    embed_columns_free(&c);
    tokenizer_free(t);
    vocab_free(v);
    return status;
}

static void assert_text(const Examples *e, int64_t sequence, const char *words)
{
    const int32_t *ids = e->ids + e->offset[sequence];
    int64_t n = example_length(e, sequence);
    assert_int_equal(n, (int64_t)strlen(words) + 2);
    assert_int_equal(ids[0], CLS);
    for (int64_t i = 1; i < n - 1; i++) assert_int_equal(ids[i], A + words[i - 1] - 'a');
    assert_int_equal(ids[n - 1], SEP);
}

static void texts_of_a_row_follow_each_other(void **state)
{
    EmbedTexts x;
    (void)state;
    assert_ok(read_as("t.csv", "id,no,yes,score\n1,a b,c,0.5\n2,\"d, d\",a a a a a a a a,-1\n", "yes,no", "score", 2,
                      SCORES_COSINES, &x));
    assert_int_equal(x.rows, 2);
    assert_int_equal(x.examples.count, 4);
    assert_text(&x.examples, 0, "c");
    assert_text(&x.examples, 1, "ab");
    assert_text(&x.examples, 2, "aaaaaa");
    assert_int_equal(x.examples.cut, 1);
    for (int i = 0; i < 4; i++) assert_true(x.examples.score[i] == (i < 2 ? 0.5f : -1));
    embed_texts_free(&x);

    /* A dev file gives fewer columns; without a header columns have numbers. */
    assert_ok(read_as("t.jsonl", "{\"q\": \"a\", \"p\": \"b\"}\n", "q,p,n", "", 2, SCORES_NONE, &x));
    assert_int_equal(x.examples.count, 2);
    assert_true(x.examples.score == NULL);
    embed_texts_free(&x);
    assert_ok(read_as("t.tsv", "a\tb\tc\nb\tc\td\n", "2,0,1", "3", 3, SCORES_NONE, &x));
    assert_int_equal(x.rows, 2);
    assert_text(&x.examples, 3, "d");
    embed_texts_free(&x);
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *data, *texts, *score;
        EmbedScores scores;
        Status status;
        const char *message;
    } cases[] = {
        {"q,p\na,b\n", "q", "", SCORES_NONE, E_USAGE,
         "--text-columns 'q': expected the columns of anchor and positive"},
        {"q,p\na,b\n", "q,p,q,p", "", SCORES_NONE, E_USAGE, "or of anchor, positive and negative"},
        {"q,p\na,b\n", "q,,p", "", SCORES_NONE, E_USAGE, "--text-columns 'q,,p'"},
        {"q,p\na,b\n", "q,p", "s\t", SCORES_NONE, E_USAGE, "expected the name of one column"},
        {"q,p\na,b\n", "q,positive", "", SCORES_NONE, E_FORMAT, "positive"},
        {"q,p\na,b\nc,d\n \t,a\n", "q,p", "", SCORES_NONE, E_FORMAT, "t.csv:4: column 'q' is empty, expected a text"},
        {"q,p\n", "q,p", "", SCORES_NONE, E_FORMAT, "t.csv"},
        {"q,p,s\na,b,0.5\na,b,high\n", "q,p", "s", SCORES_ANY, E_FORMAT,
         "t.csv:3: expected a number as score, found 'high'"},
        {"q,p,s\na,b,4.5\n", "q,p", "s", SCORES_COSINES, E_FORMAT,
         "t.csv:2: --loss cosine: expected a score from -1 to 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EmbedTexts x = {0};
        assert_status(read_as("t.csv", cases[i].data, cases[i].texts, cases[i].score, 2, cases[i].scores, &x),
                      cases[i].status);
        assert_message(cases[i].message);
    }
}

/* ---- steps ---- */

static void a_step_has_all_anchors_first(void **state)
{
    enum { ROWS = 10, TEXTS = 3, BATCH = 4 };
    EmbedTexts x = {.texts = TEXTS, .rows = ROWS, .examples.count = ROWS * TEXTS};
    EmbedSource own = {&x, 7, BATCH};
    ExampleSource source = embed_source(&own);
    int64_t index[BATCH * TEXTS], rows[BATCH], n;
    const Examples *examples;
    (void)state;
    assert_int_equal(source.count, ROWS * TEXTS);
    assert_int_equal(batches_per_epoch(source.count, BATCH * TEXTS), 3);
    for (int64_t batch = 0; batch < 6; batch++) {
        int64_t expected = batch_examples(7, ROWS, BATCH, batch, rows);
        assert_int_equal(expected, batch % 3 == 2 ? 2 : BATCH);
        assert_ok(source.step(source.self, batch, &examples, index, &n));
        assert_true(examples == &x.examples);
        assert_int_equal(n, expected * TEXTS);
        for (int64_t i = 0; i < n; i++) assert_int_equal(index[i], rows[i % expected] * TEXTS + i / expected);
    }
}

/* ---- losses ---- */

enum { N = 4, H = 5 };

static double sum_of(const Coupling *c, const float *e, const float *scores)
{
    float de[3 * N * H];
    return coupling_rows(c, e, scores, N, N, H, 1, de);
}

/* Against differences of the loss itself, whose error is of the square of the difference. */
static void check_gradient(const Coupling *c, const float *scores)
{
    float e[3 * N * H], de[3 * N * H];
    const double step = 1.0 / 1024;
    uint32_t seed = 5;
    for (int i = 0; i < c->texts * N * H; i++) {
        seed = seed * 1664525u + 1013904223u;
        e[i] = (float)(seed >> 20) / 4096 - 0.5f;
    }
    (void)coupling_rows(c, e, scores, N, N, H, 0.25f, de);
    int moved = 0;
    for (int i = 0; i < c->texts * N * H; i++) {
        float at = e[i];
        e[i] = (float)((double)at + step);
        double above = sum_of(c, e, scores);
        e[i] = (float)((double)at - step);
        double below = sum_of(c, e, scores);
        e[i] = at;
        assert_true(fabs((above - below) / (2 * step) * 0.25 - (double)de[i]) < 1e-5);
        moved += de[i] != 0;
    }
    assert_true(moved > N * H);
}

static void gradients_are_those_of_the_losses(void **state)
{
    const float scores[N] = {0, 0.5f, 1, -1};
    (void)state;
    check_gradient(&(Coupling){.loss = COUPLE_COSINE, .texts = 2}, scores);
    check_gradient(&(Coupling){.loss = COUPLE_TRIPLET, .texts = 3, .margin = 0.5f}, NULL);
}

static void triplets_at_rest(void **state)
{
    const float same[9] = {1, 2, 3, 1, 2, 3, 1, 2, 3}, apart[9] = {0, 0, 0, 0, 0, 1, 3, 4, 0};
    float de[9];
    Coupling c = {.loss = COUPLE_TRIPLET, .texts = 3, .margin = 0.5f};
    (void)state;
    assert_true(coupling_rows(&c, same, NULL, 1, 1, 3, 1, de) == 0.5); /* no distance has a direction */
    for (int i = 0; i < 9; i++) assert_true(de[i] == 0);
    assert_true(coupling_rows(&c, apart, NULL, 1, 1, 3, 1, de) == 0); /* 1 - 5 + 0.5 */
    for (int i = 0; i < 9; i++) assert_true(de[i] == 0);
    c.margin = 5;
    assert_true(coupling_rows(&c, apart, NULL, 1, 1, 3, 1, de) == 1);
    const float expected[9] = {0.6f, 0.8f, -1, 0, 0, 1, -0.6f, -0.8f, 0};
    for (int i = 0; i < 9; i++) assert_true(fabsf(de[i] - expected[i]) < 1e-7f);
}

/* ---- metrics ---- */

/* Rows whose texts all differ. */
static EmbedTexts rows_of(int64_t rows, bool scored)
{
    size_t n = 2 * (size_t)rows;
    EmbedTexts x = {.texts = 2, .rows = rows, .examples.count = (int64_t)n};
    Examples *e = &x.examples;
    e->offset = mem_array(n + 1, sizeof *e->offset);
    e->ids = mem_array(n, sizeof *e->ids);
    x.digests = mem_array(n, sizeof *x.digests);
    if (scored) e->score = mem_array(n, sizeof *e->score);
    for (size_t i = 0; i < n; i++) {
        e->ids[i] = (int32_t)i;
        e->offset[i + 1] = (int64_t)i + 1;
        x.digests[i].lo = i;
    }
    return x;
}

static void equal_to_scikit_learn_and_scipy(void **state)
{
    char kind[16];
    int rows, h, cases = 0;
    FILE *f = fopen(GOLDEN, "r");
    (void)state;
    if (!f) fail_msg("%s: %s", GOLDEN, strerror(errno));
    while (fgetc(f) != '\n') assert_false(feof(f));
    for (; fscanf(f, "%15s %d %d", kind, &rows, &h) == 3; cases++) {
        bool scored = strcmp(kind, "scored") == 0;
        EmbedTexts x = rows_of(rows, scored);
        float *v = mem_array((size_t)(2 * rows * h), sizeof *v);
        double found[N_EMBED_METRICS];
        for (int i = 0; i < rows; i++) {
            for (int d = 0; d < 2 * h; d++) assert_int_equal(fscanf(f, "%f", &v[2 * i * h + d]), 1);
            if (scored) assert_int_equal(fscanf(f, "%f", &x.examples.score[2 * i]), 1);
        }
        assert_ok(embed_measure(&x, v, h, NULL, found));
        for (int m = 0; m < N_EMBED_METRICS; m++) {
            double expected;
            if (!embed_measures(&x, (EmbedMetric)m)) continue;
            assert_int_equal(fscanf(f, "%lf", &expected), 1);
            if (!(fabs(found[m] - expected) < 1e-6))
                fail_msg("%s of %d: expected %.9g, found %.9g", embed_metric_name((EmbedMetric)m), rows, expected,
                         found[m]);
        }
        free(v);
        embed_texts_free(&x);
    }
    assert_true(feof(f));
    assert_int_equal(cases, 3);
    fclose(f);
}

/* Vectors that are all equal find nothing; texts that are equal find each other. */
static void ties(void **state)
{
    enum { ROWS = 40, DIMS = 2 };
    EmbedTexts x = rows_of(ROWS, false);
    float v[ROWS * 2 * DIMS];
    double found[N_EMBED_METRICS];
    (void)state;
    for (int i = 0; i < ROWS * 2 * DIMS; i++) v[i] = 3;
    assert_ok(embed_measure(&x, v, DIMS, NULL, found));
    assert_true(found[EMBED_RECALL_10] == 0 && found[EMBED_MRR] == 0);
    for (int i = 2; i < ROWS; i++) x.digests[2 * i + 1].lo = UINT64_MAX; /* rows 0 and 1 have other texts than these */
    assert_ok(embed_measure(&x, v, DIMS, NULL, found));
    assert_true(fabs(found[EMBED_RECALL_5] - 38.0 / 40) < 1e-12); /* of rank 3 */
    assert_true(found[EMBED_RECALL_1] == 0);
    assert_true(fabs(found[EMBED_MRR] - 38.0 / 40 / 3) < 1e-12);
    embed_texts_free(&x);
}

/* Texts that are one row of tokens, since the vocabulary has none of their words, are still texts that differ. */
static void texts_that_the_model_cannot_tell_apart(void **state)
{
    enum { ROWS = 20, DIMS = 2 };
    EmbedTexts x;
    Buf data = {0};
    float v[(ROWS + 1) * 2 * DIMS];
    double found[N_EMBED_METRICS];
    (void)state;
    buf_puts(&data, "q,p\n");
    for (int i = 0; i < ROWS; i++) buf_printf(&data, "x%d,y%d\n", i, i);
    for (int again = 0; again < 2; again++) {
        assert_ok(read_as("t.csv", data.data, "q,p", "", 2, SCORES_NONE, &x));
        for (int i = 0; i < x.rows * 2 * DIMS; i++) v[i] = i / DIMS < 2 * (ROWS - 1) ? 1 : (float)(i % DIMS);
        for (int i = 0; i < x.examples.count; i++) assert_int_equal(x.examples.ids[3 * i + 1], 1);
        assert_ok(embed_measure(&x, v, DIMS, NULL, found));
        assert_true(fabs(found[EMBED_RECALL_1] * (double)x.rows - (again ? 2 : 1)) < 1e-12);
        embed_texts_free(&x);
        buf_printf(&data, "x,\" y%d \"\n", ROWS - 1); /* the last text once more, with spaces around it */
    }
    buf_free(&data);
}

static void a_signal_ends_the_search(void **state)
{
    enum { ROWS = 40 };
    EmbedTexts x = rows_of(ROWS, false);
    float v[ROWS * 2] = {0};
    double found[N_EMBED_METRICS];
    (void)state;
    signals_install();
    assert_ok(embed_measure(&x, v, 1, NULL, found));
    assert_int_equal(raise(SIGTERM), 0);
    assert_status(embed_measure(&x, v, 1, NULL, found), E_STOPPED);
    embed_texts_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_a_row_follow_each_other),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_step_has_all_anchors_first),
        cmocka_unit_test(gradients_are_those_of_the_losses),
        cmocka_unit_test(triplets_at_rest),
        cmocka_unit_test(equal_to_scikit_learn_and_scipy),
        cmocka_unit_test(ties),
        cmocka_unit_test(texts_that_the_model_cannot_tell_apart),
        cmocka_unit_test(a_signal_ends_the_search), /* the last one: the signal stays */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
