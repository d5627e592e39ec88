/* Sizes from config.json and bert_config.json; other models than BERT and DistilBERT are refused. */

#include "model/model.h"

const ModelKindNames model_kinds[N_MODEL_KINDS] = {{"BERT", "bert", "Bert", "hidden_act"},
                                                   {"DistilBERT", "distilbert", "DistilBert", "activation"}};

/* clang-format off */
enum { HIDDEN = 1, HEADS = 3 };
#define WHOLE(field) false, offsetof(ModelConfig, field)
#define REAL(field)  true, offsetof(ModelConfig, field)
const ModelNumber model_numbers[N_MODEL_NUMBERS] = {
    {{"vocab_size", "vocab_size"}, {-1, -1}, 1 << 24, WHOLE(vocab_size)},
    [HIDDEN] = {{"hidden_size", "dim"}, {-1, -1}, 1 << 16, WHOLE(hidden)},
    {{"num_hidden_layers", "n_layers"}, {-1, -1}, MODEL_MOST_LAYERS, WHOLE(layers)},
    [HEADS] = {{"num_attention_heads", "n_heads"}, {-1, -1}, 1 << 12, WHOLE(heads)},
    {{"intermediate_size", "hidden_dim"}, {-1, -1}, 1 << 18, WHOLE(ffn)},
    {{"max_position_embeddings", "max_position_embeddings"}, {512, 512}, 1 << 16, WHOLE(positions)},
    {{"type_vocab_size", NULL}, {2, 0}, 1 << 16, WHOLE(types)},
    {{"layer_norm_eps", NULL}, {1e-12, 1e-12}, 1, REAL(norm_eps)},
    {{"hidden_dropout_prob", "dropout"}, {0.1, 0.1}, 0.999, REAL(hidden_dropout)},
    {{"attention_probs_dropout_prob", "attention_dropout"}, {0.1, 0.1}, 0.999, REAL(attention_dropout)},
    {{"classifier_dropout", "seq_classif_dropout"}, {-1, 0.2}, 0.999, REAL(classifier_dropout)},
    {{NULL, "qa_dropout"}, {0, 0.1}, 0.999, REAL(span_dropout)},
    {{"initializer_range", "initializer_range"}, {0.02, 0.02}, 10, REAL(initializer_range)},
};
#undef WHOLE
#undef REAL
/* clang-format on */

typedef struct {
    const char *name; /* name of the text in errors */
    const Json *root;
    ModelKind kind;
} Source;

static Status size_key(const Source *s, const char *key, double fallback, double max, int32_t *out)
{
    const Json *v = js_get(s->root, key);
    if (!v && fallback < 0) return fail(E_FORMAT, "%s: key '%s' is missing", s->name, key);
    if (v && js_kind(v) != JSON_KIND_INT) return fail(E_FORMAT, "%s: '%s' must be a whole number", s->name, key);
    int64_t n = js_int(v, (int64_t)fallback);
    if (n < 1 || n > (int64_t)max)
        return fail(E_FORMAT, "%s: '%s' is %lld; expected 1 to %.0f", s->name, key, (long long)n, max);
    *out = (int32_t)n;
    return OK;
}

static Status real_key(const Source *s, const char *key, double fallback, double max, float *out)
{
    const Json *v = js_get(s->root, key);
    if (v && js_kind(v) != JSON_KIND_INT && js_kind(v) != JSON_KIND_REAL)
        return fail(E_FORMAT, "%s: '%s' must be a number", s->name, key);
    double x = js_real(v, fallback);
    if (!(x >= 0 && x <= max)) return fail(E_FORMAT, "%s: '%s' is %g; expected 0 to %g", s->name, key, x, max);
    *out = (float)x;
    return OK;
}

static Status read_number(const Source *s, const ModelNumber *number, ModelConfig *c)
{
    const char *key = number->keys[s->kind], *berts = number->keys[MODEL_BERT];
    double fallback = number->fallback[s->kind];
    float *real = (float *)(void *)((char *)c + number->at);
    int32_t *whole = (int32_t *)(void *)((char *)c + number->at);
    if (number->real) {
        bool as_hidden = fallback < 0; /* null means this too */
        *real = as_hidden ? c->hidden_dropout : (float)fallback;
        if (!key || (as_hidden && js_kind(js_get(s->root, key)) == JSON_KIND_NULL)) return OK;
        return real_key(s, key, (double)*real, number->most, real);
    }
    *whole = (int32_t)fallback;
    if (!key) return OK;
    TRY(size_key(s, key, fallback, number->most, whole));
    const Json *other = strcmp(key, berts) == 0 ? NULL : js_get(s->root, berts); /* Transformers reads some of BERT's */
    if (other && js_int(other, -1) != *whole)
        return fail(E_FORMAT, "%s: '%s' is %d and '%s' another; expected '%s' alone", s->name, key, *whole, berts, key);
    return OK;
}

