/* Translates the tensor names of other trainers into names of the parameter table. */

#include "state/models/import.h"

/* Parts of a PyTorch name that wrappers add anywhere in it: DataParallel and DeepSpeed, torch.compile, FSDP, activation
   checkpointing. `model` only leads. */
static const char wrappers[] = "module _orig_mod _fsdp_wrapped_module _fpw_module _checkpoint_wrapped_module";

/* Ends that show where BERT's own name begins, whatever stands before it. */
static const struct {
    const char *begins;
    bool encoder, whole; /* belongs beneath `bert.`; is the whole rest of the name */
} anchors[] = {
    {"embeddings.word_embeddings.", true, false},
    {"embeddings.position_embeddings.", true, false},
    {"embeddings.token_type_embeddings.", true, false},
    {"embeddings.LayerNorm.", true, false},
    {"embeddings.position_ids", true, true},
    {"embeddings.token_type_ids", true, true},
    {"encoder.layer.", true, false},
    {"pooler.dense.", true, false},
    {"cls.predictions.", false, false},
    {"cls.seq_relationship.", false, false},
    {"classifier.weight", false, true},
    {"classifier.bias", false, true},
    {"qa_outputs.weight", false, true},
    {"qa_outputs.bias", false, true},
};

/* Encoders whose tensors have BERT's names and another meaning. */
static const char other_models[] =
    "roberta xlm_roberta camembert electra layoutlm ernie nezha esm vit deit splinter data2vec_text";

static const char *const head_parts[] = {"classifier.", "cls.", "bert.pooler.", "qa_outputs."};

/* TensorFlow: names that optimizers add, as the last part of a name or as the whole name. */
static const char slots[] = "adam_m adam_v Adam Adam_1 AdamWeightDecayOptimizer AdamWeightDecayOptimizer_1";
static const char counters[] = "global_step beta1_power beta2_power current_loss_scale good_steps";

/* Buffers that older Hugging Face versions saved: 0, 1, 2 … and zeros. */
static const char buffers[] = "bert.embeddings.position_ids bert.embeddings.token_type_ids";

