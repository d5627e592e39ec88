/* `cairn convert` and `cairn inspect`. */
#include "testing.h"

#include <fcntl.h>

#include "commands/commands.h"
#include "state/models/import.h"

/* A command's standard output. */
static Status printed(Status (*command)(const Config *), const Config *c, Buf *out)
{
    char *directory = testing_directory(), *path = file_join(directory, "out");
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), file = open(path, O_CREAT | O_RDWR, 0600);
    assert_true(saved >= 0 && file >= 0);
    assert_true(dup2(file, STDOUT_FILENO) >= 0);
    Status status = command(c);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    close(file);
    assert_ok(file_read(path, 1 << 24, out));
    assert_ok(file_remove_tree(directory));
    free(path);
    free(directory);
    return status;
}

static void assert_contains(const Buf *text, const char *part)
{
    if (!text->data || !strstr(text->data, part)) fail_msg("\"%s\" is not in:\n%s", part, text->data ? text->data : "");
}

static Config config(char *model, char *output)
{
    static char none[] = "";
    return (Config){.model = model, .output = output, .model_config = none, .vocab = none};
}

static void assert_file(const char *directory, const char *name, const char *expected)
{
    char *path = file_join(directory, name);
    Buf text = {0};
    assert_ok(file_read(path, 1 << 20, &text));
    assert_string_equal(text.data, expected);
    buf_free(&text);
    free(path);
}

/* ---- convert ---- */

/* The weights under their own names, and an optimizer slot. */
static void write_source(const char *path, const Model *m, const float *w)
{
    SafetensorsWriter *writer;
    TensorInfo infos[64];
    const ParamTable *t = &m->params;
    assert_true(t->count + 1 <= 64);
    for (int i = 0; i < t->count; i++)
        infos[i] = (TensorInfo){
            .name = t->params[i].name, .n_dims = t->params[i].n_dims, .dims = {t->params[i].rows, t->params[i].cols}};
    static char slot[] = "bert/pooler/dense/kernel/adam_m";
    infos[t->count] = (TensorInfo){.name = slot, .n_dims = 1, .dims = {1}};
    assert_ok(safetensors_writer_open(&writer, path, infos, t->count + 1, NULL, 0));
    for (int i = 0; i < t->count; i++)
        assert_ok(safetensors_writer_write(writer, w + t->params[i].offset,
                                           (size_t)param_exported(&t->params[i]) * sizeof *w));
    assert_ok(safetensors_writer_write(writer, w, sizeof *w));
    assert_ok(safetensors_writer_close(writer, NULL));
}

static const struct {
    const char *golden;
    Head head;
    const char *architecture;
} models[] = {{"tests/golden/bert/tiny_cls", {HEAD_CLASSIFIER, 3}, "BertForSequenceClassification"},
              {"tests/golden/bert/tiny_reg", {HEAD_REGRESSION, 1}, "BertForSequenceClassification"},
              {"tests/golden/bert/odd_pre", {HEAD_PRETRAINING, 2}, "BertForPreTraining"},
              {"tests/golden/bert/odd_pre", {HEAD_PRETRAINING, 0}, "BertForMaskedLM"},
              {"tests/golden/bert/tiny_cls", {HEAD_NONE, 0}, "\"BertModel"},
              {"tests/golden/bert/distil_cls", {HEAD_CLASSIFIER, 3}, "DistilBertForSequenceClassification"},
              {"tests/golden/bert/distil_span", {HEAD_SPAN, 2}, "DistilBertForQuestionAnswering"},
              {"tests/golden/bert/distil_mlm", {HEAD_PRETRAINING, 0}, "DistilBertForMaskedLM"},
              {"tests/golden/bert/distil_cls", {HEAD_NONE, 0}, "DistilBertModel"}};

static void test_convert_keeps_every_head_there_is(void **state)
{
    (void)state;
    static const char vocab[] = "\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nWord\r\n";
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *directory = testing_directory(), *source = file_join(directory, "source.safetensors");
        char *out = file_join(directory, "out"), *vocab_path = file_join(directory, "v.txt");
        char *config_path = file_join(models[i].golden, "config.json");
        ModelConfig mc;
        Model m;
        ImportReport report = {0};
        assert_ok(model_config_read(models[i].golden, &mc));
        assert_ok(model_init(&m, mc, models[i].head));
        size_t bytes = (size_t)m.params.size * sizeof(float);
        float *w = mem_alloc(bytes), *again = mem_alloc(bytes);
        params_init(&m.params, 3, w);
        write_source(source, &m, w);
        assert_ok(file_write_durable(vocab_path, vocab, strlen(vocab)));
        Config c = config(source, out);
        c.model_config = config_path;
        c.vocab = vocab_path;
        assert_ok(command_convert(&c));

        assert_ok(import_weights(out, &m, 1, again, &report));
        assert_int_equal(report.n[IMPORT_LOADED], m.params.count);
        assert_int_equal(report.count, m.params.count); /* and no other tensors */
        assert_memory_equal(w, again, bytes);
        ModelConfig written;
        assert_ok(model_config_read(out, &written));
        if (!strstr(written.extra, models[i].architecture))
            fail_msg("no %s in %s", models[i].architecture, written.extra);
        assert_file(out, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nWord\n");
        TokenizerFiles tokenizer;
        assert_ok(tokenizer_files_read(NULL, out, NULL, &tokenizer));
        assert_true(!tokenizer.options.lower_case && tokenizer.options.strip_accents == -1); /* it has capitals */
        assert_true(tokenizer.says_case && tokenizer.options.kind == TOKENIZER_FAST);
        tokenizer_files_free(&tokenizer);
        model_config_free(&written);
        import_report_free(&report);
        model_free(&m);
        assert_ok(file_remove_tree(directory));
        free(w);
        free(again);
        free(config_path);
        free(vocab_path);
        free(out);
        free(source);
        free(directory);
    }
}

