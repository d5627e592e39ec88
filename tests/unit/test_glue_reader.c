/* GLUE's TSV files: every quirk, every error with its place, and the real files if shared data exists. */
#include "testing.h"

#include "tasks/glue/glue.h"

typedef struct {
    GlueExamples x;
    const GlueTask *task;
    const GlueSplit *split;
} Read;

static Status parse_bytes(Read *r, const char *task, const char *split, const char *text, size_t size)
{
    assert_ok(glue_task_find(task, &r->task));
    assert_ok(glue_split_find(r->task, split, &r->split));
    Status status = glue_parse(&r->x, "dir/file.tsv", text, size, r->task, r->split);
    if (status != OK) {
        assert_null(r->x.examples);
        assert_int_equal(r->x.count, 0);
    }
    return status;
}

static Status parse(Read *r, const char *task, const char *split, const char *text)
{
    return parse_bytes(r, task, split, text, strlen(text));
}

static void assert_span(const char *p, size_t len, const char *expected)
{
    if (len != strlen(expected) || memcmp(p, expected, len) != 0)
        fail_msg("expected '%s', found '%.*s'", expected, (int)len, p);
}

static void assert_refused(const char *task, const char *split, const char *text, const char *message)
{
    Read r;
    assert_status(parse(&r, task, split, text), E_FORMAT);
    assert_message(message);
    assert_message("dir/file.tsv");
}

/* ---- valid files ---- */

static void columns_by_header(void **state)
{
    (void)state;
    Read r;
    assert_ok(
        parse(&r, "rte", "dev", "label\tsentence2\tindex\tsentence1\nnot_entailment\tb b\t7\ta\nentailment\t\t9\tc\n"));
    assert_int_equal(r.x.count, 2);
    assert_true(r.x.labelled);
    assert_span(r.x.examples[0].a.p, r.x.examples[0].a.len, "a");
    assert_span(r.x.examples[0].b.p, r.x.examples[0].b.len, "b b");
    assert_int_equal(r.x.examples[0].label, 1);
    assert_int_equal(r.x.examples[0].line, 2);
    assert_int_equal(r.x.examples[0].index, 0); /* the index column counts in test files only */
    assert_int_equal(r.x.examples[1].index, 1);
    assert_int_equal(r.x.examples[1].label, 0);
    assert_non_null(r.x.examples[1].b.p);
    assert_int_equal(r.x.examples[1].b.len, 0);
    glue_examples_free(&r.x);
    glue_examples_free(&r.x);
}

static void cola_has_no_header(void **state)
{
    (void)state;
    Read r;
    assert_ok(parse(&r, "cola", "train", "gj04\t1\t\tIt sank.\ngj04\t0\t*\tSank it.\n"));
    assert_int_equal(r.x.count, 2);
    assert_span(r.x.examples[1].a.p, r.x.examples[1].a.len, "Sank it.");
    assert_null(r.x.examples[1].b.p);
    assert_int_equal(r.x.examples[0].label, 1);
    assert_int_equal(r.x.examples[1].line, 2);
    glue_examples_free(&r.x);

    assert_ok(parse(&r, "cola", "test", "index\tsentence\n12\tIt sank.\n"));
    assert_false(r.x.labelled);
    assert_int_equal(r.x.examples[0].index, 12);
    assert_int_equal(r.x.examples[0].label, -1);
    glue_examples_free(&r.x);
}

static void byte_order_mark_crlf_and_the_end_of_the_file(void **state)
{
    (void)state;
    static const char *const files[] = {
        "\xef\xbb\xbfsentence\tlabel\none\t1\ntwo\t0\n",
        "sentence\tlabel\r\none\t1\r\ntwo\t0\r\n",
        "sentence\tlabel\none\t1\ntwo\t0",
        "\xef\xbb\xbfsentence\tlabel\r\none\t1\r\ntwo\t0",
        "sentence\tlabel\none\t1\ntwo\t0\n\n",
        "sentence\tlabel\r\none\t1\r\ntwo\t0\r\n\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Read r;
        assert_ok(parse(&r, "sst-2", "dev", files[i]));
        assert_int_equal(r.x.count, 2);
        assert_span(r.x.examples[0].a.p, r.x.examples[0].a.len, "one");
        assert_span(r.x.examples[1].a.p, r.x.examples[1].a.len, "two");
        assert_int_equal(r.x.examples[0].label, 1);
        assert_int_equal(r.x.examples[1].label, 0);
        glue_examples_free(&r.x);
    }
}