static const struct {
    const char *copy, *of;
} tied[] = {
    {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
};

/* The last part of a parameter's name and its equivalent here. */
static const struct {
    const char *theirs, *ours;
    bool transpose;
} tf1_parts[] = {
    {"kernel", "weight", true},     {"gamma", "weight", false},
    {"beta", "bias", false},        {"output_weights", "weight", false}, /* is (labels, hidden) already */
    {"output_bias", "bias", false}, {"bias", "bias", false},
};

/* Google's run_squad.py. */
static const char tf1_span_head[] = "cls/squad/";

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool is_listed(const char *s, const char *list) { return str_list_has(list, ' ', s, strlen(s)); }

/* Adds to a name under construction. */
static void append_part(Buf *n, const char *s)
{
    if (n->len) buf_puts(n, ".");
    buf_puts(n, s);
}

/* The row of tf1_parts; −1: none. */
static int find_tf1_part(const char *part)
{
    for (size_t i = 0; i < COUNT(tf1_parts); i++)
        if (strcmp(part, tf1_parts[i].theirs) == 0) return (int)i;
    return -1;
}

/* One part of a TensorFlow name. */
static void append_tf1_part(Buf *n, const char *part, bool only, bool last, SourceName *out)
{
    int row = last ? find_tf1_part(part) : -1;
    if (row >= 0) {
        if (only) append_part(n, "classifier"); /* run_classifier.py's output_weights and output_bias */
        append_part(n, tf1_parts[row].ours);
        out->transpose = tf1_parts[row].transpose;
        return;
    }
    if (str_starts_with(part, "layer_") && part[6] >= '0' && part[6] <= '9') {
        append_part(n, "layer");
        part += strlen("layer_");
    }
    append_part(n, part);
    if (last && str_ends_with(part, "_embeddings")) append_part(n, "weight");
}

static bool is_tf1(const char *name)
{
    return strchr(name, '/') || strcmp(name, "output_weights") == 0 || strcmp(name, "output_bias") == 0;
}

/* The part that ends a parameter's name also ends this one. True: words are behind it, of a slot of an optimizer or an
   average. Cuts `name`. */
static bool translate_tf1(char *name, Buf *n, SourceName *out)
{
    bool only = !strchr(name, '/') || str_starts_with(name, "output_");
    if (str_starts_with(name, tf1_span_head)) {
        append_part(n, "qa_outputs");
        name += strlen(tf1_span_head);
        only = false;
    }
    while (name && *name) {
        const char *part = strsep(&name, "/");
        bool last = !name || !*name || find_tf1_part(part) >= 0 || str_ends_with(part, "_embeddings");
        append_tf1_part(n, part, only, last, out);
        if (last) break;
    }
    return name && *name;
}

/* PyTorch: wrappers off, gamma and beta, dense_act, DistilBERT's names. Cuts `name`. */
static void translate_pytorch(char *name, Buf *n)
{
    bool norm = false; /* the previous part was LayerNorm */
    while (name && *name) {
        const char *part = strsep(&name, ".");
        if (is_listed(part, wrappers) || (n->len == 0 && strcmp(part, "model") == 0)) continue;
        append_part(n, norm && strcmp(part, "gamma") == 0  ? "weight"
                       : norm && strcmp(part, "beta") == 0 ? "bias"
                       : strcmp(part, "dense_act") == 0    ? "dense"
                                                           : part);
        norm = strcmp(part, "LayerNorm") == 0;
    }
    if (!n->len) return;
    char *ours = param_table_name(n->data);
    n->len = 0;
    buf_puts(n, ours);
    free(ours);
}

/* ---- the place of BERT's name in a longer one ---- */

static const char *find_anchor(const char *text, bool *encoder)
{
    for (const char *at = text; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
        for (size_t i = 0; i < COUNT(anchors); i++)
            if (anchors[i].whole ? strcmp(at, anchors[i].begins) == 0 : str_starts_with(at, anchors[i].begins)) {
                *encoder = anchors[i].encoder;
                return at;
            }
    return NULL;
}

static bool names_other_model(const char *prefix)
{
    for (size_t n; *prefix; prefix += n + (prefix[n] == '.')) {
        n = strcspn(prefix, ".");
        if (str_list_has(other_models, ' ', prefix, n)) return true;
    }
    return false;
}

/* Sets prefix and name. False: the name belongs to no BERT. */
static bool place_name(const char *text, SourceName *out)
{
    bool encoder = false;
    const char *at = find_anchor(text, &encoder);
    if (!at) at = text;
    int prefix = (int)(at - text), own = encoder ? (int)strlen("bert.") : 0;
    snprintf(out->prefix, sizeof out->prefix, "%.*s", prefix, text);
    int len = snprintf(out->name, sizeof out->name, "%s%s", encoder ? "bert." : "", at);
    if ((size_t)len >= sizeof out->name) return false;
    if (encoder && str_ends_with(out->prefix, "bert.") && (prefix == own || out->prefix[prefix - own - 1] == '.'))
        out->prefix[prefix - own] = 0;
    for (size_t i = 0; i < COUNT(head_parts); i++)
        if (str_starts_with(out->name, head_parts[i])) out->head = true;
    return !names_other_model(out->prefix) && (out->head || str_starts_with(out->name, "bert."));
}

static void set_ignored(SourceName *out, const char *why) { *out = (SourceName){.kind = SOURCE_IGNORED, .why = why}; }

void import_name(const char *name, SourceName *out)
{
    Buf n = {0};
    const char *slash = strrchr(name, '/');
    bool behind = false;
    *out = (SourceName){.kind = SOURCE_UNKNOWN};
    if (is_listed(slash ? slash + 1 : name, counters)) {
        set_ignored(out, "counter of the optimizer");
        return;
    }
    char *parts = mem_strdup(name);
    if (is_tf1(name))
        behind = translate_tf1(parts, &n, out);
    else
        translate_pytorch(parts, &n);
    bool known = n.len > 0 && n.len < sizeof out->name && place_name(n.data, out);
    buf_free(&n);
    free(parts);
    if (slash && ((known && behind) || is_listed(slash + 1, slots))) {
        set_ignored(out, "optimizer slot");
        return;
    }
    if (!known) {
        *out = (SourceName){.kind = SOURCE_UNKNOWN, .transpose = out->transpose};
        return;
    }
    if (is_listed(out->name, buffers)) {
        set_ignored(out, "buffer");
        return;
    }
    out->kind = SOURCE_WEIGHT;
    for (size_t i = 0; i < COUNT(tied); i++) {
        if (strcmp(out->name, tied[i].copy) != 0) continue;
        out->kind = SOURCE_TIED;
        strcpy(out->name, tied[i].of);
        break;
    }
}

void import_tensor(const TensorFile *file, int i, SourceName *out)
{
    const TensorInfo *t = tensor_file_info(file, i);
    bool encoder;
    import_name(t->name, out);
    if (out->kind != SOURCE_UNKNOWN && (out->kind != SOURCE_WEIGHT || find_anchor(out->name, &encoder))) return;
    bool whole = t->dtype != F32 && t->dtype != F16 && t->dtype != BF16 && t->dtype != F64;
    if (whole || (t->n_dims == 0 && tensor_file_format(file) == TENSORS_TF1)) set_ignored(out, "counter");
}

/* ---- heads ---- */

Status import_find_heads(const TensorFile *file, ImportHeads *h)
{
    *h = (ImportHeads){0};
    for (int i = 0; i < tensor_file_count(file); i++) {
        const TensorInfo *t = tensor_file_info(file, i);
        SourceName s;
        import_tensor(file, i, &s);
        if (str_starts_with(s.name, "bert.pooler.")) h->pooler = true;
        if (str_starts_with(s.name, "cls.predictions.")) h->predictions = true;
        if (str_starts_with(s.name, "cls.seq_relationship.")) h->next_sentence = true;
        bool span = strcmp(s.name, "qa_outputs.weight") == 0;
        if (!span && strcmp(s.name, "classifier.weight") != 0) continue;
        if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[0] > 1 << 20 || (span && t->dims[0] != 2))
            return fail(E_FORMAT, "%s: tensor '%s' has %d dimensions and %" PRId64 " elements: expected %s",
                        tensor_file_path(file), t->name, t->n_dims, t->count,
                        span ? "the start and the end of answers, (2, hidden)" : "a classifier (labels, hidden)");
        if (span)
            h->span = true;
        else
            h->labels = t->dims[0];
    }
    return OK;
}

Head import_head(const ImportHeads *h)
{
    if (h->labels) return (Head){h->labels == 1 ? HEAD_REGRESSION : HEAD_CLASSIFIER, (int32_t)h->labels};
    if (h->span) return (Head){HEAD_SPAN, 2};
    if (h->predictions) return (Head){HEAD_PRETRAINING, h->next_sentence ? 2 : 0};
    return (Head){HEAD_NONE, 0};
}
