/* Each key of config.json is honoured, irrelevant or refused, as config_keys.tsv says: a folder with the key is
   compared with one without it. */
#include "testing.h"

#include "state/models/import.h"

#define TABLE "tests/state/config_keys.tsv"

/* A member of the config.json that all folders have. */
static const char *const base[][2] = {{"vocab_size", "30"},           {"hidden_size", "8"},
                                      {"num_hidden_layers", "1"},     {"num_attention_heads", "2"},
                                      {"intermediate_size", "16"},    {"max_position_embeddings", "20"},
                                      {"hidden_dropout_prob", "0.1"}, {"model_type", "\"bert\""}};

static void write_config(const char *directory, const char *key, const char *value)
{
    Buf text = {0};
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if (strcmp(base[i][0], key) != 0)
            buf_printf(&text, "%s\"%s\": %s", text.len ? ", " : "{", base[i][0], base[i][1]);
    if (*key) buf_printf(&text, ", \"%s\": %s", key, value);
    buf_puts(&text, "}\n");
    testing_write(directory, "config.json", text.data);
    buf_free(&text);
}

/* All that is read of a config.json, as text. */
static Status understand(const char *directory, Buf *out)
{
    ModelConfig c = {0};
    char **labels = NULL;
    int n = 0;
    HeadKind kind;
    ModelUse use = {0};
    Status status = OK;
    TRY_DONE(model_config_read(directory, &c));
    buf_printf(out, "%d %d %d %d %d %d %d %g %g %g %g %g %d %d %d\n", c.vocab_size, c.hidden, c.layers, c.heads, c.ffn,
               c.positions, c.types, (double)c.norm_eps, (double)c.hidden_dropout, (double)c.attention_dropout,
               (double)c.classifier_dropout, (double)c.initializer_range, c.gelu, c.pad_token_id, c.untied);
    TRY_DONE(import_problem(directory, NULL, &kind));
    TRY_DONE(import_labels(directory, &labels, &n));
    TRY_DONE(import_use(directory, &use));
    buf_printf(out, "%d:", kind);
    for (int i = 0; i < n; i++) buf_printf(out, " %s", labels[i]);
    buf_printf(out, "\n%lld %lld %s %s\n", (long long)use.doc_stride, (long long)use.max_query_length,
               use.text_columns ? use.text_columns : "", use.label_column ? use.label_column : "");
done:
    mem_free_texts(labels, n);
    import_use_free(&use);
    model_config_free(&c);
    return status;
}

static void check_row(const char *directory, const Buf *without, char *row)
{
    char *file = strsep(&row, "\t"), *key = strsep(&row, "\t"), *value = strsep(&row, "\t"), *kind = strsep(&row, "\t");
    Buf with = {0};
    assert_non_null(kind);
    assert_string_equal(file, "config.json");
    assert_true(row && *row); /* the reason */
    write_config(directory, key, value);
    Status status = understand(directory, &with);
    bool same = with.data && strcmp(with.data, without->data) == 0, refused = strcmp(kind, "refused") == 0;
    if ((status != OK) != refused || (refused && (!strstr(status_message(), key) || !strstr(status_message(), file))))
        fail_msg("%s %s: expected %s, got %s", key, value, kind, status == OK ? with.data : status_message());
    if (!refused && same != (strcmp(kind, "irrelevant") == 0))
        fail_msg("%s %s: expected %s, got %s", key, value, kind, with.data);
    buf_free(&with);
}

static void test_every_key(void **state)
{
    char *directory = *state;
    Buf table = {0}, without = {0};
    int rows = 0;
    assert_ok(file_read(TABLE, 1 << 20, &table));
    write_config(directory, "", "");
    assert_ok(understand(directory, &without));
    char *at = table.data;
    for (char *line = strsep(&at, "\n"); line && *line; line = strsep(&at, "\n"), rows++)
        if (rows > 1) check_row(directory, &without, line); /* a comment and the header come first */
    assert_true(rows > 150);
    BUF_FREE(&table, &without);
}

/* What two keys say together. */
static void test_labels_of_several_keys(void **state)
{
    char *directory = *state;
    static const struct {
        const char *members, *expected; /* labels with blanks between, or a part of the message */
        bool refused;
    } cases[] = {
        {"\"num_labels\": 2, \"id2label\": {\"0\": \"a\", \"1\": \"b\"}", "a b", false},
        {"\"num_labels\": 3, \"id2label\": {\"0\": \"a\", \"1\": \"b\"}", "'num_labels' is 3, and 'id2label' has 2",
         true},
        {"\"num_labels\": 3, \"label2id\": {\"a\": 0, \"b\": 1}", "'num_labels' is 3, and 'label2id' has 2", true},
        {"\"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"label2id\": {\"LABEL_0\": 0, \"LABEL_1\": 1}", "a b", false},
        {"\"num_labels\": 1", "LABEL_0", false},
        {"\"architectures\": [\"BertModel\"]", "LABEL_0 LABEL_1", false},
        {"\"num_labels\": 0", "", false},
        {"\"id2label\": {\"0\": 1.0, \"1\": -2.5}", "1.0 -2.5", false},
        {"\"id2label\": {\"0\": true, \"1\": 7}", "true 7", false},
        {"\"id2label\": {\"0\": 9223372036854775808, \"1\": 7}", "9223372036854775808 7", false},
        {"\"id2label\": {\"10\": \"k\", \"9\": \"j\", \"8\": \"i\", \"7\": \"h\", \"6\": \"g\", \"5\": \"f\", \"4\": "
         "\"e\", \"3\": \"d\", \"2\": \"c\", \"1\": \"b\", \"0\": \"a\"}",
         "a b c d e f g h i j k", false},
        {"\"problem_type\": \"regression\", \"num_labels\": 1", "LABEL_0", false},
        {"\"problem_type\": \"regression\", \"num_labels\": 3", "regression, with 3 labels", true},
        {"\"problem_type\": \"single_label_classification\", \"num_labels\": 1", "with one label", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf got = {0};
        char **labels = NULL, *text = mem_printf("{%s}", cases[i].members);
        int n = 0;
        HeadKind kind;
        testing_write(directory, "config.json", text);
        Status status = import_problem(directory, NULL, &kind);
        if (status == OK) status = import_labels(directory, &labels, &n);
        for (int k = 0; k < n; k++) buf_printf(&got, "%s%s", k ? " " : "", labels[k]);
        if (cases[i].refused) {
            assert_status(status, E_FORMAT);
            assert_message(cases[i].expected);
        } else {
            assert_ok(status);
            assert_string_equal(got.data ? got.data : "", cases[i].expected);
        }
        mem_free_texts(labels, n);
        buf_free(&got);
        free(text);
    }
}

static void test_a_tied_decoder_is_needed_for_pretraining(void **state)
{
    ModelConfig c;
    Model m;
    write_config(*state, "tie_word_embeddings", "false");
    for (int pretraining = 0; pretraining < 2; pretraining++) {
        assert_ok(model_config_read(*state, &c));
        Head head = {pretraining ? HEAD_PRETRAINING : HEAD_CLASSIFIER, 2};
        assert_int_equal(model_init(&m, c, head) == OK, !pretraining);
        model_free(&m);
    }
    assert_message("'tie_word_embeddings' is false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_labels_of_several_keys, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_tied_decoder_is_needed_for_pretraining, testing_set_up,
                                        testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
