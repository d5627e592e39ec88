/* Exporting: files that Hugging Face reads, the same bytes every time, and the same weights when read back. */
#include "testing.h"

#include "state/models/export.h"
#include "state/models/import.h"

static const struct {
    const char *name;
    Head head;
} golden[] = {{"tiny_cls", {HEAD_CLASSIFIER, 3}},  {"tiny_reg", {HEAD_REGRESSION, 1}},
              {"tiny_pre", {HEAD_PRETRAINING, 2}}, {"odd_pre", {HEAD_PRETRAINING, 2}},
              {"gamma_cls", {HEAD_CLASSIFIER, 3}}, {"distil_cls", {HEAD_CLASSIFIER, 3}},
              {"distil_span", {HEAD_SPAN, 2}},     {"distil_mlm", {HEAD_PRETRAINING, 0}}};

static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n##s\n";

static void read_model(Model *m, const char *directory, Head head)
{
    ModelConfig c;
    assert_ok(model_config_read(directory, &c));
    assert_ok(model_init(m, c, head));
}

static void parse_model(Model *m, const char *text, Head head)
{
    ModelConfig c;
    assert_ok(model_config_parse("test", text, strlen(text), &c));
    assert_ok(model_init(m, c, head));
}

/* Pad rows hold values here that must not be exported. */
static float *some_weights(const Model *m)
{
    float *w = mem_array((size_t)m->params.size, sizeof *w);
    uint64_t state = 5;
    for (int64_t i = 0; i < m->params.size; i++) w[i] = (float)(testing_random(&state) >> 40) / (1 << 24);
    return w;
}

static Buf read_file(const char *directory, const char *name)
{
    Buf text = {0};
    char *path = file_join(directory, name);
    assert_ok(file_read(path, 1 << 24, &text));
    free(path);
    return text;
}

/* ---- weights ---- */

/* `a` and `b` have the same tensors, with the same types, shapes and bits. */
static void assert_same_tensors(const char *a, const char *b)
{
    TensorFile *fa, *fb;
    assert_ok(tensor_file_open(a, &fa));
    assert_ok(tensor_file_open(b, &fb));
    assert_int_equal(tensor_file_count(fa), tensor_file_count(fb));
    for (int i = 0; i < tensor_file_count(fa); i++) {
        const TensorInfo *ta = tensor_file_info(fa, i);
        int k = tensor_file_find(fb, ta->name);
        if (k < 0) fail_msg("%s lacks '%s'", b, ta->name);
        const TensorInfo *tb = tensor_file_info(fb, k);
        assert_int_equal(ta->dtype, tb->dtype);
        assert_int_equal(ta->n_dims, tb->n_dims);
        assert_memory_equal(ta->dims, tb->dims, sizeof ta->dims[0] * (size_t)ta->n_dims);
        void *da = mem_alloc(ta->bytes), *db = mem_alloc(tb->bytes);
        assert_ok(tensor_file_read_raw(fa, i, da, ta->bytes));
        assert_ok(tensor_file_read_raw(fb, k, db, tb->bytes));
        assert_memory_equal(da, db, ta->bytes);
        free(da);
        free(db);
    }
    tensor_file_close(fa);
    tensor_file_close(fb);
}

static void test_golden_models_come_back_as_transformers_wrote_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        char *source = file_join("tests/golden/bert", golden[i].name), *out = testing_directory();
        Model m, again;
        ImportReport report = {0};
        read_model(&m, source, golden[i].head);
        size_t bytes = (size_t)m.params.size * sizeof(float);
        float *w = mem_alloc(bytes), *w2 = mem_alloc(bytes);
        assert_ok(import_weights(source, &m, 1, w, &report));
        assert_int_equal(report.n[IMPORT_LOADED], m.params.count);
        assert_int_equal(report.count, m.params.count);
        assert_ok(export_model(out, &m, export_read_values, w, &(ExportText){0}));
        assert_same_tensors(source, out);
        read_model(&again, out, golden[i].head);
        assert_ok(import_weights(out, &again, 2, w2, NULL));
        assert_memory_equal(w, w2, bytes);
        import_report_free(&report);
        assert_ok(file_remove_tree(out));
        model_free(&m);
        model_free(&again);
        free(w);
        free(w2);
        free(source);
        free(out);
    }
}