static Status text_key(const Source *s, const char *key, const char *fallback, const char **out)
{
    const Json *v = js_get(s->root, key);
    if (v && js_kind(v) != JSON_KIND_STRING) return fail(E_FORMAT, "%s: '%s' must be a text", s->name, key);
    *out = js_string(v, fallback);
    return OK;
}

static Status activation(const Source *s, GeluKind *gelu)
{
    static const struct {
        const char *name;
        GeluKind kind;
    } known[] = {{"gelu", GELU_ERF},
                 {"gelu_python", GELU_ERF},
                 {"gelu_new", GELU_TANH},
                 {"gelu_fast", GELU_TANH},
                 {"gelu_accurate", GELU_TANH},
                 {"gelu_python_tanh", GELU_TANH},
                 {"gelu_pytorch_tanh", GELU_TANH}};
    const char *name;
    const char *key = model_kinds[s->kind].activation;
    TRY(text_key(s, key, "gelu", &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *gelu = known[i].kind;
        return OK;
    }
    return fail(E_FORMAT, "%s: '%s' is '%s'; expected gelu, gelu_new, gelu_fast or gelu_pytorch_tanh", s->name, key,
                name);
}

/* Keys that make another model of BERT, unless they say nothing: null, false, an empty list or object. */
static const struct {
    const char *key, *means;
} others[] = {
    {"is_decoder", "a decoder is not BERT"},
    {"add_cross_attention", "a decoder is not BERT"},
    {"is_encoder_decoder", "a decoder is not BERT"},
    {"pruned_heads", "Cairn has the same heads in all layers; save the model after merging or without pruning"},
    {"per_layer_config", "Cairn has the same sizes in all layers"},
    {"quantization_config", "Cairn reads weights in f32, f16, bf16 or f64; give the model before quantization"},
    {"auto_map", "the model has code of its own, which Cairn does not run. If its weights are those of a plain BERT, "
                 "remove the key"},
    {"sinusoidal_pos_embds",
     "Cairn trains the position embeddings, and these are fixed. Where the weights have trained "
     "ones, write false"},
};

static bool says_nothing(const Json *v)
{
    JsonKind kind = js_kind(v);
    return kind == JSON_KIND_NULL || (kind == JSON_KIND_BOOL && !js_bool(v, true)) ||
           ((kind == JSON_KIND_ARRAY || kind == JSON_KIND_OBJECT) && js_size(v) == 0);
}

/* Configs of before `model_type` name a class. */
static bool is_class_of_bert(const char *name)
{
    static const char *const begins[] = {"Bert", "TFBert", "FlaxBert"};
    for (int i = 0; i < 3; i++)
        if (str_starts_with(name, begins[i])) return true;
    return *name == '\0';
}

/* Sets the kind. */
static Status read_kind(Source *s)
{
    const char *type, *position, *class = js_string(js_at(js_get(s->root, "architectures"), 0), "");
    if (!js_get(s->root, "model_type") && !is_class_of_bert(class))
        return fail(E_FORMAT,
                    "%s: 'architectures' is '%s', and there is no 'model_type'; Cairn trains 'bert' and 'distilbert'",
                    s->name, class);
    TRY(text_key(s, "model_type", "bert", &type));
    while (s->kind < N_MODEL_KINDS && strcmp(type, model_kinds[s->kind].type) != 0) s->kind++;
    if (s->kind == N_MODEL_KINDS)
        return fail(E_FORMAT, "%s: 'model_type' is '%s'; Cairn trains 'bert' and 'distilbert'", s->name, type);
    TRY(text_key(s, "position_embedding_type", "absolute", &position));
    if (strcmp(position, "absolute") != 0)
        return fail(E_FORMAT, "%s: 'position_embedding_type' is '%s'; Cairn has 'absolute'", s->name, position);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!says_nothing(js_get(s->root, others[i].key)))
            return fail(E_FORMAT, "%s: the key '%s' is set: %s", s->name, others[i].key, others[i].means);
    return OK;
}

