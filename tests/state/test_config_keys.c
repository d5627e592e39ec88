/* Each key of config.json, and of the files of sentence-transformers, is honoured, irrelevant or refused, as
   config_keys.tsv says: a folder with the key is compared with one without it. */
#include "testing.h"

#include "state/models/import.h"

#define TABLE "tests/state/config_keys.tsv"

/* Members of the config.json that all folders of a kind have. */
static const char *const bases[N_MODEL_KINDS][8][2] = {{{"vocab_size", "30"},
                                                        {"hidden_size", "8"},
                                                        {"num_hidden_layers", "1"},
                                                        {"num_attention_heads", "2"},
                                                        {"intermediate_size", "16"},
                                                        {"max_position_embeddings", "20"},
                                                        {"hidden_dropout_prob", "0.1"},
                                                        {"model_type", "\"bert\""}},
                                                       {{"vocab_size", "30"},
                                                        {"dim", "8"},
                                                        {"n_layers", "1"},
                                                        {"n_heads", "2"},
                                                        {"hidden_dim", "16"},
                                                        {"max_position_embeddings", "20"},
                                                        {"dropout", "0.1"},
                                                        {"model_type", "\"distilbert\""}}};

/* The files of sentence-transformers, which all folders have. */
static const char *const others[][2] = {
    {"1_Pooling/config.json", ""},
    {"2_Normalize/config.json", ""},
    {"sentence_bert_config.json", ""},
    {"config_sentence_transformers.json", "\"prompts\": {\"query\": \"q: \", \"document\": \"\"}"}};

static const char modules[] = "[{\"type\": \"sentence_transformers.models.Transformer\", \"path\": \"\"}, "
                              "{\"type\": \"sentence_transformers.models.Pooling\", \"path\": \"1_Pooling\"}, "
                              "{\"type\": \"sentence_transformers.models.Normalize\", \"path\": \"2_Normalize\"}]";

/* Without the wait for the disk of testing_write. */
static void write_file(const char *directory, const char *name, const char *text)
{
    char *path = file_join(directory, name), *folder = file_directory(path);
    assert_ok(file_make_directories(folder));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    MEM_FREE(path, folder);
}

static void write_with(const char *directory, const char *file, const char *members, const char *key, const char *value)
{
    bool replaced = *key && strstr(members, SHORT_TEXT("\"%s\"", key));
    const char *most = replaced ? "" : members;
    char *text =
        mem_printf("{%s%s%s}\n", most, *most && *key ? ", " : "", *key ? SHORT_TEXT("\"%s\": %s", key, value) : "");
    write_file(directory, file, text);
    free(text);
}

static void write_config(const char *directory, ModelKind kind, const char *key, const char *value)
{
    Buf text = {0};
    for (size_t i = 0; i < 8; i++)
        if (strcmp(bases[kind][i][0], key) != 0)
            buf_printf(&text, "%s\"%s\": %s", text.len ? ", " : "", bases[kind][i][0], bases[kind][i][1]);
    write_with(directory, "config.json", text.data, key, value);
    buf_free(&text);
}

/* A folder with the key in that file. */
static void write_folder(const char *directory, ModelKind kind, const char *file, const char *key, const char *value)
{
    write_config(directory, kind, strcmp(file, "config.json") == 0 ? key : "", value);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        write_with(directory, others[i][0], others[i][1], strcmp(file, others[i][0]) == 0 ? key : "", value);
}

/* All that is read of these files, as text. */
static Status understand(const char *directory, Buf *out)
{
    ModelConfig c = {0};
    char **labels = NULL;
    int n = 0;
    HeadKind kind;
    ModelUse use = {0};
    Embedding e = {0};
    Status status = OK;
    TRY_DONE(model_config_read(directory, &c));
    buf_printf(out, "%d: %d %d %d %d %d %d %d %g %g %g %g %g %g %d %d %d\n", c.kind, c.vocab_size, c.hidden, c.layers,
               c.heads, c.ffn, c.positions, c.types, (double)c.norm_eps, (double)c.hidden_dropout,
               (double)c.attention_dropout, (double)c.classifier_dropout, (double)c.span_dropout,
               (double)c.initializer_range, c.gelu, c.pad_token_id, c.untied);
    TRY_DONE(import_problem(directory, NULL, &kind));
    TRY_DONE(import_labels(directory, &labels, &n));
    TRY_DONE(import_use(directory, &use));
    buf_printf(out, "%d:", kind);
    for (int i = 0; i < n; i++) buf_printf(out, " %s", labels[i]);
    buf_printf(out, "\n%lld %lld %s %s\n", (long long)use.doc_stride, (long long)use.max_query_length,
               use.text_columns ? use.text_columns : "", use.label_column ? use.label_column : "");
    TRY_DONE(import_embedding(directory, &e));
    assert_true(e.said);
    assert_string_equal(e.model, directory);
    buf_printf(out, "%d %d %d %lld %s %s\n", e.pooling, e.normalized, e.lower_case, (long long)use.max_length,
               e.prompts ? e.prompts : "", e.similarity ? e.similarity : "");
done:
    import_embedding_free(&e);
    mem_free_texts(labels, n);
    import_use_free(&use);
    model_config_free(&c);
    return status;
}

