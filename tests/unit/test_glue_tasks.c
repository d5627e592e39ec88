/* The table of GLUE tasks, compared with the conventions of the leaderboard and Hugging Face; custom tasks; pairs. */
#include "testing.h"

#include "tasks/glue/run.h"

static const GlueTask *task_named(const char *name)
{
    const GlueTask *task = NULL;
    assert_ok(glue_task_find(name, &task));
    return task;
}

static void names_in_any_spelling(void **state)
{
    (void)state;
    static const char *const spellings[][2] = {
        {"cola", "CoLA"},   {"sst2", "SST-2"},  {"SST-2", "SST-2"}, {"mrpc", "MRPC"}, {"stsb", "STS-B"},
        {"sts-b", "STS-B"}, {"STS_B", "STS-B"}, {"qqp", "QQP"},     {"mnli", "MNLI"}, {"MnLi", "MNLI"},
        {"qnli", "QNLI"},   {"rte", "RTE"},     {"wnli", "WNLI"},   {"ax", "AX"}};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        assert_string_equal(task_named(spellings[i][0])->name, spellings[i][1]);

    const GlueTask *task;
    assert_status(glue_task_find("mnl", &task), E_USAGE);
    assert_null(task);
    assert_message("'mnl' is unknown; expected one of CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI AX or custom");
    assert_status(glue_task_find("", &task), E_USAGE);
    assert_status(glue_task_find("custom", &task), E_USAGE);
    assert_message("--text-columns");
    assert_true(glue_task_is_custom("Custom"));
    assert_false(glue_task_is_custom("MNLI"));
}

static void labels_are_numbered_as_hugging_face_does(void **state)
{
    (void)state;
    const GlueTask *mnli = task_named("mnli");
    assert_int_equal(glue_label_find(mnli, "entailment", 10), 0);
    assert_int_equal(glue_label_find(mnli, "neutral", 7), 1);
    assert_int_equal(glue_label_find(mnli, "contradiction", 13), 2);
    assert_int_equal(glue_label_find(mnli, "Neutral", 7), -1);
    assert_int_equal(glue_label_find(mnli, "neutra", 6), -1);
    assert_int_equal(glue_label_find(mnli, "", 0), -1);
    static const char *const two[] = {"RTE", "QNLI"}, *const binary[] = {"CoLA", "SST-2", "MRPC", "QQP", "WNLI"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(glue_label_find(task_named(two[i]), "entailment", 10), 0);
        assert_int_equal(glue_label_find(task_named(two[i]), "not_entailment", 14), 1);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(task_named(binary[i])->n_labels, 2);
        assert_int_equal(glue_label_find(task_named(binary[i]), "0", 1), 0);
        assert_int_equal(glue_label_find(task_named(binary[i]), "1", 1), 1);
    }
    assert_true(task_named("STS-B")->regression);
    assert_int_equal(task_named("STS-B")->n_labels, 1);
    assert_int_equal(glue_label_find(task_named("STS-B"), "1", 1), -1);
}

static void the_table_is_sound(void **state)
{
    (void)state;
    const GlueTask *t;
    assert_null(glue_task_at(10));
    for (int i = 0; (t = glue_task_at(i)); i++) {
        bool has_best = t->n_metrics == 0;
        for (int m = 0; m < t->n_metrics; m++) has_best |= t->metrics[m] == t->best;
        assert_true(has_best);
        assert_true(t->regression ? t->n_labels == 1 && !t->labels : t->n_labels >= 2 && t->labels);
        for (int k = 0; k < t->n_splits; k++) {
            const GlueSplit *s = &t->splits[k], *found;
            assert_ok(glue_split_find(t, s->name, &found));
            assert_ptr_equal(found, s);
            assert_non_null(s->layout->a);
            assert_true((s->kind == GLUE_TEST) == !s->layout->label);
            assert_true((s->kind == GLUE_TEST) == (s->submission != NULL));
        }
    }
    assert_string_equal(glue_metric_name(GLUE_MATTHEWS), "matthews_correlation");
    assert_int_equal(task_named("MNLI")->best, GLUE_ACCURACY);
    assert_int_equal(task_named("CoLA")->best, GLUE_MATTHEWS);
    assert_int_equal(task_named("MRPC")->best, GLUE_COMBINED);
    assert_int_equal(task_named("QQP")->best, GLUE_COMBINED);
    assert_int_equal(task_named("STS-B")->best, GLUE_COMBINED);
    assert_string_equal(task_named("AX")->model_task, "MNLI");
}

