/* Hugging Face's files from a model. */
#include "state/models/export.h"

#include "state/models/manifest.h"

#include "base/sort.h"

/* ---- a document under construction: keys with their values as text ---- */

typedef struct {
    char *key, *value;
} Entry;

typedef struct {
    Entry *entries;
    int count, cap;
} ExportedConfig;

static Entry *find_entry(const ExportedConfig *d, const char *key)
{
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->entries[i].key, key) == 0) return &d->entries[i];
    return NULL;
}

/* Takes ownership of `value`, JSON text; replaces an older value of the key. */
static void set_value(ExportedConfig *d, const char *key, char *value)
{
    Entry *e = find_entry(d, key);
    if (!e) {
        MEM_GROW(d->entries, d->count, d->cap);
        e = &d->entries[d->count++];
        *e = (Entry){.key = mem_strdup(key)};
    }
    free(e->value);
    e->value = value;
}

static void remove_entry(ExportedConfig *d, const char *key)
{
    Entry *e = find_entry(d, key);
    if (!e) return;
    MEM_FREE(e->key, e->value);
    *e = d->entries[--d->count];
}

/* The shortest decimal that reads back as the same float. */
static void set_float(ExportedConfig *d, const char *key, float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) break;
    }
    set_value(d, key, mem_printf("%s%s", text, strpbrk(text, ".e") ? "" : ".0"));
}

/* Writes it, sorted, and frees it. */
static void write_document(ExportedConfig *d, Buf *out)
{
    qsort(d->entries, (size_t)d->count, sizeof *d->entries, sort_by_text); /* the key comes first */
    buf_puts(out, "{");
    for (int i = 0; i < d->count; i++) {
        buf_puts(out, i ? ",\n  " : "\n  ");
        buf_json(out, d->entries[i].key);
        buf_puts(out, ": ");
        buf_puts(out, d->entries[i].value);
        MEM_FREE(d->entries[i].key, d->entries[i].value);
    }
    buf_puts(out, d->count ? "\n}\n" : "}\n");
    free(d->entries);
    *d = (ExportedConfig){0};
}

/* ---- config.json ---- */

/* Keys of the source that would be wrong here: paths, and values that the head and the fp32 weights determine. */
static const char *const dropped[] = {"_name_or_path", "_commit_hash", "dtype",    "quantization_config",
                                      "num_labels",    "id2label",     "label2id", "problem_type",
                                      MODEL_USE_KEY};

static bool has_param(const Model *m, const char *name) { return params_find(&m->params, name) >= 0; }

/* The rest of the class's name behind that of the kind. */
static const char *class_of_head(const Model *m)
{
    bool next = has_param(m, "cls.seq_relationship.weight");
    if (has_param(m, "classifier.weight")) return "ForSequenceClassification";
    if (has_param(m, "qa_outputs.weight")) return "ForQuestionAnswering";
    if (has_param(m, "cls.predictions.bias")) return next ? "ForPreTraining" : "ForMaskedLM";
    return next ? "ForNextSentencePrediction" : "Model";
}

static void keep_source(ExportedConfig *d, const Json *source)
{
    for (void *it = js_first(source); it; it = js_next(source, it)) {
        Buf b = {0};
        js_put_indented(&b, js_value(it), 1, true);
        set_value(d, js_key(it), b.data);
    }
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) remove_entry(d, dropped[i]);
}

/* Keeps the source's text of a real number that has the same value. */
static void set_sizes(ExportedConfig *d, const ModelConfig *c, const Json *source)
{
    for (const ModelNumber *n = model_numbers; n < model_numbers + N_MODEL_NUMBERS; n++) {
        const char *key = n->keys[c->kind], *at = (const char *)c + n->at;
        if (!key) continue;
        if (!n->real) {
            set_value(d, key, mem_printf("%d", *(const int32_t *)(const void *)at));
            continue;
        }
        float value = *(const float *)(const void *)at;
        bool as_hidden = n->fallback[c->kind] < 0;
        if ((float)js_real(js_get(source, key), as_hidden ? (double)c->hidden_dropout : -1) != value)
            set_float(d, key, value);
    }
    set_value(d, "pad_token_id", mem_printf("%d", c->pad_token_id));
    const char *activation = model_kinds[c->kind].activation;
    if (!find_entry(d, activation))
        set_value(d, activation, mem_strdup(c->gelu == GELU_ERF ? "\"gelu\"" : "\"gelu_new\""));
}