static void quotes_are_text(void **state)
{
    (void)state;
    Read r;
    assert_ok(
        parse(&r, "mrpc", "train",
              "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\t\"open\tso \"\" it, goes\n0\t3\t4\t\"\t'\n"));
    assert_int_equal(r.x.count, 2);
    assert_span(r.x.examples[0].a.p, r.x.examples[0].a.len, "\"open");
    assert_span(r.x.examples[0].b.p, r.x.examples[0].b.len, "so \"\" it, goes");
    assert_span(r.x.examples[1].a.p, r.x.examples[1].a.len, "\"");
    glue_examples_free(&r.x);
}

static void only_line_feeds_end_a_row(void **state)
{
    (void)state;
    Read r; /* other readers break lines at U+2028, U+0085, VT, FF and a lone CR; a NUL is an ordinary byte */
    const char text[] = "sentence\tlabel\na\xe2\x80\xa8"
                        "b\xc2\x85"
                        "c\x0b"
                        "d\x0c"
                        "e\rf\0g\t1\n";
    assert_ok(parse_bytes(&r, "sst-2", "dev", text, sizeof text - 1));
    assert_int_equal(r.x.count, 1);
    assert_int_equal(r.x.examples[0].a.len, 16);
    assert_memory_equal(r.x.examples[0].a.p + 12, "\rf\0g", 4);
    glue_examples_free(&r.x);
}

static void mnli_in_all_its_layouts(void **state)
{
    (void)state;
    static const char *const files[] = {
        /* GLUE's train, GLUE's dev, the corpus' own order, and the required columns alone */
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_"
        "parse\t"
        "sentence1\tsentence2\tlabel1\tgold_label\n0\t1\t1n\tg\tn/a\tn/a\tn/a\tn/a\ta\tb\tneutral\tneutral\n",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_"
        "parse\t"
        "sentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        "0\t1\t1n\tg\tn/a\tn/a\tn/a\tn/a\ta\tb\tentailment\tneutral\tneutral\tneutral\tentailment\tneutral\n",
        "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
        "sentence2\tpromptID\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\n"
        "neutral\tn/a\tn/a\tn/a\tn/a\ta\tb\t1\t1n\tg\tneutral\t\t\t\t\n",
        "sentence1\tsentence2\tgold_label\na\tb\tneutral\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Read r;
        assert_ok(parse(&r, "mnli", "dev_mismatched", files[i]));
        assert_int_equal(r.x.count, 1);
        assert_span(r.x.examples[0].a.p, r.x.examples[0].a.len, "a");
        assert_span(r.x.examples[0].b.p, r.x.examples[0].b.len, "b");
        assert_int_equal(r.x.examples[0].label, 1);
        glue_examples_free(&r.x);
    }
}

static void rows_that_are_left_out(void **state)
{
    (void)state;
    Read r;
    log_set_level(LOG_ERROR);
    assert_ok(parse(&r, "mnli", "train",
                    "sentence1\tsentence2\tgold_label\na\tb\t-\nc\td\tentailment\ne\tf\t-\ng\th\tcontradiction\n"));
    assert_int_equal(r.x.count, 2);
    assert_int_equal(r.x.skipped_unlabelled, 2);
    assert_int_equal(r.x.examples[0].index, 1);
    assert_int_equal(r.x.examples[1].line, 5);
    assert_int_equal(r.x.examples[1].index, 3);
    glue_examples_free(&r.x);
    assert_refused("mnli", "train", "sentence1\tsentence2\tgold_label\na\tb\t-\n", "only rows that are left out");
    assert_refused("rte", "train", "sentence1\tsentence2\tlabel\na\tb\t-\n", "file.tsv:2: label '-' is unknown");

    const char *qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tbroken\n\n4\t5\t6\ta\tb\t1\n";
    assert_ok(parse(&r, "qqp", "train", qqp));
    assert_int_equal(r.x.count, 1);
    assert_int_equal(r.x.skipped_short, 2);
    assert_int_equal(r.x.examples[0].line, 4);
    glue_examples_free(&r.x);
    assert_refused("qqp", "dev", "question1\tquestion2\tis_duplicate\na\tb\tc\t1\n", "expected 3 columns, found 4");
    /* In a test file every row must have its prediction. */
    assert_refused("qqp", "test", "id\tquestion1\tquestion2\n0\ta\tb\n1\ta\n",
                   "file.tsv:3: expected 3 columns, found 2");
    log_set_level(LOG_INFO);
}