static void check_row(const char *directory, const Buf without[N_MODEL_KINDS], char *row)
{
    char *file = strsep(&row, "\t"), *key = strsep(&row, "\t"), *value = strsep(&row, "\t"), *kind = strsep(&row, "\t");
    Buf with = {0};
    assert_non_null(kind);
    bool distil = str_starts_with(file, "distilbert/");
    if (distil) file += strlen("distilbert/");
    assert_true(row && *row); /* the reason */
    write_folder(directory, distil, file, key, value);
    Status status = understand(directory, &with);
    bool same = with.data && strcmp(with.data, without[distil].data) == 0, refused = strcmp(kind, "refused") == 0;
    if ((status != OK) != refused || (refused && (!strstr(status_message(), key) || !strstr(status_message(), file))))
        fail_msg("%s %s: expected %s, got %s", key, value, kind, status == OK ? with.data : status_message());
    if (!refused && same != (strcmp(kind, "irrelevant") == 0))
        fail_msg("%s %s: expected %s, got %s", key, value, kind, with.data);
    buf_free(&with);
}

static void test_every_key(void **state)
{
    char *directory = *state;
    Buf table = {0}, without[N_MODEL_KINDS] = {{0}};
    int rows = 0;
    assert_ok(file_read(TABLE, 1 << 20, &table));
    testing_write(directory, "modules.json", modules);
    for (int i = 0; i < N_MODEL_KINDS; i++) {
        write_folder(directory, (ModelKind)i, "", "", "");
        assert_ok(understand(directory, &without[i]));
    }
    char *at = table.data;
    for (char *line = strsep(&at, "\n"); line && *line; line = strsep(&at, "\n"), rows++)
        if (rows > 1) check_row(directory, without, line); /* a comment and the header come first */
    assert_true(rows > 200);
    BUF_FREE(&table, &without[0], &without[1]);
}

#define ST "sentence_transformers."

static void test_modules(void **state)
{
    char *directory = *state;
    static const char transformer[] = "{\"type\": \"" ST "base.modules.transformer.Transformer\", \"path\": \"\"}",
                      pooling[] = "{\"type\": \"" ST "models.Pooling\", \"path\": \"1_Pooling\"}",
                      normalize[] = "{\"type\": \"" ST "models.Normalize\", \"path\": \"2_Normalize\"}";
    static const struct {
        const char *modules[4], *message; /* NULL: it is read */
    } cases[] = {
        {{transformer, pooling}, NULL},
        {{transformer, pooling, normalize}, NULL},
        {{transformer}, "has 1 modules; expected Transformer and Pooling"},
        {{pooling, transformer}, "module 0 has the 'type' 'sentence_transformers.models.Pooling'"},
        {{transformer, pooling, normalize, normalize}, "module 3 has the 'type'"},
        {{transformer, pooling, "{\"type\": \"" ST "models.Dense\", \"path\": \"2_Dense\"}"},
         "module 2 has the 'type' 'sentence_transformers.models.Dense'"},
        {{"{\"type\": \"other.Transformer\", \"path\": \"\"}", pooling}, "'other.Transformer'"},
        {{transformer, "{\"type\": \"" ST "models.Pooling\", \"path\": \"../1_Pooling\"}"}, "'path' '../1_Pooling'"},
        {{transformer, "{\"type\": \"" ST "models.Pooling\"}"}, "module 1 has the 'path' '/'"},
        {{transformer, "{\"type\": \"" ST "models.Pooling\", \"path\": \"3_Pooling\"}"},
         "3_Pooling/config.json: is missing"},
        {{transformer, "7"}, "module 1 has the 'type' ''"},
    };
    write_folder(directory, MODEL_BERT, "", "", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf text = {0};
        Embedding e;
        for (int k = 0; k < 4 && cases[i].modules[k]; k++)
            buf_printf(&text, "%s%s", k ? ", " : "[", cases[i].modules[k]);
        buf_puts(&text, "]");
        testing_write(directory, "modules.json", text.data);
        Status status = import_embedding(directory, &e);
        if (cases[i].message) {
            assert_status(status, E_FORMAT);
            assert_message(cases[i].message);
            assert_null(e.model);
        } else {
            assert_ok(status);
            assert_int_equal(e.normalized, cases[i].modules[2] != NULL);
        }
        import_embedding_free(&e);
        buf_free(&text);
    }
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
    static const char *const keys[] = {"tie_word_embeddings", "tie_weights_"};
    for (int i = 0; i < 4; i++) {
        bool pretraining = i % 2;
        write_config(*state, MODEL_DISTILBERT, keys[i / 2], "false");
        assert_ok(model_config_read(*state, &c));
        Head head = {pretraining ? HEAD_PRETRAINING : HEAD_CLASSIFIER, 2};
        assert_int_equal(model_init(&m, c, head) == OK, !pretraining);
        model_free(&m);
    }
    assert_message("'tie_word_embeddings' or 'tie_weights_' is false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_key, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_modules, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_labels_of_several_keys, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_tied_decoder_is_needed_for_pretraining, testing_set_up,
                                        testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
