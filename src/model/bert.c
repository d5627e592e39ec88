/* BERT (Devlin et al. 2018), described once: parameters and forward instrs. Everything else in a run is a pass over
   these. Reading order: bert_emit at the end, then upwards. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

typedef struct {
    const Model *m;
    const ModelConfig *c;
    Plan *p;
    const EmitOptions *o;
    ModelTensors *t;
} Emit;

#define SITE_EMBEDDINGS          0u
#define SITE_ATTENTION(l)        (3u * (uint32_t)(l) + 1)
#define SITE_ATTENTION_OUTPUT(l) (3u * (uint32_t)(l) + 2)
#define SITE_FFN_OUTPUT(l)       (3u * (uint32_t)(l) + 3)
#define SITE_CLASSIFIER          1023u

static float dropout(const Emit *e, float p) { return e->o->training ? p : 0; }

/* ---- parameters ---- */

/* The parameter `name` (Hugging Face's), or the group that starts with it, as one (rows, cols) tensor. */
__attribute__((format(printf, 5, 6))) static TensorId param(Emit *e, int64_t rows, int64_t cols, const char *name,
                                                            const char *short_name, ...)
{
    char text[48];
    va_list args;
    va_start(args, short_name);
    vsnprintf(text, sizeof text, short_name, args);
    va_end(args);
    int i = params_find(&e->m->params, name);
    CHECK(i >= 0, "no parameter '%s'", name);
    size_t offset = (size_t)e->m->params.params[i].offset * sizeof(float);
    TensorId w = plan_tensor(e->p, REGION_WEIGHT, F32, rows_fixed(rows), cols, "%s", text);
    e->p->tensors[w].offset = offset;
    if (!e->o->training) return w;
    TensorId g = plan_tensor(e->p, REGION_GRAD, F32, rows_fixed(rows), cols, "d%.46s", text);
    e->p->tensors[g].offset = offset;
    e->p->tensors[w].grad = g;
    return w;
}

/* The compute copy LINEAR reads, with the one DGRAD reads as its twin. */
static TensorId compute_copy(Emit *e, TensorId w)
{
    int64_t n = e->p->tensors[w].rows.extra, k = e->p->tensors[w].cols;
    TensorId copy = plan_copy(e->p, w, false, e->o->copy_bytes(e->p->compute, n, k, false));
    size_t bytes = e->o->twins ? e->o->copy_bytes(e->p->compute, n, k, true) : 0;
    if (bytes) {
        TensorId twin = plan_copy(e->p, w, true, bytes);
        e->p->tensors[copy].twin = twin;
    }
    return copy;
}

/* ---- pieces ---- */

__attribute__((format(printf, 6, 7))) static TensorId activation(Emit *e, int layer, int drop, RowKind rows,
                                                                 int64_t cols, const char *format, ...)
{
    char name[48];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    TensorId t = plan_tensor(e->p, REGION_ACT, e->p->compute, rows_of(rows), cols, "%s", name);
    e->p->tensors[t].layer = (int16_t)layer;
    e->p->tensors[t].drop = (int8_t)drop;
    return t;
}

/* y = x·wᵀ + bias with the parameters `hf`.weight and `hf`.bias, named `name`.w and `name`.b in the plan. */
static void linear(Emit *e, int layer, TensorId x, TensorId y, const char *hf_weight, const char *hf_bias,
                   const char *name)
{
    int64_t k = e->p->tensors[x].cols, n = e->p->tensors[y].cols;
    TensorId w = compute_copy(e, param(e, n, k, hf_weight, "%.40s.w", name));
    TensorId b = param(e, n, 1, hf_bias, "%.40s.b", name);
    plan_emit(e->p, OP_LINEAR, PHASE_FORWARD, layer, (OpAttr){.linear = {.k = k, .n = n}}, IDS(x, w, b), IDS(y));
}

static void dense(Emit *e, int layer, TensorId x, TensorId y, const char *hf, const char *name)
{
    char weight[112], bias[112];
    snprintf(weight, sizeof weight, "%s.weight", hf);
    snprintf(bias, sizeof bias, "%s.bias", hf);
    linear(e, layer, x, y, weight, bias, name);
}

/* Owner of a LayerNorm's kept tensor: the layer whose level decides, and the level that gives it up. */
typedef struct {
    int layer, drop;
} Keep;