static void scores(void **state)
{
    (void)state;
    Read r;
    assert_ok(parse(&r, "sts-b", "dev", "sentence1\tsentence2\tscore\na\tb\t5.000\nc\td\t0\ne\tf\t2.75\ng\th\t1e0\n"));
    assert_int_equal(r.x.count, 4);
    assert_true(r.x.labelled);
    assert_true(r.x.examples[0].score == 5 && r.x.examples[1].score == 0);
    assert_true(r.x.examples[2].score == 2.75f && r.x.examples[3].score == 1);
    assert_int_equal(r.x.examples[2].label, -1);
    glue_examples_free(&r.x);
    static const char *const bad[] = {
        "",      "nan",        "inf",
        "0x1p1", "1,5",        "five",
        "1 .5",  "--1",        "1e99",
        "e",     ".",          "1.5.2",
        "+",     "5.001",      "-0.5",
        "1e-",   "entailment", "0000000000000000000000000000000000000000000000000000000000000000000000000001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = mem_printf("sentence1\tsentence2\tscore\na\tb\t1\na\tb\t%s\nc\td\t1\n", bad[i]);
        assert_refused("sts-b", "train", text, "file.tsv:3: expected a");
        free(text);
    }
}

/* ---- errors ---- */

static void wrong_column_counts(void **state)
{
    (void)state;
    assert_refused("rte", "dev", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\ta\tentailment\n",
                   "dir/file.tsv:3: expected 4 columns, found 3; look for a line break");
    assert_refused("rte", "dev", "index\tsentence1\tsentence2\tlabel\n0\ta\t\tb\tentailment\n",
                   "dir/file.tsv:2: expected 4 columns, found 5; look for a tab");
    assert_refused("rte", "dev", "sentence1\tsentence2\tlabel\na\tb\tentailment\n\na\tb\tentailment\n",
                   "dir/file.tsv:3: expected 3 columns, found 1");
    assert_refused("cola", "train", "sentence\tlabel\nIt sank.\t1\n", "dir/file.tsv:1: expected 4 columns, found 2");
}

static void unknown_labels(void **state)
{
    (void)state;
    assert_refused("mnli", "train", "sentence1\tsentence2\tgold_label\na\tb\tNeutral\n",
                   "dir/file.tsv:2: label 'Neutral' is unknown; expected 'entailment', 'neutral', 'contradiction'");
    assert_refused("sst-2", "train", "sentence\tlabel\na\t\n", "label '' is unknown; expected '0', '1'");
    assert_refused("sst-2", "train", "sentence\tlabel\na\t 1x \n", "label ' 1x ' is unknown");
    assert_refused("sst-2", "train", "sentence\tlabel\na\t\x1b[2J\n", "label '?[2J' is unknown");
    assert_refused("sst-2", "train", "sentence\tlabel\na\tééééééééééééééééééééééééééé\n", "'éééééééééééééééééééé…'");
}

static void headers(void **state)
{
    (void)state;
    assert_refused("mnli", "dev_matched", "index\tsentence1\tsentence2\tlabel\n",
                   "dir/file.tsv:1: expected a column named 'gold_label' in the header, found 'index', 'sentence1', "
                   "'sentence2', 'label'");
    assert_refused("sst-2", "dev", "a film\t1\n",
                   "expected a column named 'sentence' in the header, found 'a film', '1'");
    assert_refused("sst-2", "dev", "sentence\tlabel\tsentence\na\t1\tb\n",
                   "names column 'sentence' twice (columns 1 and 3)");
    assert_refused("sst-2", "dev", "sentence\tlabel\n", "expected at least one row with a label, found none");
    assert_refused("sst-2", "test", "index\tsentence", "expected at least one row, found none");
    assert_refused("sst-2", "dev", "", "the file is empty; expected a header");
    assert_refused("sst-2", "dev", "\n\r\n", "the file is empty");
    assert_refused("sst-2", "dev", "\xef\xbb\xbf", "the file is empty");
    assert_refused("cola", "dev", "", "the file is empty; expected rows");
    Buf wide = {0};
    for (int i = 0; i < 3000; i++) buf_puts(&wide, "column\t");
    assert_refused("sst-2", "dev", wide.data, "'column', …");
    buf_free(&wide);
}

