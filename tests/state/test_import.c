/* Importing weights: every spelling of the names gives the same bits, and real files load completely. */
#include "state/import_case.h"

/* ---- names ---- */

static void replace(Buf *out, const char *s, const char *from, const char *to)
{
    for (const char *at; (at = strstr(s, from)); s = at + strlen(from)) {
        buf_append(out, s, (size_t)(at - s));
        buf_puts(out, to);
    }
    buf_puts(out, s);
}

static char *replaced(char *s, const char *from, const char *to)
{
    Buf out = {0};
    replace(&out, s, from, to);
    free(s);
    return out.data;
}

static char *prefixed(const char *name, const char *prefix) { return mem_printf("%s%s", prefix, name); }
static char *plain(const char *name) { return mem_strdup(name); }
static char *with_module(const char *name) { return prefixed(name, "module."); }
static char *with_model(const char *name) { return prefixed(name, "model."); }
static char *with_all(const char *name) { return prefixed(name, "_orig_mod.module.model."); }
static char *with_net(const char *name) { return prefixed(name, "teacher.net."); }
static char *within_encoder(const char *name)
{
    return strncmp(name, "bert.", 5) == 0 ? mem_printf("encoder.%s", name + 5) : mem_strdup(name);
}
static char *without_bert(const char *name) { return mem_strdup(strncmp(name, "bert.", 5) == 0 ? name + 5 : name); }
static char *with_gamma(const char *name)
{
    return replaced(replaced(mem_strdup(name), "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                    "LayerNorm.beta");
}
static char *with_dense_act(const char *name)
{
    char *s = replaced(mem_strdup(name), "intermediate.dense", "intermediate.dense_act");
    return replaced(replaced(s, "pooler.dense", "pooler.dense_act"), "transform.dense", "transform.dense_act");
}
static char *nvidia(const char *name)
{
    char *act = with_dense_act(name), *gamma = with_gamma(act), *s = with_module(gamma);
    free(act);
    free(gamma);
    return s;
}
static char *within_layers(const char *name)
{
    char *s = replaced(mem_strdup(name), "bert.encoder.", "bert._fsdp_wrapped_module.encoder.");
    s = replaced(s, ".attention.", "._checkpoint_wrapped_module.attention.");
    s = replaced(s, ".output.", "._fsdp_wrapped_module.output.");
    char *all = prefixed(s, "_fsdp_wrapped_module.module._orig_mod.");
    free(s);
    return all;
}
static char *google(const char *name)
{
    char *s = with_gamma(name);
    s = replaced(s, "_embeddings.weight", "_embeddings");
    s = replaced(s, "seq_relationship.weight", "seq_relationship/output_weights");
    s = replaced(s, "seq_relationship.bias", "seq_relationship/output_bias");
    s = replaced(s, "cls.predictions.bias", "cls/predictions/output_bias");
    s = replaced(s, "classifier.weight", "output_weights");
    s = replaced(s, "classifier.bias", "output_bias");
    s = replaced(s, "layer.", "layer_");
    s = replaced(s, ".weight", "/kernel");
    return replaced(s, ".", "/");
}

static const struct {
    const char *what;
    char *(*name)(const char *);
} variants[] = {{"Hugging Face", plain},
                {"module.", with_module},
                {"model.", with_model},
                {"_orig_mod.module.model.", with_all},
                {"teacher.net.", with_net},
                {"encoder.", within_encoder},
                {"FSDP", within_layers},
                {"without bert.", without_bert},
                {"gamma and beta", with_gamma},
                {"dense_act", with_dense_act},
                {"NVIDIA", nvidia},
                {"Google", google}};

static void test_every_naming_gives_the_same_bits(void **state)
{
    (void)state;
    const Head heads[] = {{HEAD_NONE, 0}, classifier3, {HEAD_REGRESSION, 1}, pretraining, {HEAD_PRETRAINING, 0}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            Case c;
            case_open(&c, heads[h]);
            for (int i = 0; i < c.tensors.count; i++) {
                char *name = variants[v].name(c.tensors.infos[i].name);
                rename_tensor(&c.tensors, i, name);
                if (strstr(name, "/kernel")) transpose_tensor(&c.tensors, i);
                free(name);
            }
            if (case_import(&c) != OK) fail_msg("%s, head %zu: %s", variants[v].what, h, status_message());
            assert_same(&c.model, c.given, c.got);
            assert_int_equal(c.report.n[IMPORT_LOADED], c.model.params.count);
            assert_int_equal(c.report.count, c.model.params.count);
            case_close(&c);
        }
}

static void test_names_one_by_one(void **state)
{
    (void)state;
    static const struct {
        const char *theirs;
        SourceKind kind;
        const char *ours;
        bool transpose, head;
    } cases[] = {
        {"embeddings.word_embeddings.weight", SOURCE_WEIGHT, "bert.embeddings.word_embeddings.weight", false, false},
        {"bert/embeddings/word_embeddings", SOURCE_WEIGHT, "bert.embeddings.word_embeddings.weight", false, false},
        {"bert/encoder/layer_11/output/dense/kernel", SOURCE_WEIGHT, "bert.encoder.layer.11.output.dense.weight", true,
         false},
        {"bert/encoder/layer_0/output/LayerNorm/gamma", SOURCE_WEIGHT, "bert.encoder.layer.0.output.LayerNorm.weight",
         false, false},
        {"bert/pooler/dense/bias", SOURCE_WEIGHT, "bert.pooler.dense.bias", false, true},
        {"cls/predictions/output_bias", SOURCE_WEIGHT, "cls.predictions.bias", false, true},
        {"cls/seq_relationship/output_weights", SOURCE_WEIGHT, "cls.seq_relationship.weight", false, true},
        {"output_weights", SOURCE_WEIGHT, "classifier.weight", false, true},
        {"output_bias", SOURCE_WEIGHT, "classifier.bias", false, true},
        {"module.cls.predictions.transform.dense_act.weight", SOURCE_WEIGHT, "cls.predictions.transform.dense.weight",
         false, true},
        {"module.cls.predictions.decoder.weight", SOURCE_TIED, "bert.embeddings.word_embeddings.weight", false, true},
        {"cls.predictions.decoder.bias", SOURCE_TIED, "cls.predictions.bias", false, true},
        {"embeddings.position_ids", SOURCE_IGNORED, "", false, false},
        {"bert.embeddings.position_ids", SOURCE_IGNORED, "", false, false},
        {"global_step", SOURCE_IGNORED, "", false, false},
        {"bert/pooler/dense/kernel/adam_m", SOURCE_IGNORED, "", false, false},
        {"output_weights/adam_v", SOURCE_IGNORED, "", false, false},
        /* a parameter's name and more words */
        {"bert/pooler/dense/kernel/lamb_m", SOURCE_IGNORED, "", false, false},
        {"bert/pooler/dense/bias/Momentum", SOURCE_IGNORED, "", false, false},
        {"bert/encoder/layer_0/output/LayerNorm/gamma/RMSProp_1", SOURCE_IGNORED, "", false, false},
        {"bert/embeddings/word_embeddings/ExponentialMovingAverage", SOURCE_IGNORED, "", false, false},
        {"cls/predictions/output_bias/accum_grad", SOURCE_IGNORED, "", false, false},
        {"cls/squad/output_weights/adam_m_1", SOURCE_IGNORED, "", false, false},
        {"output_bias/LAMB", SOURCE_IGNORED, "", false, false},
        {"train/bert/pooler/dense/kernel/adam_m/local_step", SOURCE_IGNORED, "", false, false},
        {"head/kernel/lamb_m", SOURCE_UNKNOWN, "", true, false},
        {"bert.pooler.dense.weight.exp_avg", SOURCE_WEIGHT, "bert.pooler.dense.weight.exp_avg", false, true},
        /* what stands before BERT's name */
        {"net.module.bert.encoder.layer.0.output.dense.bias", SOURCE_WEIGHT, "bert.encoder.layer.0.output.dense.bias",
         false, false},
        {"scope/bert/pooler/dense/kernel", SOURCE_WEIGHT, "bert.pooler.dense.weight", true, true},
        {"net.embeddings.position_ids", SOURCE_IGNORED, "", false, false},
        {"net.classifier.weight", SOURCE_WEIGHT, "classifier.weight", false, true},
        {"roberta.encoder.layer.0.output.dense.bias", SOURCE_UNKNOWN, "", false, false},
        {"net.classifier.dense.weight", SOURCE_UNKNOWN, "", false, false},
        /* DistilBERT's */
        {"distilbert.transformer.layer.10.attention.q_lin.bias", SOURCE_WEIGHT,
         "bert.encoder.layer.10.attention.self.query.bias", false, false},
        {"module.transformer.layer.0.attention.out_lin.weight", SOURCE_WEIGHT,
         "bert.encoder.layer.0.attention.output.dense.weight", false, false},
        {"net.distilbert.transformer.layer.1.output_layer_norm.weight", SOURCE_WEIGHT,
         "bert.encoder.layer.1.output.LayerNorm.weight", false, false},
        {"net.pre_classifier.weight", SOURCE_WEIGHT, "bert.pooler.dense.weight", false, true},
        {"vocab_layer_norm.bias", SOURCE_WEIGHT, "cls.predictions.transform.LayerNorm.bias", false, true},
        {"vocab_projector.weight", SOURCE_TIED, "bert.embeddings.word_embeddings.weight", false, true},
        {"vocab_projector.bias", SOURCE_WEIGHT, "cls.predictions.bias", false, true},
        /* gamma is only LayerNorm's, and an empty name belongs to no parameter */
        {"bert.gamma", SOURCE_WEIGHT, "bert.gamma", false, false},
        {"model.", SOURCE_UNKNOWN, "", false, false},
        {"lm_head.weight", SOURCE_UNKNOWN, "", false, false},
        {"transformer/layer_0/kernel", SOURCE_UNKNOWN, "", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SourceName s;
        import_name(cases[i].theirs, &s);
        assert_string_equal(s.name, cases[i].ours);
        if (s.kind != cases[i].kind || s.transpose != cases[i].transpose || s.head != cases[i].head)
            fail_msg("%s: kind %d, transpose %d, head %d", cases[i].theirs, s.kind, s.transpose, s.head);
        assert_int_equal(s.why != NULL, s.kind == SOURCE_IGNORED);
    }
}

static void test_long_names_are_unknown(void **state)
{
    (void)state;
    SourceName s;
    for (size_t n = 100; n < 1024; n++) {
        char *dots = mem_alloc(n + 1), *slashes = mem_alloc(n + 1), *one = mem_alloc(n + 1);
        for (size_t i = 0; i < n; i++) {
            dots[i] = "ab."[i % 3];
            slashes[i] = "ab/"[i % 3];
            one[i] = 'x';
        }
        memcpy(dots, "bert.", 5);
        memcpy(slashes, "bert/", 5);
        memcpy(one, "bert.", 5);
        import_name(dots, &s);
        assert_int_equal(s.kind, n < sizeof s.name ? SOURCE_WEIGHT : SOURCE_UNKNOWN);
        import_name(one, &s);
        assert_int_equal(s.kind, n < sizeof s.name ? SOURCE_WEIGHT : SOURCE_UNKNOWN);
        import_name(slashes, &s);
        if (n > sizeof s.name) assert_int_equal(s.kind, SOURCE_UNKNOWN);
        if (n < sizeof s.name - 1) assert_int_equal(s.kind, SOURCE_WEIGHT);
        free(dots);
        free(slashes);
        free(one);
    }
}

/* ---- more than one model in a file ---- */

static void test_two_candidates_are_refused(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    int n = c.tensors.count;
    for (int i = 0; i < n; i++) {
        char *name = prefixed(c.tensors.infos[i].name, "teacher.");
        add_tensor(&c.tensors, name, c.tensors.infos[i].dims, c.tensors.infos[i].n_dims, NULL);
        free(name);
    }
    assert_status(case_import(&c), E_FORMAT);
    assert_int_equal(c.report.n[IMPORT_TWICE], n);
    for (int i = 0; i < c.report.count; i++)
        if (strcmp(c.report.lines[i].name, "classifier.bias") == 0)
            assert_string_equal(c.report.lines[i].detail, "as 'classifier.bias' and 'teacher.classifier.bias'");
    case_close(&c);
}

/* A head or a pooler that stands elsewhere than the encoder may be another model's. */
static void test_parts_of_another_model_are_not_taken(void **state)
{
    (void)state;
    static const char *const theirs[][2] = {{"classifier.weight", "aux.classifier.weight"},
                                            {"bert.pooler.dense.bias", "aux.bert.pooler.dense.bias"}};
    for (int i = 0; i < 2; i++) {
        Case c;
        case_open(&c, classifier3);
        rename_tensor(&c.tensors, find_tensor(&c.tensors, theirs[i][0]), theirs[i][1]);
        assert_status(case_import(&c), E_FORMAT);
        assert_message("1 unexpected: aux.");
        case_close(&c);
    }
}

/* ---- ignored tensors ---- */

static void test_unknown_integers_are_counters(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    c.tensors.infos[add_tensor(&c.tensors, "net.bad_steps", (int64_t[]){1}, 1, NULL)].dtype = I32;
    c.tensors.infos[add_tensor(&c.tensors, "bert/num_updates", NULL, 0, NULL)].dtype = I32;
    add_tensor(&c.tensors, "temperature", NULL, 0, NULL);
    assert_status(case_import(&c), E_FORMAT);
    assert_int_equal(c.report.n[IMPORT_IGNORED], 2);
    assert_message("1 unexpected: temperature");
    case_close(&c);
}

static void test_ignored_and_unused_are_reported(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    add_tensor(&c.tensors, "bert.embeddings.position_ids", (int64_t[]){1, 16}, 2, NULL);
    add_tensor(&c.tensors, "bert/pooler/dense/kernel/adam_m", (int64_t[]){12, 12}, 2, NULL);
    add_tensor(&c.tensors, "global_step", NULL, 0, NULL);
    add_tensor(&c.tensors, "cls.predictions.bias", (int64_t[]){101}, 1, NULL);
    add_tensor(&c.tensors, "cls.predictions.decoder.weight", (int64_t[]){101, 12}, 2,
               NULL); /* differs, but is not needed */
    add_tensor(&c.tensors, "qa_outputs.bias", (int64_t[]){2}, 1, NULL);
    assert_ok(case_import(&c));
    assert_same(&c.model, c.given, c.got);
    assert_int_equal(c.report.n[IMPORT_IGNORED], 3);
    assert_int_equal(c.report.n[IMPORT_UNUSED], 3);
    assert_int_equal(c.report.n[IMPORT_NEW], 0);
    int64_t parameters = 0;
    for (int i = 0; i < c.model.params.count; i++) parameters += param_exported(&c.model.params.params[i]);
    assert_int_equal(c.report.parameters, parameters);
    case_close(&c);
}

/* An adapter or a mask changes what its head computes. */
static void test_no_tensor_of_a_head_is_left_over(void **state)
{
    (void)state;
    static const char *const more[] = {"bert.pooler.dense.lora_A.weight", "classifier.1.weight"};
    for (int i = 0; i < 2; i++) {
        Case c;
        case_open(&c, classifier3);
        add_tensor(&c.tensors, more[i], (int64_t[]){3, 3}, 2, NULL);
        assert_status(case_import(&c), E_FORMAT);
        assert_message("1 unexpected");
        assert_message(more[i]);
        case_close(&c);
    }
    Case c; /* a classifier of two layers is another head, which the file has as a whole */
    case_open(&c, classifier3);
    remove_tensor(&c.tensors, "classifier.weight");
    remove_tensor(&c.tensors, "classifier.bias");
    add_tensor(&c.tensors, "classifier.out_proj.weight", (int64_t[]){3, 12}, 2, NULL);
    assert_ok(case_import(&c));
    assert_int_equal(c.report.n[IMPORT_NEW], 2);
    assert_int_equal(c.report.n[IMPORT_UNUSED], 1);
    case_close(&c);
}

static void test_new_heads_are_initialised_by_the_seed(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    remove_tensor(&c.tensors, "classifier.weight");
    remove_tensor(&c.tensors, "classifier.bias");
    remove_tensor(&c.tensors, "bert.pooler.dense.weight");
    remove_tensor(&c.tensors, "bert.pooler.dense.bias");
    assert_ok(case_import(&c));
    assert_int_equal(c.report.n[IMPORT_NEW], 4);
    assert_int_equal(c.report.n[IMPORT_LOADED], c.model.params.count - 4);
    for (int i = 0; i < c.model.params.count; i++)
        if (strncmp(c.model.params.params[i].name, "classifier.", 11) == 0 ||
            strncmp(c.model.params.params[i].name, "bert.pooler.", 12) == 0)
            params_init_one(&c.model.params, i, 7, c.given);
    assert_same(&c.model, c.given, c.got);
    const Param *w = &c.model.params.params[params_find(&c.model.params, "classifier.weight")];
    assert_true(c.got[w->offset] != 0);
    case_close(&c);
}

/* From one task to another: MNLI's classifier does not fit RTE. */
static void test_a_classifier_for_other_labels_is_new(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    resize_rows(&c.tensors, find_tensor(&c.tensors, "classifier.weight"), 2, 0);
    resize_rows(&c.tensors, find_tensor(&c.tensors, "classifier.bias"), 2, 0);
    assert_ok(case_import(&c));
    assert_int_equal(c.report.n[IMPORT_NEW], 2);
    for (int i = 0; i < c.model.params.count; i++)
        if (strncmp(c.model.params.params[i].name, "classifier.", 11) == 0)
            params_init_one(&c.model.params, i, 7, c.given);
    assert_same(&c.model, c.given, c.got);
    case_close(&c);
}

/* ---- real files ---- */

static char *shared(const char *name)
{
    const char *place = getenv("CAIRN_TEST_DATA");
    char *path = file_join(place ? place : "../shared/data", name);
    if (file_exists(path) || file_is_directory(path)) return path;
    printf("skipped: %s is absent\n", path);
    free(path);
    skip();
    return NULL;
}

static const float *param(const Model *m, const float *w, const char *name)
{
    int i = params_find(&m->params, name);
    assert_true(i >= 0);
    return w + m->params.params[i].offset;
}

/* Expected values: decoded from the data file by a separate reader of the bundle format. */
static void test_google_checkpoint(void **state)
{
    (void)state;
    static const float query[4][4] = /* as in the file: (in, out) */
        {{0.01196586899459362f, -0.0006070358213037252f, 0.012987199239432812f, 0.0026731197722256184f},
         {-0.016071703284978867f, 0.021652434021234512f, -0.00620190380141139f, 0.032686032354831696f},
         {0.033663082867860794f, 0.002611758653074503f, -0.0009118458838202059f, 0.02734469249844551f},
         {0.01961696706712246f, 0.010480706579983234f, -0.010069182142615318f, -0.03078383393585682f}};
    static const float next[8] = {0.0030989020597189665f, 0.01280627679079771f,   0.029687872156500816f,
                                  -0.004444517660886049f, -0.031231006607413292f, 0.016842372715473175f,
                                  -0.00555754266679287f,  -0.02813759818673134f};
    static const float gamma[4] = {0.9999942183494568f, 1.0000056028366089f, 0.9999944567680359f, 1.0000054836273193f};
    char *path = shared("checkpoint/tf1_keras_bert_tiny");
    char *prefix = file_join(path, "bert_model.ckpt");
    Model m;
    ImportReport report = {0};
    read_model(&m, path, pretraining);
    float *w = new_weights(&m), *again = new_weights(&m);
    assert_ok(import_weights(path, &m, 1, w, &report));
    assert_int_equal(report.format, TENSORS_TF1);
    assert_int_equal(report.n[IMPORT_LOADED], m.params.count);
    assert_int_equal(report.n[IMPORT_IGNORED], 2 * m.params.count + 1);
    const float *q = param(&m, w, "bert.encoder.layer.1.attention.self.query.weight");
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) assert_true(q[k * 4 + i] == query[i][k]);
    const float *down = param(&m, w, "bert.encoder.layer.0.output.dense.weight"); // (4, 16)
    assert_true(down[1] == -0.022345073521137238f);                               /* the file's [1, 0] */
    assert_true(down[16] == 0.012151178903877735f);                               /* [0, 1] */
    assert_true(down[63] == -0.002826315350830555f);                              /* [15, 3] */
    assert_memory_equal(param(&m, w, "cls.seq_relationship.weight"), next, sizeof next);
    assert_memory_equal(param(&m, w, "bert.embeddings.LayerNorm.weight"), gamma, sizeof gamma);
    assert_true(param(&m, w, "bert.embeddings.word_embeddings.weight")[59] == 0.011462758295238018f);
    assert_true(param(&m, w, "cls.predictions.bias")[14] == -6.1323967202042695e-06f);
    assert_true(param(&m, w, "cls.predictions.bias")[15] == 0); /* padding */

    import_report_free(&report);
    assert_ok(import_weights(prefix, &m, 1, again, &report)); /* also by the prefix */
    assert_same(&m, w, again);
    import_report_free(&report);
    free(w);
    free(again);
    model_free(&m);

    read_model(&m, path, classifier3); /* fine-tuning it */
    w = new_weights(&m);
    assert_ok(import_weights(path, &m, 1, w, &report));
    assert_int_equal(report.n[IMPORT_NEW], 2);
    assert_int_equal(report.n[IMPORT_UNUSED], 7);
    import_report_free(&report);
    free(w);
    model_free(&m);
    free(prefix);
    free(path);
}

static void test_an_export_without_prefix(void **state)
{
    (void)state;
    char *path = shared("checkpoint/st_coldfire_tiny_bert");
    Model m;
    ImportReport report = {0};
    TensorFile *file;
    float raw[32 * 64];
    read_model(&m, path, (Head){HEAD_NONE, 0});
    float *w = new_weights(&m);
    assert_ok(import_weights(path, &m, 1, w, &report));
    assert_int_equal(report.n[IMPORT_LOADED], m.params.count);
    assert_int_equal(report.count, m.params.count);
    assert_ok(tensor_file_open(path, &file));
    int i = tensor_file_find(file, "encoder.layer.1.intermediate.dense.weight");
    assert_ok(tensor_file_read_f32(file, i, raw, 32 * 64));
    assert_memory_equal(param(&m, w, "bert.encoder.layer.1.intermediate.dense.weight"), raw, sizeof raw);
    tensor_file_close(file);
    import_report_free(&report);
    free(w);
    model_free(&m);
    free(path);
}

/* An index whose data is absent: names and shapes fit, and the error of reading names the missing file. */
static void test_google_names_of_a_larger_model(void **state)
{
    (void)state;
    static const char text[] =
        "{\"vocab_size\": 30522, \"hidden_size\": 512, \"num_hidden_layers\": 8, \"num_attention_heads\": 8, "
        "\"intermediate_size\": 2048, \"max_position_embeddings\": 512, \"type_vocab_size\": 2}";
    char *path = shared("checkpoint/tf1_index_only/google_uncased_L-8_H-512_A-8.index");
    ModelConfig c;
    Model m;
    ImportReport report = {0};
    assert_ok(model_config_parse("test", text, strlen(text), &c));
    assert_ok(model_init(&m, c, pretraining));
    float *w = mem_array((size_t)m.params.size, sizeof *w);
    assert_status(import_weights(path, &m, 1, w, &report), E_IO);
    assert_message(".data-00000-of-00001");
    for (int k = IMPORT_MISSING; k < N_IMPORT_KINDS; k++) assert_int_equal(report.n[k], 0);
    import_report_free(&report);
    free(w);
    model_free(&m);
    free(path);
}

/* ---- beside the weights ---- */

static void test_the_config_is_found(void **state)
{
    (void)state;
    char *directory = testing_directory(), *file = file_join(directory, "bert_model.ckpt");
    char *config = file_join(directory, "bert_config.json");
    const char *const paths[] = {directory, file};
    for (int i = 0; i < 2; i++) assert_null(import_find_config(paths[i]));
    assert_ok(file_write_durable(config, "{}", 2));
    for (int i = 0; i < 2; i++) {
        char *found = import_find_config(paths[i]);
        assert_string_equal(found, config);
        free(found);
    }
    assert_ok(file_remove_tree(directory));
    free(config);
    free(file);
    free(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_naming_gives_the_same_bits),
        cmocka_unit_test(test_names_one_by_one),
        cmocka_unit_test(test_long_names_are_unknown),
        cmocka_unit_test(test_two_candidates_are_refused),
        cmocka_unit_test(test_parts_of_another_model_are_not_taken),
        cmocka_unit_test(test_unknown_integers_are_counters),
        cmocka_unit_test(test_ignored_and_unused_are_reported),
        cmocka_unit_test(test_no_tensor_of_a_head_is_left_over),
        cmocka_unit_test(test_new_heads_are_initialised_by_the_seed),
        cmocka_unit_test(test_a_classifier_for_other_labels_is_new),
        cmocka_unit_test(test_google_checkpoint),
        cmocka_unit_test(test_an_export_without_prefix),
        cmocka_unit_test(test_google_names_of_a_larger_model),
        cmocka_unit_test(test_the_config_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
