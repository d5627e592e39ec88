/* Hugging Face's files from a model. */
#include "state/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/tensor_file.h"

/* ---- JSON with sorted keys ---- */

static void indent(Buf *b, int depth) { buf_printf(b, "\n%*s", 2 * depth, ""); }

/* A number that reads back as a real: "1.0", not "1". */
static void put_real(Buf *b, double x)
{
    size_t start = b->len;
    buf_double(b, x);
    if (!strpbrk(b->data + start, ".en")) buf_puts(b, ".0");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(js_key(*(void *const *)a), js_key(*(void *const *)b));
}

static void put_value(Buf *b, const Json *v, int depth);

static void put_object(Buf *b, const Json *v, int depth)
{
    size_t n = js_size(v), used = 0;
    void **members = mem_array(n, sizeof *members);
    for (void *it = js_first(v); it; it = js_next(v, it)) members[used++] = it;
    qsort(members, used, sizeof *members, compare_keys);
    buf_puts(b, "{");
    for (size_t i = 0; i < used; i++) {
        if (i) buf_puts(b, ",");
        indent(b, depth + 1);
        buf_json(b, js_key(members[i]));
        buf_puts(b, ": ");
        put_value(b, js_value(members[i]), depth + 1);
    }
    if (used) indent(b, depth);
    buf_puts(b, "}");
    free(members);
}

static void put_array(Buf *b, const Json *v, int depth)
{
    buf_puts(b, "[");
    for (size_t i = 0; i < js_size(v); i++) {
        if (i) buf_puts(b, ",");
        indent(b, depth + 1);
        put_value(b, js_at(v, i), depth + 1);
    }
    if (js_size(v)) indent(b, depth);
    buf_puts(b, "]");
}

static void put_value(Buf *b, const Json *v, int depth)
{
    switch (js_kind(v)) {
    case JSON_KIND_NULL:
        buf_puts(b, "null");
        break;
    case JSON_KIND_BOOL:
        buf_puts(b, js_bool(v, false) ? "true" : "false");
        break;
    case JSON_KIND_INT:
        buf_printf(b, "%" PRId64, js_int(v, 0));
        break;
    case JSON_KIND_REAL:
        put_real(b, js_real(v, 0));
        break;
    case JSON_KIND_STRING:
        buf_json(b, js_string(v, ""));
        break;
    case JSON_KIND_ARRAY:
        put_array(b, v, depth);
        break;
    case JSON_KIND_OBJECT:
        put_object(b, v, depth);
        break;
    }
}

/* ---- a document under construction: keys with their values as text ---- */

typedef struct {
    char *key, *value;
} Entry;

typedef struct {
    Entry *entries;
    int count, cap;
} Document;

static Entry *find_entry(const Document *d, const char *key)
{
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->entries[i].key, key) == 0) return &d->entries[i];
    return NULL;
}

/* Takes ownership of `value`; replaces an older value of the key. */
static void set(Document *d, const char *key, Buf value)
{
    Entry *e = find_entry(d, key);
    if (!e) {
        MEM_GROW(d->entries, d->count, d->cap);
        e = &d->entries[d->count++];
        *e = (Entry){.key = mem_strdup(key)};
    }
    free(e->value);
    e->value = value.data;
}

static void drop(Document *d, const char *key)
{
    Entry *e = find_entry(d, key);
    if (!e) return;
    free(e->key);
    free(e->value);
    *e = d->entries[--d->count];
}

static void set_raw(Document *d, const char *key, const char *text)
{
    Buf b = {0};
    buf_puts(&b, text);
    set(d, key, b);
}

static void set_string(Document *d, const char *key, const char *text)
{
    Buf b = {0};
    buf_json(&b, text);
    set(d, key, b);
}

static void set_int(Document *d, const char *key, int64_t n)
{
    Buf b = {0};
    buf_printf(&b, "%" PRId64, n);
    set(d, key, b);
}

static void set_bool(Document *d, const char *key, bool value) { set_raw(d, key, value ? "true" : "false"); }

/* The shortest decimal that reads back as the same float. */
static void set_float(Document *d, const char *key, float x)
{
    char text[32];
    Buf b = {0};
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    buf_puts(&b, text);
    if (!strpbrk(text, ".e")) buf_puts(&b, ".0");
    set(d, key, b);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const Entry *)a)->key, ((const Entry *)b)->key);
}

/* Writes it, sorted, and frees it. */
static void finish(Document *d, Buf *out)
{
    qsort(d->entries, (size_t)d->count, sizeof *d->entries, compare_entries);
    buf_puts(out, "{");
    for (int i = 0; i < d->count; i++) {
        buf_puts(out, i ? ",\n  " : "\n  ");
        buf_json(out, d->entries[i].key);
        buf_puts(out, ": ");
        buf_puts(out, d->entries[i].value);
        free(d->entries[i].key);
        free(d->entries[i].value);
    }
    buf_puts(out, d->count ? "\n}\n" : "}\n");
    free(d->entries);
    *d = (Document){0};
}

