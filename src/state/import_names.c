/* Translates the tensor names of other trainers into names of the parameter table. */
#include <inttypes.h>
#include <string.h>

#include "state/import.h"

static const char *const wrappers[] = {"module.", "model.", "_orig_mod."};
static const char *const encoder_parts[] = {"embeddings.", "encoder.", "pooler."};
static const char *const head_parts[] = {"classifier.", "cls.", "bert.pooler.", "qa_outputs."};

/* TensorFlow: names that optimizers add, as the last part of a name or as the whole name. */
static const char *const slots[] = {
    "adam_m", "adam_v", "Adam", "Adam_1", "AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"};
static const char *const counters[] = {"global_step", "beta1_power", "beta2_power", "current_loss_scale", "good_steps"};

/* Buffers that older Hugging Face versions saved: 0, 1, 2 … and zeros. */
static const char *const buffers[] = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"};

static const struct {
    const char *copy, *of;
} tied[] = {
    {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
};

/* A part of a name and its equivalent here. */
static const struct {
    const char *theirs, *ours;
    bool transpose;
} tf1_parts[] = {
    {"kernel", "weight", true},     {"gamma", "weight", false},
    {"beta", "bias", false},        {"output_weights", "weight", false}, /* is (labels, hidden) already */
    {"output_bias", "bias", false},
};

/* Google's run_squad.py. */
static const char tf1_span_head[] = "cls/squad/";

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool is_listed(const char *s, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(s, list[i]) == 0) return true;
    return false;
}

/* A name under construction; an overlong one becomes unknown. */
typedef struct {
    char text[sizeof((SourceName *)0)->name];
    size_t len;
    bool full;
} Name;

static void append(Name *n, const char *s, size_t len)
{
    if (n->full || len >= sizeof n->text - n->len) {
        n->full = true;
        return;
    }
    memcpy(n->text + n->len, s, len);
    n->len += len;
    n->text[n->len] = 0;
}

static void append_part(Name *n, const char *s)
{
    if (n->len) append(n, ".", 1);
    append(n, s, strlen(s));
}

/* One part of a TensorFlow name. */
static void append_tf1_part(Name *n, const char *part, bool only, bool last, SourceName *out)
{
    for (size_t i = 0; last && i < COUNT(tf1_parts); i++) {
        if (strcmp(part, tf1_parts[i].theirs) != 0) continue;
        if (only) append_part(n, "classifier"); /* run_classifier.py's output_weights and output_bias */
        append_part(n, tf1_parts[i].ours);
        out->transpose = tf1_parts[i].transpose;
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

static void translate_tf1(const char *name, Name *n, SourceName *out)
{
    bool only = !strchr(name, '/');
    if (str_starts_with(name, tf1_span_head)) {
        append_part(n, "qa_outputs");
        name += strlen(tf1_span_head);
    }
    while (*name) {
        char part[sizeof n->text];
        size_t len = strcspn(name, "/");
        if (len >= sizeof part) {
            n->full = true;
            return;
        }
        memcpy(part, name, len);
        part[len] = 0;
        name += len + (name[len] == '/');
        append_tf1_part(n, part, only, *name == 0, out);
    }
}

/* PyTorch: wrappers off, `bert.` in front, gamma and beta, dense_act. */
static void translate_pytorch(const char *name, Name *n)
{
    for (size_t i = 0; i < COUNT(wrappers);) {
        if (str_starts_with(name, wrappers[i])) {
            name += strlen(wrappers[i]);
            i = 0;
        } else {
            i++;
        }
    }
    for (size_t i = 0; i < COUNT(encoder_parts); i++)
        if (str_starts_with(name, encoder_parts[i])) append_part(n, "bert");
    bool norm = false; /* the previous part was LayerNorm */
    while (*name && !n->full) {
        size_t len = strcspn(name, ".");
        const char *part = name;
        name += len + (name[len] == '.');
        if (n->len) append(n, ".", 1);
        if (norm && len == 5 && memcmp(part, "gamma", 5) == 0)
            append(n, "weight", 6);
        else if (norm && len == 4 && memcmp(part, "beta", 4) == 0)
            append(n, "bias", 4);
        else if (len == 9 && memcmp(part, "dense_act", 9) == 0)
            append(n, "dense", 5);
        else
            append(n, part, len);
        norm = len == 9 && memcmp(part, "LayerNorm", 9) == 0;
    }
}

static void set_ignored(SourceName *out, const char *why)
{
    out->kind = SOURCE_IGNORED;
    out->why = why;
}

void import_name(const char *name, SourceName *out)
{
    Name n = {0};
    const char *slash = strrchr(name, '/');
    *out = (SourceName){.kind = SOURCE_UNKNOWN};
    if (is_listed(slash ? slash + 1 : name, counters, COUNT(counters))) {
        set_ignored(out, "counter of the optimizer");
        return;
    }
    if (slash && is_listed(slash + 1, slots, COUNT(slots))) {
        set_ignored(out, "optimizer slot");
        return;
    }
    if (is_tf1(name))
        translate_tf1(name, &n, out);
    else
        translate_pytorch(name, &n);
    if (n.full || n.len == 0) return;
    if (is_listed(n.text, buffers, COUNT(buffers))) {
        set_ignored(out, "buffer");
        return;
    }
    for (size_t i = 0; i < COUNT(head_parts); i++)
        if (str_starts_with(n.text, head_parts[i])) out->head = true;
    if (!out->head && !str_starts_with(n.text, "bert.")) return;
    out->kind = SOURCE_WEIGHT;
    memcpy(out->name, n.text, n.len + 1);
    for (size_t i = 0; i < COUNT(tied); i++) {
        if (strcmp(n.text, tied[i].copy) != 0) continue;
        out->kind = SOURCE_TIED;
        strcpy(out->name, tied[i].of);
    }
}

/* ---- heads ---- */

Status import_find_heads(const TensorFile *file, ImportHeads *h)
{
    *h = (ImportHeads){0};
    for (int i = 0; i < tensor_file_count(file); i++) {
        const TensorInfo *t = tensor_file_info(file, i);
        SourceName s;
        import_name(t->name, &s);
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