static void bytes_that_are_not_utf8(void **state)
{
    (void)state;
    assert_refused("sst-2", "dev", "sentence\tlabel\nfine\t1\ncaf\xe9\t1\n",
                   "dir/file.tsv:3: expected UTF-8, found byte 0xe9 at offset 25 of the file (byte 4 of the line)");
    assert_refused("sst-2", "dev", "\xff\xfes", "dir/file.tsv: expected UTF-8, found UTF-16;");
    assert_refused("sst-2", "dev", "sentence\tlabel\nfine\t1\xc3", "file.tsv:2: expected UTF-8, found byte 0xc3");
    assert_refused("sst-2", "dev", "sentence\tlabel\n\xed\xa0\x80\t1", "file.tsv:2: expected UTF-8, found byte 0xed");
}

static void indices(void **state)
{
    (void)state;
    Read r;
    assert_ok(parse(&r, "ax", "test", "index\tsentence1\tsentence2\n1103\ta\tb\n"));
    assert_int_equal(r.x.examples[0].index, 1103);
    glue_examples_free(&r.x);
    assert_ok(parse(&r, "ax", "test", "sentence1\tsentence2\na\tb\nc\td\n"));
    assert_int_equal(r.x.examples[1].index, 1);
    glue_examples_free(&r.x);
    static const char *const bad[] = {"", "-1", "1.0", "n/a", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = mem_printf("index\tsentence1\tsentence2\n%s\ta\tb\n", bad[i]);
        assert_refused("ax", "test", text, "dir/file.tsv:2: expected a number as index");
        free(text);
    }
}

static void a_user_s_own_files(void **state)
{
    (void)state;
    GlueCustom c;
    GlueExamples x;
    assert_ok(glue_custom_init(&c, "2", "0", "bad,good", false));
    const GlueSplit *train = glue_split_at(&c.task, GLUE_TRAIN, 0), *test = glue_split_at(&c.task, GLUE_TEST, 0);
    const char *rows = "good\tx\tone\nbad\ty\ttwo\n";
    assert_ok(glue_parse(&x, "f", rows, strlen(rows), &c.task, train));
    assert_int_equal(x.count, 2);
    assert_int_equal(x.examples[0].label, 1);
    assert_span(x.examples[1].a.p, x.examples[1].a.len, "two");
    glue_examples_free(&x);
    assert_ok(glue_parse(&x, "f", rows, strlen(rows), &c.task, test));
    assert_int_equal(x.examples[0].label, -1);
    glue_examples_free(&x);
    assert_status(glue_parse(&x, "f", "a\tb\n", 4, &c.task, train), E_FORMAT);
    assert_message("f:1: expected a column at position 2 (counted from 0), found 2 columns");
    assert_status(glue_parse(&x, "f", "bad\tb\tc\nbad\tb\n", 14, &c.task, train), E_FORMAT);
    assert_message("f:2: expected 3 columns, found 2");
    glue_custom_free(&c);

    assert_ok(glue_custom_init(&c, "text", NULL, "regression", false));
    assert_status(glue_parse(&x, "f", "text\na\n", 7, &c.task, glue_split_at(&c.task, GLUE_DEV, 0)), E_USAGE);
    assert_message("--label-column");
    glue_custom_free(&c);
    assert_ok(glue_custom_init(&c, "text", "y", "regression", false));
    rows = "text\ty\na\t-1.5e3\n";
    assert_ok(glue_parse(&x, "f", rows, strlen(rows), &c.task, glue_split_at(&c.task, GLUE_DEV, 0)));
    assert_true(x.examples[0].score == -1500);
    glue_examples_free(&x);
    glue_custom_free(&c);
}

/* ---- files ---- */