/* ---- config.json ---- */

/* Keys of the source that would be wrong here: paths, and values that the head and the fp32 weights determine. */
static const char *const dropped[] = {"_name_or_path", "_commit_hash", "dtype",    "quantization_config",
                                      "num_labels",    "id2label",     "label2id", "problem_type"};

static bool has(const Model *m, const char *name) { return params_find(&m->params, name) >= 0; }

static const char *architecture(const Model *m)
{
    bool next = has(m, "cls.seq_relationship.weight");
    if (has(m, "classifier.weight")) return "BertForSequenceClassification";
    if (has(m, "cls.predictions.bias")) return next ? "BertForPreTraining" : "BertForMaskedLM";
    return next ? "BertForNextSentencePrediction" : "BertModel";
}

static void keep_source(Document *d, const Json *source)
{
    for (void *it = js_first(source); it; it = js_next(source, it)) {
        Buf b = {0};
        put_value(&b, js_value(it), 1);
        set(d, js_key(it), b);
    }
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) drop(d, dropped[i]);
}

/* Real-valued settings: keeps the source's text if it has the same value. `fallback`: the value of an absent key or
   null. */
static void set_sizes(Document *d, const ModelConfig *c, const Json *source)
{
    const struct {
        const char *key;
        float value, fallback;
    } reals[] = {
        {"layer_norm_eps", c->norm_eps, -1},
        {"hidden_dropout_prob", c->hidden_dropout, -1},
        {"attention_probs_dropout_prob", c->attention_dropout, -1},
        {"initializer_range", c->initializer_range, -1},
        {"classifier_dropout", c->classifier_dropout, c->hidden_dropout},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        float said = (float)js_real(js_get(source, reals[i].key), (double)reals[i].fallback);
        if (said != reals[i].value) set_float(d, reals[i].key, reals[i].value);
    }
    set_int(d, "vocab_size", c->vocab_size);
    set_int(d, "hidden_size", c->hidden);
    set_int(d, "num_hidden_layers", c->layers);
    set_int(d, "num_attention_heads", c->heads);
    set_int(d, "intermediate_size", c->ffn);
    set_int(d, "max_position_embeddings", c->positions);
    set_int(d, "type_vocab_size", c->types);
    set_int(d, "pad_token_id", c->pad_token_id);
    if (!find_entry(d, "hidden_act")) set_string(d, "hidden_act", c->gelu == GELU_ERF ? "gelu" : "gelu_new");
}

/* The name of class i: given, or in the source (if it has as many classes), or LABEL_i. Caller frees. */
static char *label_name(const Model *m, const ExportText *text, const Json *source, int i)
{
    const Json *theirs = js_get(source, "id2label");
    char *key = mem_printf("%d", i), *label = mem_printf("LABEL_%d", i), *name;
    if (text->labels)
        name = mem_strdup(text->labels[i]);
    else
        name = mem_strdup(js_size(theirs) == (size_t)m->head.labels ? js_string(js_get(theirs, key), label) : label);
    free(key);
    free(label);
    return name;
}

static Status set_labels(Document *d, const Model *m, const ExportText *text, const Json *source)
{
    Buf to_name = {0}, to_id = {0};
    Status status = OK;
    int n = m->head.labels;
    char **names = mem_array((size_t)n, sizeof *names);
    CHECK(!text->labels || text->n_labels == n, "%d label names for %d labels", text->n_labels, n);
    buf_puts(&to_name, "{");
    buf_puts(&to_id, "{");
    for (int i = 0; i < n; i++) {
        names[i] = label_name(m, text, source, i);
        for (int k = 0; k < i && status == OK; k++)
            if (strcmp(names[i], names[k]) == 0)
                status = fail(E_FAIL, "config.json: classes %d and %d are both named '%s'; names must differ", k, i,
                              names[i]);
        buf_printf(&to_name, "%s\n    \"%d\": ", i ? "," : "", i);
        buf_json(&to_name, names[i]);
        buf_puts(&to_id, i ? ",\n    " : "\n    ");
        buf_json(&to_id, names[i]);
        buf_printf(&to_id, ": %d", i);
    }
    buf_puts(&to_name, "\n  }");
    buf_puts(&to_id, "\n  }");
    set(d, "id2label", to_name);
    set(d, "label2id", to_id);
    set_int(d, "num_labels", n);
    set_string(d, "problem_type", m->head.kind == HEAD_REGRESSION ? "regression" : "single_label_classification");
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    return status;
}