/* y = LN(dropout(d) + x). Backward keeps y or, in form XHAT, xhat, from which y is made again. */
static TensorId addnorm(Emit *e, int layer, Keep keep, TensorId d, TensorId x, NormForm form, float p, uint32_t site,
                        const char *hf, const char *name)
{
    RowKind rows = e->p->tensors[d].rows.kind;
    int64_t h = e->c->hidden;
    char weight[112], bias[112];
    snprintf(weight, sizeof weight, "%s.weight", hf);
    snprintf(bias, sizeof bias, "%s.bias", hf);
    TensorId gamma = param(e, h, 1, weight, "%.36s.gamma", name), beta = param(e, h, 1, bias, "%.36s.beta", name);
    bool keeps_xhat = form == NORM_FORM_XHAT && e->o->training;
    TensorId y = activation(e, keep.layer, keeps_xhat ? DROP_ALWAYS : keep.drop, rows, h, "%s", name);
    TensorId rstd = activation(e, keep.layer, keep.drop, rows, 1, "%.40s.rstd", name);
    e->p->tensors[rstd].dtype = F32;
    TensorId xhat = keeps_xhat ? activation(e, keep.layer, keep.drop, rows, h, "%.40s.xhat", name) : NONE;
    OpAttr attr = {.norm = {.eps = e->c->norm_eps, .dropout = p, .site = site, .form = form}};
    plan_emit(e->p, OP_ADDNORM, PHASE_FORWARD, layer, attr, IDS(d, x, gamma, beta, e->t->pos, e->t->seq, e->t->ctl),
              IDS(y, rstd, xhat));
    return y;
}

static NormForm form(const Emit *e, int index)
{
    return e->o->norm_forms ? (NormForm)e->o->norm_forms[index] : NORM_FORM_Y;
}

/* ---- the encoder ---- */

static TensorId embeddings(Emit *e)
{
    const ModelConfig *c = e->c;
    int64_t h = c->hidden;
    TensorId word = param(e, c->vocab_padded, h, "bert.embeddings.word_embeddings.weight", "word");
    TensorId position = param(e, c->positions, h, "bert.embeddings.position_embeddings.weight", "position");
    TensorId type = param(e, c->types, h, "bert.embeddings.token_type_embeddings.weight", "type");
    TensorId gamma = param(e, h, 1, "bert.embeddings.LayerNorm.weight", "embed.gamma");
    TensorId beta = param(e, h, 1, "bert.embeddings.LayerNorm.bias", "embed.beta");
    TensorId x = activation(e, 0, LEVEL_INNER, ROWS_TOKENS, h, "l0.x");
    const ModelTensors *t = e->t;
    OpAttr attr = {.embed = {.eps = c->norm_eps, .dropout = dropout(e, c->hidden_dropout), .site = SITE_EMBEDDINGS}};
    plan_emit(e->p, OP_EMBED, PHASE_FORWARD, NONE, attr,
              IDS(t->ids, t->types, t->pos, t->seq, t->ctl, word, position, type, gamma, beta), IDS(x));
    return x;
}

static TensorId attention(Emit *e, int l, TensorId x)
{
    const ModelConfig *c = e->c;
    char weight[112], bias[112], name[24];
    snprintf(weight, sizeof weight, "bert.encoder.layer.%d.attention.self.query.weight", l);
    snprintf(bias, sizeof bias, "bert.encoder.layer.%d.attention.self.query.bias", l);
    snprintf(name, sizeof name, "l%d.qkv", l);
    TensorId qkv = activation(e, l, LEVEL_SELECTIVE, ROWS_TOKENS, 3 * (int64_t)c->hidden, "l%d.qkv", l);
    linear(e, l, x, qkv, weight, bias, name); /* the group of three that starts with query */
    TensorId o = activation(e, l, LEVEL_FULL, ROWS_TOKENS, c->hidden, "l%d.o", l);
    TensorId lse = activation(e, l, LEVEL_FULL, ROWS_TOKENS, c->heads, "l%d.lse", l);
    e->p->tensors[lse].dtype = F32;
    OpAttr attr = {.attention = {.heads = c->heads,
                                 .head_dim = c->head_dim,
                                 .scale = (float)(1 / sqrt((double)c->head_dim)),
                                 .dropout = dropout(e, c->attention_dropout),
                                 .site = SITE_ATTENTION(l),
                                 .longest = e->m->longest}};
    plan_emit(e->p, OP_ATTENTION, PHASE_FORWARD, l, attr, IDS(qkv, e->t->spans, e->t->seq_index, e->t->ctl),
              IDS(o, lse));
    return o;
}