static void eleven_files_for_the_leaderboard(void **state)
{
    (void)state;
    static const char *const expected[] = {"CoLA.tsv",    "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv",
                                           "MNLI-mm.tsv", "QNLI.tsv",  "RTE.tsv",  "WNLI.tsv",  "AX.tsv"};
    size_t n = 0;
    for (int i = 0; glue_task_at(i); i++) {
        const GlueSplit *s;
        for (int k = 0; (s = glue_split_at(glue_task_at(i), GLUE_TEST, k)); k++) {
            assert_true(n < 11);
            assert_string_equal(s->submission, expected[n++]);
        }
    }
    assert_int_equal(n, 11);
}

static void splits(void **state)
{
    (void)state;
    const GlueTask *mnli = task_named("mnli");
    const GlueSplit *s;
    assert_string_equal(glue_split_at(mnli, GLUE_TRAIN, 0)->file, "train.tsv");
    assert_null(glue_split_at(mnli, GLUE_TRAIN, 1));
    assert_string_equal(glue_split_at(mnli, GLUE_DEV, 0)->name, "dev_matched");
    assert_string_equal(glue_split_at(mnli, GLUE_DEV, 1)->name, "dev_mismatched");
    assert_string_equal(glue_split_at(mnli, GLUE_DEV, 1)->suffix, "_mm");
    assert_null(glue_split_at(task_named("AX"), GLUE_DEV, 0));
    assert_string_equal(glue_split_at(task_named("AX"), GLUE_TEST, 0)->file, "diagnostic.tsv");
    assert_ok(glue_split_find(mnli, "dev-mismatched", &s));
    assert_string_equal(s->file, "dev_mismatched.tsv");
    assert_status(glue_split_find(mnli, "dev", &s), E_USAGE);
    assert_message("expected one of train, dev_matched, dev_mismatched, test_matched, test_mismatched");
}

static void custom_tasks(void **state)
{
    (void)state;
    GlueCustom c;
    assert_ok(glue_custom_init(&c, "question,answer", "good", "no,yes", false));
    assert_int_equal(c.task.n_labels, 2);
    assert_int_equal(glue_label_find(&c.task, "yes", 3), 1);
    assert_int_equal(c.task.best, GLUE_ACCURACY);
    assert_int_equal(c.task.n_metrics, 3);
    const GlueLayout *layout = glue_split_at(&c.task, GLUE_DEV, 0)->layout;
    assert_string_equal(layout->a, "question");
    assert_string_equal(layout->b, "answer");
    assert_string_equal(layout->label, "good");
    assert_int_equal(layout->columns, 0);
    assert_null(glue_split_at(&c.task, GLUE_TEST, 0)->layout->label);
    glue_custom_free(&c);
    glue_custom_free(&c);

    assert_ok(glue_custom_init(&c, "3", "1", "a,b,c", false));
    assert_int_equal(glue_split_at(&c.task, GLUE_TRAIN, 0)->layout->columns, GLUE_COLUMNS_AS_FIRST);
    assert_int_equal(c.task.n_metrics, 1);
    glue_custom_free(&c);

    assert_ok(glue_custom_init(&c, "text", NULL, "regression", false));
    assert_true(c.task.regression);
    assert_int_equal(c.task.best, GLUE_COMBINED);
    glue_custom_free(&c);
}