static void test_pad_rows_and_copies_stay_inside(void **state)
{
    (void)state;
    char *out = testing_directory();
    Model m;
    read_model(&m, "tests/golden/bert/tiny_pre", (Head){HEAD_PRETRAINING, 2});
    float *w = some_weights(&m);
    assert_ok(export_model(out, &m, export_read_values, w, &(ExportText){0}));
    TensorFile *file;
    assert_ok(tensor_file_open(out, &file));
    assert_int_equal(tensor_file_count(file), m.params.count);
    assert_int_equal(tensor_file_info(file, tensor_file_find(file, "cls.predictions.bias"))->dims[0], 101);
    int word = tensor_file_find(file, "bert.embeddings.word_embeddings.weight");
    assert_int_equal(tensor_file_info(file, word)->dims[0], 101);
    assert_int_equal(tensor_file_find(file, "cls.predictions.decoder.weight"), -1);
    assert_true(testing_file_has(tensor_file_path(file), "\"__metadata__\":{\"format\":\"pt\"}"));
    tensor_file_close(file);
    assert_ok(file_remove_tree(out));
    model_free(&m);
    free(w);
    free(out);
}

static void test_the_same_model_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {
        "config.json",      "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "model.safetensors"};
    char *a = testing_directory(), *b = testing_directory(), *deep = file_join(b, "made/on/the/way");
    Model m;
    read_model(&m, "tests/golden/bert/tiny_cls", (Head){HEAD_CLASSIFIER, 3});
    float *w = some_weights(&m);
    Vocab *pieces;
    assert_ok(vocab_parse("vocab", vocab, strlen(vocab), NULL, &pieces));
    ExportText text = {.vocab = pieces, .tokenizer = tokenizer_options(true)};
    assert_ok(export_model(a, &m, export_read_values, w, &text));
    assert_ok(export_model(a, &m, export_read_values, w, &text)); /* over the first */
    assert_ok(export_model(deep, &m, export_read_values, w, &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Buf x = read_file(a, names[i]), y = read_file(deep, names[i]);
        assert_int_equal(x.len, y.len);
        assert_memory_equal(x.data, y.data, x.len);
        assert_null(memmem(x.data, x.len, a, strlen(a)));
        buf_free(&x);
        buf_free(&y);
    }
    char *path = file_join(a, "alone.safetensors"), *whole = file_join(a, "model.safetensors");
    Digest digest, expected;
    const ExportTensors tensors = {&m.params, {""}, .n = 1, .by_name = true, .read = export_read_values, .context = w};
    assert_ok(export_tensors(path, &tensors, &digest));
    assert_ok(file_digest(whole, &expected, NULL));
    assert_true(digest_equal(digest, expected));
    vocab_free(pieces);
    assert_ok(file_remove_tree(a));
    assert_ok(file_remove_tree(b));
    model_free(&m);
    free(whole);
    free(path);
    free(deep);
    free(a);
    free(b);
    free(w);
}

/* ---- config.json ---- */

static Json *exported_config(const Model *m, const ExportText *text)
{
    ModelFile files[EXPORT_MAX_FILES];
    Json *doc;
    int n;
    assert_ok(export_files(m, text, files, &n));
    assert_string_equal(files[0].name, "config.json");
    assert_ok(js_parse("exported", files[0].data, files[0].size, &doc));
    export_files_free(files, n);
    return doc;
}

static void test_labels_in_the_config(void **state)
{
    (void)state;
    static const char *const mnli[] = {"contradiction", "entailment", "neutral"};
    Model m;
    read_model(&m, "tests/golden/bert/tiny_cls", (Head){HEAD_CLASSIFIER, 3});
    Json *c = exported_config(&m, &(ExportText){.labels = mnli, .n_labels = 3});
    assert_string_equal(js_string(js_at(js_get(c, "architectures"), 0), ""), "BertForSequenceClassification");
    assert_string_equal(js_string(js_get(c, "problem_type"), ""), "single_label_classification");
    assert_string_equal(js_string(js_get(js_get(c, "id2label"), "0"), ""), "contradiction");
    assert_string_equal(js_string(js_get(js_get(c, "id2label"), "2"), ""), "neutral");
    assert_int_equal(js_int(js_get(js_get(c, "label2id"), "entailment"), -1), 1);
    assert_int_equal(js_size(js_get(c, "id2label")), 3);
    assert_int_equal(js_size(js_get(c, "label2id")), 3);
    js_free(c);
    c = exported_config(&m, &(ExportText){0}); /* the source's names */
    assert_string_equal(js_string(js_get(js_get(c, "id2label"), "1"), ""), "LABEL_1");
    js_free(c);
    static const char *const twice[] = {"yes", "no", "yes"};
    ModelFile files[EXPORT_MAX_FILES];
    int n;
    assert_status(export_files(&m, &(ExportText){.labels = twice, .n_labels = 3}, files, &n), E_FAIL);
    assert_message("classes 0 and 2 are both named 'yes'");
    export_files_free(files, n);
    model_free(&m);
}

static void test_labels_of_the_source_only_where_they_fit(void **state)
{
    (void)state;
    static const char text[] =
        "{\"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"intermediate_size\": 8, \"num_labels\": 2, \"problem_type\": \"regression\", "
        "\"id2label\": {\"0\": \"no\", \"1\": \"yes \\\"quoted\\\"\"}, \"label2id\": {\"no\": 0, \"yes\": 1}}";
    static const struct {
        Head head;
        const char *first, *second, *architecture, *problem;
    } cases[] = {
        {{HEAD_CLASSIFIER, 2}, "no", "yes \"quoted\"", "BertForSequenceClassification", "single_label_classification"},
        {{HEAD_CLASSIFIER, 5}, "LABEL_0", "LABEL_1", "BertForSequenceClassification", "single_label_classification"},
        {{HEAD_REGRESSION, 1}, "LABEL_0", "", "BertForSequenceClassification", "regression"},
        {{HEAD_PRETRAINING, 2}, "", "", "BertForPreTraining", ""},
        {{HEAD_PRETRAINING, 0}, "", "", "BertForMaskedLM", ""},
        {{HEAD_NONE, 0}, "", "", "BertModel", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model m;
        parse_model(&m, text, cases[i].head);
        Json *c = exported_config(&m, &(ExportText){0});
        assert_string_equal(js_string(js_get(js_get(c, "id2label"), "0"), ""), cases[i].first);
        assert_string_equal(js_string(js_get(js_get(c, "id2label"), "1"), ""), cases[i].second);
        assert_string_equal(js_string(js_at(js_get(c, "architectures"), 0), ""), cases[i].architecture);
        assert_string_equal(js_string(js_get(c, "problem_type"), ""), cases[i].problem);
        bool labelled = cases[i].head.kind == HEAD_CLASSIFIER || cases[i].head.kind == HEAD_REGRESSION;
        assert_int_equal(js_size(js_get(c, "id2label")), labelled ? cases[i].head.labels : 0);
        assert_int_equal(js_int(js_get(c, "num_labels"), -1), labelled ? cases[i].head.labels : -1);
        js_free(c);
        model_free(&m);
    }
}

/* Unknown keys are kept with their contents; keys that would be wrong are removed. */
static void test_the_source_s_keys_are_kept(void **state)
{
    (void)state;
    static const char text[] =
        "{\"zeta\": [1, 2.0, [], {}, null, {\"b\": true, \"a\": \"\\u00e9\\n\"}], \"_name_or_path\": \"/home/me/x\", "
        "\"torch_dtype\": \"float16\", \"dtype\": \"bfloat16\", \"vocab_size\": 20, \"hidden_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8, \"hidden_dropout_prob\": 0.1, "
        "\"classifier_dropout\": null, \"layer_norm_eps\": 1e-12, \"initializer_range\": 1, \"big\": 9007199254740993, "
        "\"hidden_act\": \"gelu_python\", \"directionality\": \"bidi\"}";
    static const char expected[] = "{\n"
                                   "  \"architectures\": [\n    \"BertModel\"\n  ],\n"
                                   "  \"attention_probs_dropout_prob\": 0.1,\n"
                                   "  \"big\": 9007199254740993,\n"
                                   "  \"classifier_dropout\": null,\n"
                                   "  \"directionality\": \"bidi\",\n"
                                   "  \"hidden_act\": \"gelu_python\",\n"
                                   "  \"hidden_dropout_prob\": 0.1,\n"
                                   "  \"hidden_size\": 8,\n"
                                   "  \"initializer_range\": 1,\n"
                                   "  \"intermediate_size\": 8,\n"
                                   "  \"layer_norm_eps\": 1e-12,\n"
                                   "  \"max_position_embeddings\": 512,\n"
                                   "  \"model_type\": \"bert\",\n"
                                   "  \"num_attention_heads\": 2,\n"
                                   "  \"num_hidden_layers\": 1,\n"
                                   "  \"pad_token_id\": 0,\n"
                                   "  \"torch_dtype\": \"float32\",\n"
                                   "  \"type_vocab_size\": 2,\n"
                                   "  \"vocab_size\": 20,\n"
                                   "  \"zeta\": [\n    1,\n    2.0,\n    [],\n    {},\n    null,\n    {\n"
                                   "      \"a\": \"\xc3\xa9\\n\",\n      \"b\": true\n    }\n  ]\n"
                                   "}\n";
    Model m;
    ModelFile files[EXPORT_MAX_FILES];
    int n;
    parse_model(&m, text, (Head){HEAD_NONE, 0});
    assert_ok(export_files(&m, &(ExportText){0}, files, &n));
    assert_int_equal(n, 1);
    assert_string_equal(files[0].data, expected);
    export_files_free(files, n);
    m.config.hidden_dropout = 0.2f; /* as --dropout may set it; the classifier's 0.1 must then be written */
    Json *c = exported_config(&m, &(ExportText){0});
    assert_true(js_real(js_get(c, "hidden_dropout_prob"), 0) == 0.2);
    assert_true(js_real(js_get(c, "classifier_dropout"), 0) == 0.1);
    js_free(c);
    model_free(&m);
}

static void test_a_changed_or_handmade_config(void **state)
{
    (void)state;
    static const char text[] =
        "{\"vocab_size\": 20, \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"intermediate_size\": 8, \"hidden_act\": \"gelu_new\"}";
    Model m;
    parse_model(&m, text, (Head){HEAD_CLASSIFIER, 2});
    m.config.hidden_dropout = 0.25f;
    m.config.attention_dropout = 0;
    free(m.config.extra);
    m.config.extra = NULL;
    Json *c = exported_config(&m, &(ExportText){0});
    assert_true(js_kind(js_get(c, "attention_probs_dropout_prob")) == JSON_KIND_REAL);
    assert_true(js_real(js_get(c, "hidden_dropout_prob"), -1) == 0.25);
    assert_true(js_real(js_get(c, "attention_probs_dropout_prob"), -1) == 0);
    assert_true(js_real(js_get(c, "classifier_dropout"), -1) == 0.1);
    assert_true(js_real(js_get(c, "layer_norm_eps"), -1) == 1e-12);
    assert_string_equal(js_string(js_get(c, "hidden_act"), ""), "gelu_new");
    js_free(c);
    model_free(&m);
}

/* ---- the tokenizer ---- */

static void test_without_a_vocabulary_there_is_no_tokenizer(void **state)
{
    (void)state;
    ModelFile files[EXPORT_MAX_FILES];
    Model m;
    int n;
    read_model(&m, "tests/golden/bert/tiny_cls", (Head){HEAD_CLASSIFIER, 3});
    assert_ok(export_files(&m, &(ExportText){.tokenizer = tokenizer_options(true)}, files, &n));
    assert_int_equal(n, 1);
    export_files_free(files, n);
    model_free(&m);
}

/* ---- failures ---- */

static void test_a_directory_that_cannot_be_made(void **state)
{
    (void)state;
    char *place = testing_directory(), *file = file_join(place, "file"), *inside = file_join(file, "directory");
    Model m;
    read_model(&m, "tests/golden/bert/tiny_cls", (Head){HEAD_CLASSIFIER, 3});
    float *w = some_weights(&m);
    assert_ok(file_write_durable(file, "x", 1));
    assert_status(export_model(inside, &m, export_read_values, w, &(ExportText){0}), E_IO);
    assert_message(file);
    free(m.config.extra);
    m.config.extra = mem_strdup("{\"vocab_size\": ");
    char *out = file_join(place, "out");
    assert_status(export_model(out, &m, export_read_values, w, &(ExportText){0}), E_FORMAT);
    assert_false(file_exists(out) || file_is_directory(out)); /* refused before anything is written */
    assert_ok(file_remove_tree(place));
    model_free(&m);
    free(w);
    free(out);
    free(inside);
    free(file);
    free(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_models_come_back_as_transformers_wrote_them),
        cmocka_unit_test(test_pad_rows_and_copies_stay_inside),
        cmocka_unit_test(test_the_same_model_gives_the_same_bytes),
        cmocka_unit_test(test_labels_in_the_config),
        cmocka_unit_test(test_labels_of_the_source_only_where_they_fit),
        cmocka_unit_test(test_the_source_s_keys_are_kept),
        cmocka_unit_test(test_a_changed_or_handmade_config),
        cmocka_unit_test(test_without_a_vocabulary_there_is_no_tokenizer),
        cmocka_unit_test(test_a_directory_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