static TensorId layer(Emit *e, int l, TensorId x)
{
    const ModelConfig *c = e->c;
    float p = dropout(e, c->hidden_dropout);
    char hf[96], name[24];
#define HF(part)   (snprintf(hf, sizeof hf, "bert.encoder.layer.%d.%s", l, part), hf)
#define NAME(part) (snprintf(name, sizeof name, "l%d.%s", l, part), name)
    TensorId o = attention(e, l, x);
    TensorId d1 = activation(e, l, DROP_ALWAYS, ROWS_TOKENS, c->hidden, "l%d.d1", l);
    dense(e, l, o, d1, HF("attention.output.dense"), NAME("out"));
    TensorId y1 = addnorm(e, l, (Keep){l, LEVEL_FULL}, d1, x, form(e, 2 * l), p, SITE_ATTENTION_OUTPUT(l),
                          HF("attention.output.LayerNorm"), NAME("y1"));
    TensorId pre = activation(e, l, LEVEL_FFN, ROWS_TOKENS, c->ffn, "l%d.pre", l);
    dense(e, l, y1, pre, HF("intermediate.dense"), NAME("up"));
    TensorId g = activation(e, l, LEVEL_LEAN, ROWS_TOKENS, c->ffn, "l%d.g", l);
    plan_emit(e->p, OP_GELU, PHASE_FORWARD, l, (OpAttr){.gelu = {c->gelu}}, IDS(pre), IDS(g));
    TensorId d2 = activation(e, l, DROP_ALWAYS, ROWS_TOKENS, c->hidden, "l%d.d2", l);
    dense(e, l, g, d2, HF("output.dense"), NAME("down"));
    bool last = l + 1 == c->layers; /* a layer's output is the next layer's input, and that layer's to keep */
    snprintf(name, sizeof name, "l%d.x", l + 1);
    return addnorm(e, l, last ? (Keep){NONE, DROP_NEVER} : (Keep){l + 1, LEVEL_INNER}, d2, y1, form(e, 2 * l + 1), p,
                   SITE_FFN_OUTPUT(l), HF("output.LayerNorm"), name);
#undef HF
#undef NAME
}

/* ---- heads ---- */

static TensorId input(Emit *e, Dtype dtype, RowKind rows, int64_t cols, const char *name)
{
    return plan_tensor(e->p, REGION_INPUT, dtype, rows_of(rows), cols, "%s", name);
}

static TensorId pooled(Emit *e, TensorId x)
{
    int64_t h = e->c->hidden;
    TensorId first = activation(e, NONE, DROP_NEVER, ROWS_SEQS, h, "first");
    plan_emit(e->p, OP_GATHER, PHASE_FORWARD, NONE, (OpAttr){0}, IDS(x, e->t->first, e->t->ctl), IDS(first));
    TensorId pre = activation(e, NONE, DROP_NEVER, ROWS_SEQS, h, "pooler.pre");
    dense(e, NONE, first, pre, "bert.pooler.dense", "pooler");
    TensorId y = activation(e, NONE, DROP_NEVER, ROWS_SEQS, h, "pooled");
    plan_emit(e->p, OP_TANH, PHASE_FORWARD, NONE, (OpAttr){0}, IDS(pre), IDS(y));
    return y;
}

/* Logits in fp32 for the host, and their loss. */
static void sequence_loss(Emit *e, Op op, TensorId x, int slot, const char *hf, const char *name)
{
    int32_t labels = e->m->head.labels;
    ModelTensors *t = e->t;
    t->labels = input(e, op == OP_MSE ? F32 : I32, ROWS_SEQS, 1, "labels");
    t->logits = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_SEQS), labels, "logits");
    dense(e, NONE, x, t->logits, hf, name);
    t->loss = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_SEQS), 1, "loss");
    TensorId dlogits = e->o->training ? activation(e, NONE, DROP_NEVER, ROWS_SEQS, labels, "dlogits") : NONE;
    plan_emit(e->p, op, PHASE_FORWARD, NONE, (OpAttr){.loss = {.slot = slot, .classes = labels}},
              IDS(t->logits, t->labels, t->ctl, t->scaling), IDS(dlogits, t->loss, t->stats));
}

static void classifier_head(Emit *e, TensorId x)
{
    TensorId y = pooled(e, x);
    float p = dropout(e, e->c->classifier_dropout);
    if (p > 0) {
        TensorId d = activation(e, NONE, DROP_NEVER, ROWS_SEQS, e->c->hidden, "pooled.dropped");
        plan_emit(e->p, OP_DROPOUT, PHASE_FORWARD, NONE, (OpAttr){.dropout = {p, SITE_CLASSIFIER}},
                  IDS(y, e->t->seq_index, e->t->ctl), IDS(d));
        y = d;
    }
    sequence_loss(e, e->m->head.kind == HEAD_REGRESSION ? OP_MSE : OP_XENT, y, 0, "classifier", "classifier");
}

