#include "train/run/adopt.h"

enum { LEAST_LENGTH = 3 }; /* --max-seq-length's least: room for [CLS] and two [SEP] */

typedef struct {
    const Config *given;
    AdoptKind kind;
    Adopted *a;
} Adoption;

static bool is_given(const Config *c, int option) { return c->source[option] > FROM_PRESET; }
static bool stays(const Adoption *w, int option) { return w->kind == ADOPT_NOTHING || is_given(w->given, option); }

static void say(Buf *b, int option, const char *value) { buf_printf(b, " --%s %s", config_flag(option), value); }

static void adopt_count(Adoption *w, int option, int64_t value, int64_t *to)
{
    if (value <= 0 || value == *to) return;
    say(stays(w, option) ? &w->a->differ : &w->a->taken, option, SHORT_TEXT("%lld", (long long)value));
    if (!stays(w, option)) *to = value;
}

static void adopt_text(Adoption *w, int option, char *value, ConfigText *to)
{
    if (!value || !config_option_of(option, w->given->command) || strcmp(value, *to) == 0) return;
    say(is_given(w->given, option) ? &w->a->differ : &w->a->taken, option, value);
    if (!is_given(w->given, option)) *to = value;
}

Status adopt_options(Run *r, AdoptKind kind, Adopted *a)
{
    char *path = import_find_config(r->c->model);
    Adoption w = {.given = r->c, .kind = kind, .a = a};
    ModelConfig sizes = {0};
    Status status = OK;
    if (!*r->c->model || !path) goto done;
    TRY_DONE(model_config_read(*r->c->model_config ? r->c->model_config : path, &sizes));
    TRY_DONE(import_use(r->c->model, &a->use));
    a->config = *r->c;
    ModelUse *use = &a->use;
    if (use->max_length == 0 || use->max_length > sizes.positions) use->max_length = sizes.positions;
    if (!stays(&w, OPTION_max_seq_length) && use->max_length < LEAST_LENGTH)
        TRY_DONE(fail(E_FORMAT,
                      "%s: its texts have %lld tokens at most ('max_seq_length' in sentence_bert_config.json, "
                      "'model_max_length' in tokenizer_config.json, or 'max_position_embeddings'); expected %d or "
                      "more: correct it, or give --max-seq-length",
                      r->c->model, (long long)use->max_length, LEAST_LENGTH));
    bool foreign = kind == ADOPT_WINDOWS && !use->doc_stride && a->config.max_seq_length < use->max_length;
    if (!foreign) adopt_count(&w, OPTION_max_seq_length, use->max_length, &a->config.max_seq_length);
    if (kind == ADOPT_WINDOWS) {
        adopt_count(&w, OPTION_doc_stride, use->doc_stride, &a->config.doc_stride);
        adopt_count(&w, OPTION_max_query_length, use->max_query_length, &a->config.max_query_length);
    }
    if (kind == ADOPT_COLUMNS) {
        adopt_text(&w, OPTION_text_columns, use->text_columns, &a->config.text_columns);
        adopt_text(&w, OPTION_label_column, use->label_column, &a->config.label_column);
    }
    a->from = r->given->model;
    r->c = &a->config;
done:
    model_config_free(&sizes);
    free(path);
    return status;
}

/* Takes the folder's word in place of auto. */
static void adopt_choice(Adopted *a, int option, char *word, ConfigChoice *to)
{
    bool open = strcmp(*to, "auto") == 0;
    if (strcmp(*to, word) == 0) return;
    say(open ? &a->taken : &a->differ, option, word);
    if (open) *to = word;
}

Status adopt_embedding(const Config *given, const Config **of, Adopted *a)
{
    static char mean[] = "mean", cls[] = "cls", on[] = "on", off[] = "off";
    const Embedding *e = &a->embedding;
    Config *c = &a->config;
    *c = **of;
    *of = c;
    if (!*c->model) return OK;
    TRY(import_embedding(c->model, &a->embedding));
    c->model = e->model;
    a->from = given->model;
    if (!e->said) return OK;
    adopt_choice(a, OPTION_pooling, e->pooling == POOLING_CLS ? cls : mean, &c->pooling);
    adopt_choice(a, OPTION_normalize, e->normalized ? on : off, &c->normalize);
    return OK;
}

void adopt_pooling(const Config *c, Model *m)
{
    m->pooling = strcmp(c->pooling, "cls") == 0 ? POOLING_CLS : POOLING_MEAN;
    m->normalized = strcmp(c->normalize, "on") == 0;
}

void adopt_vectors(Run *r, const Adopted *a)
{
    adopt_pooling(r->c, &r->model);
    if (strcmp(r->c->do_lower_case, "auto") == 0) import_embedding_case(&a->embedding, &r->text.options);
}

void adopt_log(const Adopted *a)
{
    if (a->taken.len) log_info("as %s says:%s", a->from, a->taken.data);
    if (a->differ.len) log_info("the options differ from %s, which says:%s", a->from, a->differ.data);
}

void adopt_free(Adopted *a)
{
    import_use_free(&a->use);
    import_embedding_free(&a->embedding);
    BUF_FREE(&a->taken, &a->differ);
}