static void bad_custom_flags(void **state)
{
    (void)state;
    static const struct {
        const char *texts, *label, *labels, *message;
    } cases[] = {
        {NULL, "l", "a,b", "needs --text-columns"},
        {"t,u,v", "l", "a,b", "--text-columns 't,u,v': expected one column, or two"},
        {"t,", "l", "a,b", "--text-columns 't,'"},
        {",", "l", "a,b", "--text-columns ','"},
        {"t", "a\tb", "a,b", "--label-column 'a"},
        {"t", "l", "a", "two or more"},
        {"t", "l", "a,,b", "two or more"},
        {"t", "l", "a,b,a", "'a' occurs twice"},
        {"t", "l", "a,b\tc", "two or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GlueCustom c;
        assert_status(glue_custom_init(&c, cases[i].texts, cases[i].label, cases[i].labels, false), E_USAGE);
        assert_message(cases[i].message);
        assert_null(c.text_columns);
    }
}

/* Names in another order give the permutation; unknown, missing or repeated names give none. */
static void test_label_order(void **state)
{
    (void)state;
    const GlueTask *mnli;
    int from[3];
    assert_ok(glue_task_find("MNLI", &mnli)); /* entailment, neutral, contradiction */
    char *google[] = {(char *)"contradiction", (char *)"ENTAILMENT", (char *)"neutral"};
    assert_true(glue_label_order(mnli, google, 3, from));
    assert_int_equal(from[0], 1);
    assert_int_equal(from[1], 2);
    assert_int_equal(from[2], 0);
    char *generic[] = {(char *)"LABEL_0", (char *)"LABEL_1", (char *)"LABEL_2"};
    assert_false(glue_label_order(mnli, generic, 3, from));
    assert_false(glue_label_order(mnli, google, 2, from));
    char *twice[] = {(char *)"neutral", (char *)"neutral", (char *)"entailment"};
    assert_false(glue_label_order(mnli, twice, 3, from));
}

/* An empty second text is none; of two long texts the longer one keeps the token more of an odd room. */
static void pairs_of_texts(void **state)
{
    (void)state;
    enum { MOST = 14, LONGER = 20000, SHORTER = 15000 };
    static const char lines[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n";
    Buf a = {0}, b = {0};
    Vocab *v;
    assert_ok(vocab_parse("made", lines, sizeof lines - 1, NULL, &v));
    Tokenizer *t = tokenizer_new(v, tokenizer_options(true));
    for (int i = 0; i < LONGER; i++) buf_puts(&a, "a ");
    for (int i = 0; i < SHORTER; i++) buf_puts(&b, "b ");
    const struct {
        RecordText a, b;
        int32_t ids[MOST + 1]; /* up to a 0 */
    } cases[] = {
        {{"a", 1}, {NULL, 0}, {2, 5, 3}},
        {{"a", 1}, {"", 0}, {2, 5, 3}},
        {{"a", 1}, {" ", 1}, {2, 5, 3, 3}},
        {{"", 0}, {"b", 1}, {2, 3, 6, 3}},
        {{"", 0}, {"", 0}, {2, 3}},
        {{a.data, a.len}, {b.data, b.len}, {2, 5, 5, 5, 5, 5, 5, 3, 6, 6, 6, 6, 6, 3}},
        {{b.data, b.len}, {a.data, a.len}, {2, 6, 6, 6, 6, 6, 3, 5, 5, 5, 5, 5, 5, 3}},
        {{a.data, a.len}, {a.data, a.len}, {2, 5, 5, 5, 5, 5, 3, 5, 5, 5, 5, 5, 5, 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Examples e = {.offset = mem_array(2, sizeof *e.offset)};
        size_t cap = 0;
        examples_append(&e, &cap, t, cases[i].a, cases[i].b, MOST);
        for (int64_t k = 0; k < e.offset[1]; k++) assert_int_equal(e.ids[k], cases[i].ids[k]);
        assert_int_equal(cases[i].ids[e.offset[1]], 0);
        examples_free(&e);
    }
    tokenizer_free(t);
    vocab_free(v);
    BUF_FREE(&a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_label_order),
        cmocka_unit_test(names_in_any_spelling),
        cmocka_unit_test(labels_are_numbered_as_hugging_face_does),
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(eleven_files_for_the_leaderboard),
        cmocka_unit_test(splits),
        cmocka_unit_test(custom_tasks),
        cmocka_unit_test(bad_custom_flags),
        cmocka_unit_test(pairs_of_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