/* The name of class i: given, or in the source (if it has as many classes), or LABEL_i. Caller frees. */
static char *label_name(const Model *m, const ExportText *text, const Json *source, int i)
{
    const Json *theirs = js_get(source, "id2label");
    const char *name = NULL;
    if (text->labels) return mem_strdup(text->labels[i]);
    if (js_size(theirs) == (size_t)m->head.labels) name = js_string(js_get(theirs, SHORT_TEXT("%d", i)), NULL);
    return name ? mem_strdup(name) : mem_printf("LABEL_%d", i);
}

static Status set_labels(ExportedConfig *d, const Model *m, const ExportText *text, const Json *source)
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
    set_value(d, "id2label", to_name.data);
    set_value(d, "label2id", to_id.data);
    set_value(d, "num_labels", mem_printf("%d", n));
    set_value(d, "problem_type",
              mem_printf("\"%s\"", m->head.kind == HEAD_REGRESSION ? "regression"
                                   : m->head.kind == HEAD_MULTI    ? "multi_label_classification"
                                                                   : "single_label_classification"));
    mem_free_texts(names, n);
    return status;
}

static void put_member(Buf *b, const char *key) { buf_printf(b, "%s\n    \"%s\": ", b->len ? "," : "{", key); }

static void put_text(Buf *b, const char *key, const char *value)
{
    if (!value || !*value) return;
    put_member(b, key);
    buf_json(b, value);
}

static void put_count(Buf *b, const char *key, int64_t value)
{
    if (value <= 0) return;
    put_member(b, key);
    buf_printf(b, "%lld", (long long)value);
}

static void set_use(ExportedConfig *d, const ModelUse *use)
{
    Buf b = {0};
    put_count(&b, "doc_stride", use->doc_stride);
    put_text(&b, "label_column", use->label_column);
    put_count(&b, "max_query_length", use->max_query_length);
    put_text(&b, "text_columns", use->text_columns);
    if (!b.len) return;
    buf_puts(&b, "\n  }");
    set_value(d, MODEL_USE_KEY, b.data);
}

static Status write_config(const Model *m, const ExportText *text, Buf *out)
{
    Status status = OK;
    ExportedConfig d = {0};
    Json *source = NULL;
    if (m->config.extra) TRY(js_parse("the model's config.json", m->config.extra, strlen(m->config.extra), &source));
    keep_source(&d, source);
    const ModelKindNames *kind = &model_kinds[m->config.kind];
    set_value(&d, "architectures", mem_printf("[\n    \"%s%s\"\n  ]", kind->prefix, class_of_head(m)));
    set_value(&d, "model_type", mem_printf("\"%s\"", kind->type));
    set_value(&d, "torch_dtype", mem_strdup("\"float32\""));
    set_sizes(&d, &m->config, source);
    set_use(&d, &text->use);
    if (has_param(m, "classifier.weight")) status = set_labels(&d, m, text, source);
    write_document(&d, out);
    js_free(source);
    return status;
}

/* ---- the files ---- */