Status model_config_parse(const char *name, const char *text, size_t len, ModelConfig *c)
{
    static const char *const ties[] = {"tie_word_embeddings", "tie_weights_"};
    Status status = OK;
    Json *doc = NULL;
    *c = (ModelConfig){0};
    TRY_DONE(js_parse(name, text, len, &doc));
    Source s = {.name = name, .root = doc};
    TRY_DONE(read_kind(&s));
    c->kind = s.kind;
    for (int i = 0; i < N_MODEL_NUMBERS; i++) TRY_DONE(read_number(&s, &model_numbers[i], c));
    TRY_DONE(activation(&s, &c->gelu));
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        const Json *tie = js_get(doc, ties[i]);
        if (tie && js_kind(tie) != JSON_KIND_BOOL)
            TRY_DONE(fail(E_FORMAT, "%s: '%s' must be true or false", name, ties[i]));
        if (!js_bool(tie, true)) c->untied = true;
    }
    int64_t pad = js_int(js_get(doc, "pad_token_id"), 0);
    c->pad_token_id = pad >= 0 && pad < c->vocab_size ? (int32_t)pad : 0;
    if (c->hidden % c->heads != 0)
        TRY_DONE(fail(E_FORMAT, "%s: '%s' %d is not a multiple of '%s' %d", name, model_numbers[HIDDEN].keys[s.kind],
                      c->hidden, model_numbers[HEADS].keys[s.kind], c->heads));
    c->head_dim = c->hidden / c->heads;
    c->vocab_padded = ((int64_t)c->vocab_size + 63) / 64 * 64;
    c->extra = mem_strndup(text, len);
done:
    js_free(doc);
    return status;
}

bool model_config_named(const char *name, int32_t vocab_size, ModelConfig *c)
{
    static const struct {
        const char *name;
        int layers, hidden;
    } sizes[] = {{"bert-tiny", 2, 128},   {"bert-mini", 4, 256},  {"bert-small", 4, 512},
                 {"bert-medium", 8, 512}, {"bert-base", 12, 768}, {"bert-large", 24, 1024}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(name, sizes[i].name) != 0) continue;
        int h = sizes[i].hidden;
        char *text =
            mem_printf("{\"model_type\": \"bert\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": %d, "
                       "\"num_attention_heads\": %d, \"intermediate_size\": %d, \"max_position_embeddings\": 512, "
                       "\"type_vocab_size\": 2, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "
                       "\"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02, \"layer_norm_eps\": 1e-12}",
                       vocab_size, h, sizes[i].layers, h / 64, 4 * h);
        Status status = model_config_parse(name, text, strlen(text), c);
        CHECK(status == OK, "%s", status_message());
        free(text);
        return true;
    }
    return false;
}

void model_config_set_dropout(ModelConfig *config, float rate)
{
    if (rate < 0) return;
    config->hidden_dropout = config->attention_dropout = config->classifier_dropout = rate;
    if (config->kind == MODEL_DISTILBERT) config->span_dropout = rate;
}

Status model_config_read(const char *path, ModelConfig *c)
{
    static const char *const names[] = {"config.json", "bert_config.json"};
    char *file = NULL;
    Buf text = {0};
    *c = (ModelConfig){0};
    if (!file_exists(path) && model_config_named(path, 30522, c)) return OK;
    if (!file_exists(path) && !strchr(path, '/') && !strchr(path, '.'))
        return fail(E_USAGE,
                    "%s: there is no such file or folder, and no size of that name; expected a config.json, or "
                    "bert-tiny, -mini, -small, -medium, -base or -large",
                    path);
    if (!file_is_directory(path)) {
        file = mem_strdup(path);
    } else {
        for (int i = 0; i < 2 && !file; i++) {
            file = file_join(path, names[i]);
            if (file_exists(file)) break;
            free(file);
            file = NULL;
        }
        if (!file) return fail(E_IO, "%s: holds neither config.json nor bert_config.json", path);
    }
    Status status = OK;
    TRY_DONE(file_read(file, (size_t)16 << 20, &text));
    TRY_DONE(model_config_parse(file, text.data ? text.data : "", text.len, c));
done:
    free(file);
    buf_free(&text);
    return status;
}

void model_config_free(ModelConfig *c)
{
    free(c->extra);
    *c = (ModelConfig){0};
}
