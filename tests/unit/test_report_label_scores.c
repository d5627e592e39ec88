/* The table and the picture of each label's scores, from eval_results.json. */
#include "testing.h"

#include "markup.h"

#include "report/label_scores.h"

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = testing_directory();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    Status status = file_remove_tree(dir);
    free(dir);
    return status != OK;
}

/* Labels l0 …: l<i> has i rows, of which those at odd numbers are taken for the next label. */
static void write_results(int n, bool matrix)
{
    Buf json = {0};
    buf_puts(&json, "{\"eval_loss\": 1, \"eval_labels\": {\"dev\": {\"labels\": [");
    for (int i = 0; i < n; i++)
        buf_printf(&json,
                   "%s{\"label\": \"<l%d>\", \"precision\": 0.5, \"recall\": %d, \"f1\": %.2f, \"support\": %d, "
                   "\"predicted\": 1}",
                   i ? ", " : "", i, i % 2 == 0, i % 2 ? 0 : 0.25, i);
    buf_puts(&json, "], \"macro\": {\"precision\": 0.5, \"recall\": 0.75, \"f1\": 0.125}, \"weighted\": {}");
    for (int i = 0; matrix && i < n; i++) {
        buf_puts(&json, i ? ", [" : ", \"confusion_matrix\": [[");
        for (int k = 0; k < n; k++) buf_printf(&json, "%s%d", k ? ", " : "", k == (i + i % 2) % n ? i : 0);
        buf_puts(&json, i + 1 < n ? "]" : "]]");
    }
    buf_puts(&json, "}}}\n");
    testing_write(dir, "eval_results.json", json.data);
    buf_free(&json);
}

static char *write_text(void)
{
    Buf text = {0};
    char *picture = file_join(dir, "confusion_dev.svg");
    assert_ok(file_remove_tree(picture));
    free(picture);
    buf_puts(&text, "");
    assert_ok(label_scores_write(dir, &text));
    return text.data;
}

/* Elements of that name in the picture; −1: there is none. */
static int drawn(const char *element)
{
    Buf svg = {0};
    Markup m = {0};
    char *path = file_join(dir, "confusion_dev.svg");
    int n = -1;
    if (file_exists(path)) {
        assert_ok(file_read(path, 1 << 24, &svg));
        markup_expect(svg.data, &m);
        n = markup_count(&m, element);
        markup_free(&m);
    }
    buf_free(&svg);
    free(path);
    return n;
}

static void few_labels(void **state)
{
    (void)state;
    write_results(3, true);
    char *text = write_text();
    assert_string_equal(text, "\ndev, scores of each label\n"
                              "label          precision  recall      F1  rows  as '<l0>'  as '<l1>'  as '<l2>'\n"
                              "'<l0>'            0.5000  1.0000  0.2500     0          0          0          0\n"
                              "'<l1>'            0.5000  0.0000  0.0000     1          0          0          1\n"
                              "'<l2>'            0.5000  1.0000  0.2500     2          0          0          2\n"
                              "macro mean        0.5000  0.7500  0.1250\n"
                              "weighted mean          –       –       –\n");
    assert_int_equal(drawn("rect"), 2 + 2); /* paper and border; a cell for each count above 0 */
    assert_int_equal(drawn("text"), 3 + 2 * 3 + 2);
    free(text);
    Buf html = {0};
    Markup m = {0};
    buf_puts(&html, "<div>");
    label_scores_html(dir, &html);
    buf_puts(&html, "</div>");
    markup_expect(html.data, &m);
    assert_int_equal(markup_count(&m, "tr"), 1 + 3 + 2);
    assert_int_equal(markup_count(&m, "svg"), 1);
    markup_free(&m);
    buf_free(&html);
}

/* With more than 20 labels the table has the worst, and among equals those with the most rows. */
static void many_labels(void **state)
{
    (void)state;
    write_results(40, true);
    char *text = write_text();
    assert_true(strstr(text, "dev, scores of each label; the 10 worst of 40 by F1 (eval_results.json has all)\n"
                             "label          precision  recall      F1  rows\n"
                             "'<l39>'           0.5000  0.0000  0.0000    39\n"
                             "'<l37>'           0.5000"));
    assert_true(strstr(text, "'<l21>'") && !strstr(text, "'<l19>'") && !strstr(text, "'<l38>'"));
    assert_int_equal(drawn("rect"), 2 + 39);
    free(text);
    write_results(101, true);
    free(write_text());
    assert_int_equal(drawn("rect"), -1);
}

/* Several labels have no matrix; a damaged file breaks nothing. */
static void without_a_matrix(void **state)
{
    static const char *const others[] = {
        "{}",
        "[]",
        "{\"eval_labels\": 3}",
        "{\"eval_labels\": {\"dev\": []}}",
        "{\"eval_lab",
        "{\"eval_labels\": {\"dev\": {\"labels\": [3, {\"label\": 4}], \"confusion_matrix\": [[1], 5]}}}"};
    (void)state;
    write_results(3, false);
    char *text = write_text();
    assert_true(strstr(text, "F1  rows\n'<l0>'"));
    assert_int_equal(drawn("rect"), -1);
    free(text);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        Buf html = {0};
        testing_write(dir, "eval_results.json", others[i]);
        free(write_text());
        label_scores_html(dir, &html);
        buf_free(&html);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_labels),
        cmocka_unit_test(many_labels),
        cmocka_unit_test(without_a_matrix),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