/* MLM on the masked positions only; the decoder is tied to the word embedding. */
static void mlm_head(Emit *e, TensorId x)
{
    const ModelConfig *c = e->c;
    int64_t h = c->hidden;
    ModelTensors *t = e->t;
    t->masked = input(e, I32, ROWS_MASKED, 1, "masked");
    t->masked_labels = input(e, I32, ROWS_MASKED, 1, "masked_labels");
    TensorId rows = activation(e, NONE, DROP_NEVER, ROWS_MASKED, h, "mlm.rows");
    plan_emit(e->p, OP_GATHER, PHASE_FORWARD, NONE, (OpAttr){0}, IDS(x, t->masked, t->ctl), IDS(rows));
    TensorId pre = activation(e, NONE, DROP_NEVER, ROWS_MASKED, h, "mlm.pre");
    dense(e, NONE, rows, pre, "cls.predictions.transform.dense", "mlm.transform");
    TensorId g = activation(e, NONE, DROP_NEVER, ROWS_MASKED, h, "mlm.g");
    plan_emit(e->p, OP_GELU, PHASE_FORWARD, NONE, (OpAttr){.gelu = {c->gelu}}, IDS(pre), IDS(g));
    TensorId y = addnorm(e, NONE, (Keep){NONE, DROP_NEVER}, g, NONE, form(e, 2 * c->layers), 0, 0,
                         "cls.predictions.transform.LayerNorm", "mlm.y");
    TensorId word = plan_find(e->p, "word"), w = compute_copy(e, word);
    TensorId bias = param(e, c->vocab_padded, 1, "cls.predictions.bias", "decoder.b");
    TensorId dh = e->o->training ? activation(e, NONE, DROP_NEVER, ROWS_MASKED, h, "mlm.dy") : NONE;
    t->mlm_loss = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_MASKED), 1, "mlm_loss");
    OpAttr attr = {.loss = {.slot = 0, .classes = c->vocab_size, .k = h, .n = c->vocab_padded}};
    bool training = e->o->training;
    plan_emit(e->p, OP_MLM_XENT, PHASE_FORWARD, NONE, attr,
              IDS(y, w, training ? e->p->tensors[w].twin : NONE, bias, t->masked_labels, t->ctl, t->scaling),
              IDS(dh, t->mlm_loss, t->stats, training ? e->p->tensors[word].grad : NONE,
                  training ? e->p->tensors[bias].grad : NONE));
}

/* ---- the whole ---- */

static void inputs(Emit *e)
{
    ModelTensors *t = e->t;
    t->ids = input(e, I32, ROWS_TOKENS, 1, "ids");
    t->types = input(e, I32, ROWS_TOKENS, 1, "types");
    t->pos = input(e, I32, ROWS_TOKENS, 1, "pos");
    t->seq = input(e, I32, ROWS_TOKENS, 1, "seq");
    t->spans = input(e, I32, ROWS_SEQS, 2, "spans");
    t->seq_index = input(e, I32, ROWS_SEQS, 1, "seq_index");
    t->first = input(e, I32, ROWS_SEQS, 1, "first");
    t->ctl = plan_tensor(e->p, REGION_INPUT, U8, rows_fixed(1), sizeof(Ctl), "ctl");
    t->stats = plan_tensor(e->p, REGION_OUTPUT, U8, rows_fixed(1), sizeof(Stats), "stats");
}

static TensorId flat(Emit *e, Region region, int64_t start, int64_t size, const char *name)
{
    TensorId t = plan_tensor(e->p, region, F32, rows_fixed(size), 1, "%s", name);
    e->p->tensors[t].offset = (size_t)start * sizeof(float);
    return t;
}

static void flat_space(Emit *e)
{
    ModelTensors *t = e->t;
    int64_t size = e->m->params.size, moments = e->o->moments ? e->o->moments : size;
    int64_t v = (moments + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    t->weights = flat(e, REGION_WEIGHT, 0, size, "weights");
    if (!e->o->training) return;
    t->grads = flat(e, REGION_GRAD, 0, size, "grads");
    t->moments_m = flat(e, REGION_MOMENT, 0, moments, "m");
    t->moments_v = flat(e, REGION_MOMENT, v, moments, "v");
    t->segments = plan_tensor(e->p, REGION_CONST, U8, rows_fixed(e->m->params.count), sizeof(Segment), "segments");
    if (e->o->compute != F16) return;
    t->scaling = plan_tensor(e->p, REGION_MOMENT, U8, rows_fixed(1), sizeof(LossScaling), "scaling");
    e->p->tensors[t->scaling].offset = 2 * (size_t)v * sizeof(float); /* behind v */
}

void bert_emit(const Model *m, Plan *p, const EmitOptions *options, ModelTensors *t)
{
    memset(t, 0xff, sizeof *t); /* all NONE */
    Emit e = {m, &m->config, p, options, t};
    inputs(&e);
    flat_space(&e);
    TensorId x = embeddings(&e);
    for (int l = 0; l < m->config.layers; l++) x = layer(&e, l, x);
    switch (m->head.kind) {
    case HEAD_CLASSIFIER:
    case HEAD_REGRESSION:
        classifier_head(&e, x);
        break;
    case HEAD_PRETRAINING:
        mlm_head(&e, x);
        if (m->head.labels) sequence_loss(&e, OP_XENT, pooled(&e, x), 1, "cls.seq_relationship", "nsp");
        break;
    default:
        break;
    }
}