static Status make_config(const Model *m, const ExportText *text, Buf *out)
{
    Status status = OK;
    Document d = {0};
    Json *source = NULL;
    if (m->config.extra) TRY(js_parse("the model's config.json", m->config.extra, strlen(m->config.extra), &source));
    Buf list = {0};
    keep_source(&d, source);
    buf_printf(&list, "[\n    \"%s\"\n  ]", architecture(m));
    set(&d, "architectures", list);
    set_string(&d, "model_type", "bert");
    set_string(&d, "torch_dtype", "float32");
    set_sizes(&d, &m->config, source);
    if (has(m, "classifier.weight")) status = set_labels(&d, m, text, source);
    finish(&d, out);
    js_free(source);
    return status;
}

/* ---- the tokenizer ---- */

static const struct {
    const char *key, *piece;
} special[] = {{"cls_token", "[CLS]"},
               {"mask_token", "[MASK]"},
               {"pad_token", "[PAD]"},
               {"sep_token", "[SEP]"},
               {"unk_token", "[UNK]"}};

static void make_special(Document *d)
{
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) set_string(d, special[i].key, special[i].piece);
}

static void make_tokenizer(const Model *m, const ExportText *text, Buf *out)
{
    Document d = {0};
    make_special(&d);
    set_bool(&d, "do_lower_case", text->lower_case);
    if (text->strip_accents < 0)
        set_raw(&d, "strip_accents", "null");
    else
        set_bool(&d, "strip_accents", text->strip_accents > 0);
    set_bool(&d, "tokenize_chinese_chars", true);
    set_string(&d, "tokenizer_class", "BertTokenizer");
    set_int(&d, "model_max_length", m->config.positions);
    finish(&d, out);
}

/* Takes ownership of the text. */
static ModelFile file_of(const char *name, Buf *text)
{
    ModelFile file = {name, text->data, text->len};
    *text = (Buf){0};
    return file;
}

Status export_files(const Model *m, const ExportText *text, ModelFile files[EXPORT_MAX_FILES], int *count)
{
    Document d = {0};
    Buf out = {0};
    memset(files, 0, EXPORT_MAX_FILES * sizeof *files);
    *count = 0;
    Status status = make_config(m, text, &out);
    files[(*count)++] = file_of("config.json", &out);
    if (status != OK || !text->vocab) return status;
    buf_append(&out, text->vocab, text->vocab_len);
    files[(*count)++] = file_of("vocab.txt", &out);
    make_tokenizer(m, text, &out);
    files[(*count)++] = file_of("tokenizer_config.json", &out);
    make_special(&d);
    finish(&d, &out);
    files[(*count)++] = file_of("special_tokens_map.json", &out);
    return OK;
}

void export_files_free(ModelFile *files, int count)
{
    for (int i = 0; i < count; i++) free((void *)(uintptr_t)files[i].data);
}

/* ---- weights ---- */

static int compare_params(const void *a, const void *b)
{
    return strcmp((*(const Param *const *)a)->name, (*(const Param *const *)b)->name);
}

Status export_weights(const char *path, const Model *m, const float *weights, Digest *digest)
{
    static const char *const metadata[] = {"format", "pt"};
    Status status = OK;
    int n = m->params.count;
    SafetensorsWriter *w = NULL;
    TensorInfo *infos = mem_array((size_t)n, sizeof *infos);
    const Param **order = mem_array((size_t)n, sizeof *order);
    for (int i = 0; i < n; i++) order[i] = &m->params.params[i];
    qsort(order, (size_t)n, sizeof *order, compare_params);
    for (int i = 0; i < n; i++)
        infos[i] = (TensorInfo){.name = (char *)(uintptr_t)order[i]->name,
                                .dtype = F32,
                                .n_dims = order[i]->n_dims,
                                .dims = {order[i]->rows, order[i]->cols}};
    TRY_DONE(safetensors_writer_open(&w, path, infos, n, metadata, 1));
    for (int i = 0; i < n; i++)
        TRY_DONE(safetensors_writer_write(w, weights + order[i]->offset,
                                          (size_t)param_exported(order[i]) * sizeof *weights));
    status = safetensors_writer_close(w, digest);
    w = NULL;
done:
    safetensors_writer_abandon(w);
    free(order);
    free(infos);
    return status;
}

Status export_model(const char *directory, const Model *m, const float *weights, const ExportText *text)
{
    Status status = OK;
    ModelFile files[EXPORT_MAX_FILES];
    int count;
    char *path = file_join(directory, "model.safetensors");
    TRY_DONE(export_files(m, text, files, &count));
    TRY_DONE(file_make_directories(directory));
    for (int i = 0; i < count; i++) {
        char *file = file_join(directory, files[i].name);
        status = file_write_durable(file, files[i].data, files[i].size);
        free(file);
        if (status != OK) goto done;
    }
    TRY_DONE(export_weights(path, m, weights, NULL));
done:
    export_files_free(files, count);
    free(path);
    return status;
}