static void where_files_are_looked_for(void **state)
{
    (void)state;
    char *dir = testing_directory(), *folder = file_join(dir, "MNLI"), *direct = file_join(dir, "dev_matched.tsv");
    const char *text = "sentence1\tsentence2\tgold_label\na\tb\tneutral\n";
    GlueExamples x;
    const GlueTask *mnli;
    assert_ok(glue_task_find("mnli", &mnli));
    const GlueSplit *dev = glue_split_at(mnli, GLUE_DEV, 0), *mismatched = glue_split_at(mnli, GLUE_DEV, 1);

    assert_status(glue_read(&x, dir, mnli, mismatched), E_IO);
    assert_message("task MNLI needs ");
    assert_message("/dev_mismatched.tsv for its split 'dev_mismatched'");
    assert_message("--data-dir");
    glue_examples_free(&x);

    assert_ok(file_write_durable(direct, text, strlen(text)));
    assert_ok(glue_read(&x, dir, mnli, dev));
    assert_string_equal(x.path, direct);
    assert_int_equal(x.count, 1);
    assert_span(x.examples[0].a.p, x.examples[0].a.len, "a");
    glue_examples_free(&x);

    assert_ok(file_make_directories(folder)); /* now the task's folder counts, and it is empty */
    assert_status(glue_read(&x, dir, mnli, dev), E_IO);
    assert_message("/MNLI/dev_matched.tsv");

    char *inside = file_join(folder, "dev_matched.tsv");
    assert_ok(file_write_durable(inside, "", 0));
    assert_status(glue_read(&x, dir, mnli, dev), E_FORMAT);
    assert_message("the file is empty");
    free(inside);
    assert_ok(file_remove_tree(dir));
    free(dir);
    free(folder);
    free(direct);
}

static void real_files(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *task, *split;
        size_t count, label1; /* of label 1, so that a shifted column shows */
    } files[] = {
        {"glue", "CoLA", "train", 8551, 6023},
        {"glue", "CoLA", "dev", 1043, 721},
        {"glue", "CoLA", "test", 1063, 0},
        {"glue", "SST-2", "train", 67349, 37569},
        {"glue", "SST-2", "dev", 872, 444},
        {"glue", "SST-2", "test", 1821, 0},
        {"glue", "MRPC", "train", 3668, 2474},
        {"glue", "MRPC", "dev", 408, 279},
        {"glue", "MRPC", "test", 1725, 0},
        {"glue", "STS-B", "train", 5749, 0},
        {"glue", "STS-B", "dev", 1500, 0},
        {"glue", "STS-B", "test", 1379, 0},
        {"glue", "RTE", "train", 2490, 1241},
        {"glue", "RTE", "dev", 277, 131},
        {"glue", "RTE", "test", 3000, 0},
        {"glue", "MNLI", "train", 9999, 3313},
        {"glue", "MNLI", "dev_matched", 9815, 3123},
        {"glue_tiny", "MNLI", "train", 3, 1},
        {"glue_tiny", "MNLI", "dev_matched", 2, 1},
        {"glue_tiny", "MNLI", "dev_mismatched", 2, 0},
        {"glue_tiny", "MNLI", "test_matched", 1, 0},
        {"glue_tiny", "MNLI", "test_mismatched", 1, 0},
    };
    const char *data = getenv("CAIRN_TEST_DATA");
    data = data && *data ? data : "../shared/data";
    if (!file_is_directory(data)) {
        print_message("skipped: no shared data at %s\n", data);
        skip();
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Read r;
        char *dir = file_join(data, files[i].folder);
        size_t ones = 0;
        assert_ok(glue_task_find(files[i].task, &r.task));
        assert_ok(glue_split_find(r.task, files[i].split, &r.split));
        assert_ok(glue_read(&r.x, dir, r.task, r.split));
        for (size_t k = 0; k < r.x.count; k++) ones += r.x.examples[k].label == 1;
        if (r.x.count != files[i].count || ones != files[i].label1)
            fail_msg("%s: expected %zu rows, %zu of label 1; found %zu and %zu", r.x.path, files[i].count,
                     files[i].label1, r.x.count, ones);
        assert_int_equal(r.x.skipped_short + r.x.skipped_unlabelled, 0);
        /* Rows are numbered from 0, in test files too. */
        assert_int_equal(r.x.examples[r.x.count - 1].index, r.x.count - 1);
        glue_examples_free(&r.x);
        free(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_by_header),
        cmocka_unit_test(cola_has_no_header),
        cmocka_unit_test(byte_order_mark_crlf_and_the_end_of_the_file),
        cmocka_unit_test(quotes_are_text),
        cmocka_unit_test(only_line_feeds_end_a_row),
        cmocka_unit_test(mnli_in_all_its_layouts),
        cmocka_unit_test(rows_that_are_left_out),
        cmocka_unit_test(scores),
        cmocka_unit_test(wrong_column_counts),
        cmocka_unit_test(unknown_labels),
        cmocka_unit_test(headers),
        cmocka_unit_test(bytes_that_are_not_utf8),
        cmocka_unit_test(indices),
        cmocka_unit_test(a_user_s_own_files),
        cmocka_unit_test(where_files_are_looked_for),
        cmocka_unit_test(real_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