/* A second conversion changes nothing. */
static void test_convert_twice(void **state)
{
    (void)state;
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n";
    static const char *const names[] = {
        "config.json",      "vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "model.safetensors"};
    char golden[] = "tests/golden/bert/tiny_pre";
    char *directory = testing_directory(), *a = file_join(directory, "a"), *b = file_join(directory, "b");
    char *vocab_path = file_join(directory, "vocab.txt");
    assert_ok(file_write_durable(vocab_path, vocab, strlen(vocab)));
    Config c = config(golden, a);
    c.vocab = vocab_path;
    assert_ok(command_convert(&c));
    Config again = config(a, b); /* config, vocabulary and tokenizer options beside the weights */
    assert_ok(command_convert(&again));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *x = file_join(a, names[i]), *y = file_join(b, names[i]);
        Digest dx, dy;
        assert_ok(file_digest(x, &dx, NULL));
        assert_ok(file_digest(y, &dy, NULL));
        if (!digest_equal(dx, dy)) fail_msg("%s differs", names[i]);
        free(x);
        free(y);
    }
    again.output = a; /* onto itself */
    assert_status(command_convert(&again), E_USAGE);
    assert_message("the weights to convert lie there");
    assert_ok(file_remove_tree(directory));
    free(vocab_path);
    free(a);
    free(b);
    free(directory);
}

