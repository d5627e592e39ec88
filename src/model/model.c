/* A model's parameter table, in the order in which backward finishes gradients. */
#include "model/model.h"

typedef enum { ALONE, GROUP_MEMBER } Placing; /* a member follows the parameter before it without a gap */

typedef struct {
    ParamTable *table;
    int layer;
    bool head;
} TableBuilder;

static int64_t align_up(int64_t n) { return (n + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN; }

/* `name`.weight or `name`.bias. */
static void add_param(TableBuilder *a, Placing placing, int64_t rows, int64_t cols, Init init, const char *name,
                      const char *part)
{
    ParamTable *t = a->table;
    bool matrix = init == INIT_NORMAL;
    if (placing == ALONE) t->size = align_up(t->size);
    MEM_PUSH(t->params, t->count, t->cap,
             (Param){.rows = rows,
                     .cols = cols,
                     .n_dims = matrix ? 2 : 1,
                     .padded = rows,
                     .offset = t->size,
                     .init = init,
                     .decay = matrix,
                     .head = a->head,
                     .layer = (int16_t)a->layer});
    snprintf(t->params[t->count - 1].name, sizeof t->params->name, "%s.%s", name, part);
    t->size += rows * cols;
}

static void add_dense(TableBuilder *a, int64_t out, int64_t in, const char *name)
{
    add_param(a, ALONE, out, in, INIT_NORMAL, name, "weight");
    add_param(a, ALONE, out, 1, INIT_ZERO, name, "bias");
}

static void add_norm(TableBuilder *a, int64_t n, const char *name)
{
    add_param(a, ALONE, n, 1, INIT_ONE, name, "weight");
    add_param(a, ALONE, n, 1, INIT_ZERO, name, "bias");
}

/* The vocabulary is held padded; the pad rows stay 0. */
static void pad_vocabulary(ParamTable *t, const ModelConfig *c)
{
    Param *p = &t->params[t->count - 1];
    t->size += (c->vocab_padded - c->vocab_size) * p->cols;
    p->padded = c->vocab_padded;
}

static void add_layer(TableBuilder *a, const ModelConfig *c, int l)
{
    static const char *const qkv[] = {"attention.self.query", "attention.self.key", "attention.self.value"};
    int64_t h = c->hidden, f = c->ffn;
    a->layer = l;
#define NAMED(part) SHORT_TEXT("bert.encoder.layer.%d.%s", l, part)
    add_norm(a, h, NAMED("output.LayerNorm"));
    add_dense(a, h, f, NAMED("output.dense"));
    add_dense(a, f, h, NAMED("intermediate.dense"));
    add_norm(a, h, NAMED("attention.output.LayerNorm"));
    add_dense(a, h, h, NAMED("attention.output.dense"));
    for (int i = 0; i < 3; i++) add_param(a, i ? GROUP_MEMBER : ALONE, h, h, INIT_NORMAL, NAMED(qkv[i]), "weight");
    for (int i = 0; i < 3; i++) add_param(a, i ? GROUP_MEMBER : ALONE, h, 1, INIT_ZERO, NAMED(qkv[i]), "bias");
#undef NAMED
}

static void add_heads(TableBuilder *a, const ModelConfig *c, Head head)
{
    static const char *const labels[] = {[HEAD_CLASSIFIER] = "classifier",
                                         [HEAD_REGRESSION] = "classifier",
                                         [HEAD_MULTI] = "classifier",
                                         [HEAD_PRETRAINING] = "cls.seq_relationship",
                                         [HEAD_SPAN] = "qa_outputs"};
    a->head = true;
    if (head.labels > 0) add_dense(a, head.labels, c->hidden, labels[head.kind]);
    if (head.labels > 0 && head.kind != HEAD_SPAN) add_dense(a, c->hidden, c->hidden, "bert.pooler.dense");
    if (head.kind != HEAD_PRETRAINING) return;
    add_param(a, ALONE, c->vocab_size, 1, INIT_ZERO, "cls.predictions", "bias");
    pad_vocabulary(a->table, c);
    add_norm(a, c->hidden, "cls.predictions.transform.LayerNorm");
    add_dense(a, c->hidden, c->hidden, "cls.predictions.transform.dense");
}

static void add_embeddings(TableBuilder *a, const ModelConfig *c)
{
    add_norm(a, c->hidden, "bert.embeddings.LayerNorm");
    if (c->types)
        add_param(a, ALONE, c->types, c->hidden, INIT_NORMAL, "bert.embeddings.token_type_embeddings", "weight");
    add_param(a, ALONE, c->positions, c->hidden, INIT_NORMAL, "bert.embeddings.position_embeddings", "weight");
    add_param(a, ALONE, c->vocab_size, c->hidden, INIT_NORMAL, "bert.embeddings.word_embeddings", "weight");
    pad_vocabulary(a->table, c);
}

Status model_init(Model *m, ModelConfig config, Head head)
{
    *m = (Model){.config = config, .head = head, .longest = config.positions};
    if (config.untied && head.kind == HEAD_PRETRAINING)
        return fail(
            E_FORMAT,
            "the model's config.json: 'tie_word_embeddings' or 'tie_weights_' is false; Cairn pretrains with an "
            "MLM decoder that is the word embedding");
    if (config.kind == MODEL_DISTILBERT && head.kind == HEAD_PRETRAINING && head.labels)
        return fail(E_USAGE, "a DistilBERT ('model_type') has no head for next-sentence prediction; give --nsp off");
    m->params.initializer_range = config.initializer_range;
    m->params.kind = config.kind;
    TableBuilder a = {.table = &m->params, .layer = -1};
    if (head.kind == HEAD_EMBEDDING)
        m->head.labels = config.hidden;
    else
        add_heads(&a, &m->config, head);
    a.head = false;
    for (int l = config.layers - 1; l >= 0; l--) add_layer(&a, &m->config, l);
    a.layer = -1;
    add_embeddings(&a, &m->config);
    m->params.size = align_up(m->params.size);
    m->stages = mem_array(1, sizeof *m->stages);
    m->stages[0] = (Stage){0, config.layers};
    m->n_stages = 1;
    return OK;
}

void model_free(Model *m)
{
    model_config_free(&m->config);
    params_free(&m->params);
    free(m->stages);
    *m = (Model){0};
}

/* ---- LayerNorm forms ---- */

/* `name`: the parameter γ, which β follows. */
static uint8_t form_of(const Model *m, const float *weights, const char *name)
{
    int g = params_find(&m->params, name);
    if (g < 0) return NORM_FORM_Y; /* of another part */
    const float *gamma = weights + m->params.params[g].offset, *beta = weights + m->params.params[g + 1].offset;
    for (int64_t i = 0; i < m->params.params[g].rows; i++)
        if (!(fabsf(gamma[i]) >= fmaxf(1, fabsf(beta[i])) / 8)) return NORM_FORM_XHAT;
    return NORM_FORM_Y;
}

void model_norm_forms(const Model *m, const float *weights, uint8_t *forms)
{
    for (int l = 0; l < m->config.layers; l++) {
        forms[2 * l] = form_of(m, weights, SHORT_TEXT("bert.encoder.layer.%d.attention.output.LayerNorm.weight", l));
        forms[2 * l + 1] = form_of(m, weights, SHORT_TEXT("bert.encoder.layer.%d.output.LayerNorm.weight", l));
    }
    forms[2 * m->config.layers] = form_of(m, weights, "cls.predictions.transform.LayerNorm.weight");
}