/* In the form that every version of sentence-transformers reads. Normalize has no file. */
static void put_modules(const Model *m, Buf *out)
{
    static const char *const modules[][2] = {
        {"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}};
    for (int i = 0; i < 2 + m->normalized; i++)
        buf_printf(out,
                   "%s  {\n    \"idx\": %d,\n    \"name\": \"%d\",\n    \"path\": \"%s\",\n    \"type\": "
                   "\"sentence_transformers.models.%s\"\n  }",
                   i ? ",\n" : "[\n", i, i, modules[i][1], modules[i][0]);
    buf_puts(out, "\n]\n");
}

static void put_pooling(const Model *m, Buf *out)
{
    bool cls = m->pooling == POOLING_CLS;
    ExportedConfig d = {0};
    set_value(&d, "word_embedding_dimension", mem_printf("%d", m->config.hidden));
    set_value(&d, "pooling_mode_cls_token", mem_strdup(cls ? "true" : "false"));
    set_value(&d, "pooling_mode_mean_tokens", mem_strdup(cls ? "false" : "true"));
    write_document(&d, out);
}

/* Takes ownership of the text. */
static ModelFile take_text(const char *name, Buf *text)
{
    ModelFile file = {name, text->data, text->len};
    *text = (Buf){0};
    return file;
}

/* Without --model's prompts and similarity these are sentence-transformers' defaults. */
static void add_embedding(const Model *m, const ModelUse *use, int64_t length, ModelFile *files, int *count)
{
    Buf out = {0};
    put_modules(m, &out);
    files[(*count)++] = take_text(EMBEDDING_MODULES, &out);
    put_pooling(m, &out);
    files[(*count)++] = take_text("1_Pooling/config.json", &out);
    buf_printf(&out, "{\n  \"do_lower_case\": false,\n  \"" EMBEDDING_LENGTH "\": %lld\n}\n", (long long)length);
    files[(*count)++] = take_text(EMBEDDING_TRANSFORMER, &out);
    buf_printf(&out, "{\n  \"default_prompt_name\": null,\n  \"prompts\": %s,\n  \"similarity_fn_name\": %s\n}\n",
               use->prompts ? use->prompts : "{}", use->similarity ? use->similarity : "\"cosine\"");
    files[(*count)++] = take_text(EMBEDDING_MODEL, &out);
}

Status export_files(const Model *m, const ExportText *text, ModelFile files[EXPORT_MAX_FILES], int *count)
{
    TokenizerText tokenizer[TOKENIZER_MAX_TEXTS];
    Buf out = {0};
    memset(files, 0, EXPORT_MAX_FILES * sizeof *files);
    *count = 0;
    int64_t length = text->use.max_length ? text->use.max_length : m->config.positions;
    Status status = write_config(m, text, &out);
    files[(*count)++] = take_text("config.json", &out);
    if (status != OK) return status;
    TokenizerOptions options = text->tokenizer;
    if (m->config.types == 0) options.one_type = true; /* Transformers' model takes no token types */
    int n = text->vocab ? tokenizer_files_write(text->vocab, &options, length, tokenizer) : 0;
    for (int i = 0; i < n; i++) files[(*count)++] = take_text(tokenizer[i].name, &tokenizer[i].text);
    if (text->embedding) add_embedding(m, &text->use, length, files, count);
    return OK;
}

void export_files_free(ModelFile *files, int count)
{
    for (int i = 0; i < count; i++) free((void *)(uintptr_t)files[i].data);
}

/* The files, then the weights, then the manifest with a line for each. */
static Status write_files(const char *directory, const ExportTensors *weights, const ModelFile *files, int count,
                          int64_t step)
{
    Status status = OK;
    Manifest m = {.model = true, .step = step > 0 ? step : -1};
    Buf text = {0};
    Digest digest;
    uint64_t size;
    char *path = file_join(directory, MODEL_WEIGHTS);
    TRY_DONE(file_make_directories(directory));
    for (int i = 0; i < count; i++) {
        TRY_DONE(file_write_in(directory, files[i].name, files[i].data, files[i].size));
        manifest_add(&m, files[i].name, files[i].size, digest_of(files[i].data, files[i].size));
    }
    TRY_DONE(export_tensors(path, weights, &digest));
    TRY_DONE(file_size(path, &size));
    manifest_add(&m, MODEL_WEIGHTS, size, digest);
    manifest_render(&m, &text);
    status = file_write_text(directory, MANIFEST_NAME, &text);
done:
    manifest_free(&m);
    free(path);
    return status;
}

Status export_model(const char *directory, const Model *m, ArrayRead *read, void *context, const ExportText *text)
{
    const ExportTensors weights = {.params = &m->params,
                                   .prefixes = {""},
                                   .n = 1,
                                   .bare = strcmp(class_of_head(m), "Model") == 0,
                                   .by_name = true,
                                   .read = read,
                                   .context = context};
    ModelFile files[EXPORT_MAX_FILES + 1];
    int count = text->n_files;
    Status status = OK;
    if (count)
        memcpy(files, text->files, (size_t)count * sizeof *files);
    else
        status = export_files(m, text, files, &count);
    if (text->note) files[count] = *text->note;
    if (status == OK) status = write_files(directory, &weights, files, count + (text->note != NULL), text->step);
    if (!text->n_files) export_files_free(files, count);
    return status;
}