static void test_convert_refuses(void **state)
{
    (void)state;
    char golden[] = "tests/golden/bert/tiny_cls", none[] = "", absent[] = "/nonexistent/x";
    char *directory = testing_directory(), *out = file_join(directory, "out");
    char *alone = file_join(directory, "weights.safetensors"), *vocab_path = file_join(directory, "v.txt");
    char *weights = file_join(golden, "model.safetensors");
    Buf copy = {0}, vocab = {0};
    Config c = config(none, out);
    assert_status(command_convert(&c), E_USAGE);
    assert_message("--model");
    c = config(golden, none);
    assert_status(command_convert(&c), E_USAGE);
    assert_message("--output");
    c = config(absent, out);
    assert_status(command_convert(&c), E_IO);
    assert_ok(file_read(weights, 1 << 24, &copy));
    assert_ok(file_write_durable(alone, copy.data, copy.len));
    c = config(alone, out);
    assert_status(command_convert(&c), E_USAGE);
    assert_message("--model-config");
    buf_puts(&vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (int i = 0; i < 97; i++) buf_printf(&vocab, "w%d\n", i);
    assert_ok(file_write_durable(vocab_path, vocab.data, vocab.len));
    c = config(golden, out);
    c.vocab = vocab_path;
    assert_status(command_convert(&c), E_FORMAT);
    assert_message("102 pieces, but the model has embeddings for 101");
    assert_false(file_is_directory(out));
    assert_ok(file_remove_tree(directory));
    buf_free(&copy);
    buf_free(&vocab);
    free(weights);
    free(vocab_path);
    free(alone);
    free(out);
    free(directory);
}

/* ---- inspect ---- */

static void test_inspect_lists_and_sums(void **state)
{
    (void)state;
    char *directory = testing_directory(), *path = file_join(directory, "model.safetensors"), none[] = "";
    static char first[] = "module.bert.pooler.dense_act.weight", second[] = "bert/x/adam_v", third[] = "zzz..";
    static char fourth[] = "cls.predictions.decoder.weight";
    const TensorInfo infos[] = {{.name = first, .dtype = F32, .n_dims = 2, .dims = {3, 5}},
                                {.name = fourth, .dtype = F32, .n_dims = 1, .dims = {2}},
                                {.name = second, .dtype = BF16, .n_dims = 1, .dims = {4}},
                                {.name = third, .dtype = U8, .n_dims = 0}};
    uint8_t zeros[4 * 15 + 4 * 2 + 2 * 4 + 1] = {0};
    SafetensorsWriter *w;
    Buf out = {0};
    assert_ok(safetensors_writer_open(&w, path, infos, 4, NULL, 0));
    assert_ok(safetensors_writer_write(w, zeros, sizeof zeros));
    assert_ok(safetensors_writer_close(w, NULL));
    Config c = config(directory, none);
    assert_ok(printed(command_inspect, &c, &out));
    static const char *const parts[] = {"model.safetensors (safetensors)\n",
                                        "f32    (3, 5)                      60  weight\n",
                                        "f32    (2)                          8  copy of a tied weight\n",
                                        "bf16   (4)                          8  optimizer slot\n",
                                        "u8     ()                           1  counter\n",
                                        "parameters      1 tensors              15 numbers        60 B\n",
                                        "others          3 tensors               7 numbers        17 B\n",
                                        "in all          4 tensors              22 numbers        77 B\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_contains(&out, parts[i]);
    assert_null(strstr(out.data, "rank"));
    buf_free(&out);
    c.ranks = 2;
    assert_status(printed(command_inspect, &c, &out), E_USAGE);
    assert_message("--model-config");
    c.ranks = 1000000;
    assert_status(printed(command_inspect, &c, &out), E_USAGE);
    c.model = none;
    assert_status(printed(command_inspect, &c, &out), E_USAGE);
    assert_message("--model");
    buf_free(&out);
    assert_ok(file_remove_tree(directory));
    free(path);
    free(directory);
}

/* The slices are those of the model's own table, and cover it. */
static void test_inspect_slices(void **state)
{
    (void)state;
    char none[] = "";
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (models[i].head.kind == HEAD_NONE || models[i].head.labels == 0) continue;
        ModelConfig mc;
        Model m;
        Buf out = {0};
        char *path = mem_strdup(models[i].golden);
        assert_ok(model_config_read(path, &mc));
        assert_ok(model_init(&m, mc, models[i].head));
        Config c = config(path, none);
        c.ranks = 3;
        assert_ok(printed(command_inspect, &c, &out));
        char *line = mem_printf("state of %lld numbers (with padding)", (long long)m.params.size);
        assert_contains(&out, line);
        long long sum = 0, end = 0;
        for (int r = 0; r < 3; r++) {
            char *head = mem_printf("\nrank %-5d ", r);
            const char *at = strstr(out.data, head);
            long long size, from, to;
            assert_non_null(at);
            assert_int_equal(sscanf(at + strlen(head), "%lld numbers %*f %*s [%lld, %lld)", &size, &from, &to), 3);
            assert_int_equal(from, end);
            assert_int_equal(size, to - from);
            end = to;
            sum += size;
            free(head);
        }
        assert_int_equal(sum, m.params.size);
        free(line);
        free(path);
        buf_free(&out);
        model_free(&m);
    }
}

static void test_inspect_a_checkpoint(void **state)
{
    (void)state;
    static const char text[] = "{\"step\": 12, \"loss_sum\": 1.5, \"config\": {\"a\": 1, \"b\": 2}, \"seed\": \"x\"}";
    static char m_name[] = "m.bert.pooler.dense.weight", v_name[] = "v.classifier.bias";
    const TensorInfo infos[] = {{.name = m_name, .dtype = F32, .n_dims = 1, .dims = {2}},
                                {.name = v_name, .dtype = F32, .n_dims = 1, .dims = {3}}};
    char *directory = testing_directory(), *optimizer = file_join(directory, "optimizer.safetensors"), none[] = "";
    char *state_path = file_join(directory, "state.json"), *weights = file_join(directory, "model.safetensors");
    Buf golden = {0}, out = {0};
    SafetensorsWriter *w;
    float zeros[5] = {0};
    assert_ok(file_read("tests/golden/bert/tiny_cls/model.safetensors", 1 << 24, &golden));
    assert_ok(file_write_durable(weights, golden.data, golden.len));
    assert_ok(safetensors_writer_open(&w, optimizer, infos, 2, NULL, 0));
    assert_ok(safetensors_writer_write(w, zeros, sizeof zeros));
    assert_ok(safetensors_writer_close(w, NULL));
    assert_ok(file_write_durable(state_path, text, strlen(text)));
    Config c = config(directory, none);
    assert_ok(printed(command_inspect, &c, &out));
    static const char *const parts[] = {"bert.encoder.layer.1.output.dense.weight",
                                        "first moment\n",
                                        "second moment\n",
                                        "  step                     12\n",
                                        "  loss_sum                 1.5\n",
                                        "  config                   2 entries\n",
                                        "  seed                     \"x\"\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_contains(&out, parts[i]);
    buf_free(&out);
    assert_ok(file_write_durable(state_path, "{", 1));
    assert_status(printed(command_inspect, &c, &out), E_FORMAT);
    buf_free(&out);
    buf_free(&golden);
    assert_ok(file_remove_tree(directory));
    free(weights);
    free(state_path);
    free(optimizer);
    free(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_keeps_every_head_there_is),
        cmocka_unit_test(test_convert_twice),
        cmocka_unit_test(test_convert_refuses),
        cmocka_unit_test(test_inspect_lists_and_sums),
        cmocka_unit_test(test_inspect_slices),
        cmocka_unit_test(test_inspect_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
