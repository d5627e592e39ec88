/* The dev split of --eval-fraction: shares of labels, sets of labels, and what it does not depend on. */
#include "testing.h"

#include "tasks/glue/glue.h"

typedef struct {
    GlueCustom custom;
    GlueExamples x, held;
} Drawn;

/* Rows whose labels are the letters of `labels`; of several labels a '.' ends each row. */
static void draw(Drawn *d, const char *labels, const char *names, bool multi, double fraction, uint64_t seed)
{
    Buf text = {0};
    buf_puts(&text, multi ? "t\tl\nx\t" : "t\tl\n");
    for (const char *at = labels; *at; at++)
        if (multi)
            buf_printf(&text, *at == '.' ? (at[1] ? "\nx\t" : "\n") : "%c,", *at);
        else
            buf_printf(&text, "x\t%c\n", *at);
    assert_ok(glue_custom_init(&d->custom, "t", "l", names, multi));
    assert_ok(glue_parse(&d->x, "train.tsv", text.data, text.len, &d->custom.task, &d->custom.task.splits[0]));
    assert_ok(glue_hold_out(&d->x, &d->custom.task, fraction, seed, &d->held));
    buf_free(&text);
}

static void drawn_free(Drawn *d)
{
    glue_examples_free(&d->held);
    glue_examples_free(&d->x);
    glue_custom_free(&d->custom);
}

static size_t rows_with(const GlueExamples *x, int label)
{
    size_t n = 0;
    for (size_t i = 0; i < x->count; i++)
        n += x->examples[i].targets ? x->examples[i].targets[label] > 0 : x->examples[i].label == label;
    return n;
}

/* a, b, c: rows of these labels in turn, as many as each has. */
static void fill(char *labels, int a, int b, int c)
{
    while (a + b + c > 0) {
        if (a-- > 0) *labels++ = 'a';
        if (b-- > 0) *labels++ = 'b';
        if (c-- > 0) *labels++ = 'c';
        a = a < 0 ? 0 : a, b = b < 0 ? 0 : b, c = c < 0 ? 0 : c;
    }
    *labels = 0;
}

static void labels_keep_their_shares(void **state)
{
    static const struct {
        int rows[3];
        double fraction;
        size_t held[3];
    } cases[] = {
        {{520, 479, 1}, 0.1, {52, 48, 0}},  /* a single row is trained on */
        {{10, 10, 10}, 0.25, {3, 3, 2}},    /* 8 of 30: equal remainders, the first rows' */
        {{90, 7, 3}, 0.1, {8, 1, 1}},       /* 9, 0.7, 0.3: each has one row, within 10 */
        {{90, 7, 2}, 0.01, {1, 0, 0}},      /* no room for each */
        {{2, 2, 2}, 0.9, {1, 1, 1}},        /* each keeps one to train on */
        {{100, 50, 25}, 0.5, {50, 25, 13}}, /* 87.5 are 88 */
        {{3, 1, 1}, 0.01, {1, 0, 0}},       /* one at least */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Drawn d = {0};
        char labels[1001];
        fill(labels, cases[i].rows[0], cases[i].rows[1], cases[i].rows[2]);
        draw(&d, labels, "a,b,c", false, cases[i].fraction, 42);
        for (int k = 0; k < 3; k++) {
            size_t held = rows_with(&d.held, k), trained = rows_with(&d.x, k);
            if (held != cases[i].held[k] || held + trained != (size_t)cases[i].rows[k])
                fail_msg("case %zu, label %d: %zu held out, %zu trained on", i, k, held, trained);
        }
        drawn_free(&d);
    }
}

/* Both sides have all rows, in the file's order, under the file's numbers. */
static void rows_keep_their_numbers(void **state)
{
    Drawn d = {0};
    char labels[201];
    size_t at[2] = {0};
    (void)state;
    fill(labels, 100, 70, 30);
    draw(&d, labels, "a,b,c", false, 0.3, 1);
    assert_int_equal(d.held.count, 60);
    for (int64_t row = 0; row < 200; row++) {
        bool held = at[1] < d.held.count && d.held.examples[at[1]].index == row;
        const GlueExample *e = held ? &d.held.examples[at[1]] : &d.x.examples[at[0]];
        at[held]++;
        assert_int_equal(e->index, row);
        assert_int_equal(e->line, row + 2);
        assert_int_equal(e->label, labels[row] - 'a');
    }
    drawn_free(&d);
}

static bool same_rows(const Drawn *a, const Drawn *b)
{
    bool same = a->held.count == b->held.count;
    for (size_t i = 0; same && i < a->held.count; i++) same = a->held.examples[i].line == b->held.examples[i].line;
    return same;
}

/* Numbers of labels do not change the rows; another seed does. */
static void seed_alone_decides(void **state)
{
    Drawn d[3] = {0};
    char labels[301];
    (void)state;
    fill(labels, 150, 100, 50);
    draw(&d[0], labels, "a,b,c", false, 0.1, 42);
    draw(&d[1], labels, "c,a,b", false, 0.1, 42);
    draw(&d[2], labels, "a,b,c", false, 0.1, 43);
    assert_true(same_rows(&d[0], &d[1]));
    assert_false(same_rows(&d[0], &d[2]));
    for (int i = 0; i < 3; i++) drawn_free(&d[i]);
}

/* Frequent sets of labels keep their shares; rare ones are one stratum. Scores are drawn plainly. */
static void sets_and_scores(void **state)
{
    Drawn d = {0};
    Buf labels = {0};
    (void)state;
    for (int i = 0; i < 40; i++) buf_puts(&labels, i % 2 ? "a." : "ab.");
    for (int i = 0; i < 5; i++) buf_puts(&labels, "c.");
    for (int i = 0; i < 5; i++) buf_puts(&labels, "bc.");
    draw(&d, labels.data, "a,b,c", true, 0.1, 42);
    assert_int_equal(d.held.count, 5);
    assert_int_equal(rows_with(&d.held, 0), 4);
    assert_int_equal(rows_with(&d.held, 2), 1);
    assert_int_equal(rows_with(&d.x, 2), 9);
    drawn_free(&d);
    draw(&d, "0123456789", "regression", false, 0.3, 42);
    assert_int_equal(d.held.count, 3);
    assert_int_equal(d.x.count, 7);
    drawn_free(&d);
    buf_free(&labels);
}

static void nothing_to_hold_out(void **state)
{
    GlueCustom c;
    GlueExamples x, held;
    static const char text[] = "t\tl\nx\ta\ny\tb\n";
    (void)state;
    assert_ok(glue_custom_init(&c, "t", "l", "a,b", false));
    assert_ok(glue_parse(&x, "train.tsv", text, sizeof text - 1, &c.task, &c.task.splits[0]));
    assert_status(glue_hold_out(&x, &c.task, 0.5, 42, &held), E_FORMAT);
    assert_true(strstr(status_message(), "train.tsv: --eval-fraction 0.5 holds out no row: of 2 rows"));
    glue_examples_free(&x);
    glue_custom_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_keep_their_shares), cmocka_unit_test(rows_keep_their_numbers),
        cmocka_unit_test(seed_alone_decides),       cmocka_unit_test(sets_and_scores),
        cmocka_unit_test(nothing_to_hold_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
