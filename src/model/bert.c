/* BERT (Devlin et al. 2018) and DistilBERT, described once: parameters and forward instrs. Everything else in a run is
   a pass over these. Reading order: bert_emit at the end, then upwards. */

#include "model/model.h"

typedef struct {
    const Model *m;
    const ModelConfig *c;
    Plan *p;
    const EmitOptions *o;
    ModelTensors *t;
    int found; /* the parameter that was found last */
} Emit;

#define SITE_EMBEDDINGS          0u
#define SITE_ATTENTION(l)        (3u * (uint32_t)(l) + 1)
#define SITE_ATTENTION_OUTPUT(l) (3u * (uint32_t)(l) + 2)
#define SITE_FFN_OUTPUT(l)       (3u * (uint32_t)(l) + 3)
#define SITE_HEAD                1023u

static float dropout_rate(const Emit *e, float p) { return e->o->training ? p : 0; }

/* ---- parameters ---- */

/* The table goes through the model from its end, weights before biases, so that the next one is mostly near the last
   that was found: right behind it or before it. */
static int find_param(Emit *e, const char *name)
{
    const ParamTable *t = &e->m->params;
    int i = (e->found + 4) % t->count;
    for (int k = 0; k < t->count; k++) {
        if (strcmp(t->params[i].name, name) == 0) return e->found = i;
        i = i > 0 ? i - 1 : t->count - 1;
    }
    CHECK(0, "no parameter '%s'", name);
    return -1;
}

/* The parameter `name` (Hugging Face's), or the group that starts with it, as one (rows, cols) tensor. */
static TensorId add_param(Emit *e, int64_t rows, int64_t cols, const char *name, const char *short_name)
{
    int i = find_param(e, name);
    size_t offset = (size_t)e->m->params.params[i].offset * sizeof(float);
    TensorId w = plan_tensor(e->p, REGION_WEIGHT, F32, rows_fixed(rows), cols, "%s", short_name);
    e->p->tensors[w].offset = offset;
    if (!e->o->training) return w;
    TensorId g = plan_tensor(e->p, REGION_GRAD, F32, rows_fixed(rows), cols, "d%.46s", short_name);
    e->p->tensors[g].offset = offset;
    e->p->tensors[w].grad = g;
    return w;
}

/* The parameter `hf`.`part`, named `name`.`brief` in the plan. */
static TensorId add_part(Emit *e, int64_t rows, int64_t cols, const char *hf, const char *part, const char *name,
                         const char *brief)
{
    return add_param(e, rows, cols, SHORT_TEXT("%s.%s", hf, part), SHORT_TEXT("%.40s.%s", name, brief));
}

/* The compute copy LINEAR reads, with the one DGRAD reads as its twin. */
static TensorId compute_copy(Emit *e, TensorId w)
{
    int64_t n = e->p->tensors[w].rows.extra, k = e->p->tensors[w].cols;
    TensorId copy = plan_copy(e->p, w, false, e->o->copy_bytes(e->p->compute, n, k, false));
    size_t bytes = e->o->training || e->o->twins ? e->o->copy_bytes(e->p->compute, n, k, true) : 0;
    if (bytes) {
        TensorId twin = plan_copy(e->p, w, true, bytes);
        e->p->tensors[copy].twin = twin;
    }
    return copy;
}

/* ---- pieces ---- */

__attribute__((format(printf, 6, 7))) static TensorId add_activation(Emit *e, int layer, int part, RowKind rows,
                                                                     int64_t cols, const char *format, ...)
{
    char name[48];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    TensorId t = plan_tensor(e->p, REGION_ACT, e->p->compute, rows_of(rows), cols, "%s", name);
    e->p->tensors[t].layer = (int16_t)layer;
    e->p->tensors[t].part = (int8_t)part;
    return t;
}

/* y = x·wᵀ + bias with the parameters `hf`.weight and `hf`.bias, named `name`.w and `name`.b in the plan. */
static void emit_dense(Emit *e, int layer, TensorId x, TensorId y, const char *hf, const char *name)
{
    int64_t k = e->p->tensors[x].cols, n = e->p->tensors[y].cols;
    TensorId w = compute_copy(e, add_part(e, n, k, hf, "weight", name, "w"));
    TensorId b = add_part(e, n, 1, hf, "bias", name, "b");
    if (e->o->rounded_biases && e->p->tensors[y].dtype != F32)
        b = plan_copy(e->p, b, false, (size_t)n * dtype_size(e->p->compute));
    plan_emit(e->p, OP_LINEAR, PHASE_FORWARD, layer, (OpAttr){.linear = {.k = k, .n = n}}, IDS(x, w, b), IDS(y, NONE));
}

/* Owner of a LayerNorm's kept tensor: the layer whose choice decides, and the part of it. */
typedef struct {
    int layer, part;
} Keep;

/* y = LN(dropout(d) + x). Backward keeps y or, in form XHAT, xhat, from which y is made again. */
static TensorId emit_addnorm(Emit *e, int layer, Keep keep, TensorId d, TensorId x, NormForm form, float p,
                             uint32_t site, const char *hf, const char *name)
{
    const ModelTensors *t = e->t;
    RowKind rows = e->p->tensors[d].rows.kind;
    int64_t h = e->c->hidden;
    TensorId gamma = add_part(e, h, 1, hf, "weight", name, "gamma"), beta = add_part(e, h, 1, hf, "bias", name, "beta");
    bool keeps_xhat = form == NORM_FORM_XHAT && e->o->training;
    TensorId y = add_activation(e, keep.layer, keeps_xhat ? PART_NEVER : keep.part, rows, h, "%s", name);
    TensorId rstd = add_activation(e, keep.layer, keep.part, rows, 1, "%.40s.rstd", name);
    e->p->tensors[rstd].dtype = F32;
    TensorId xhat = keeps_xhat ? add_activation(e, keep.layer, keep.part, rows, h, "%.40s.xhat", name) : NONE;
    OpAttr attr = {.norm = {.eps = e->c->norm_eps, .dropout = p, .site = site, .form = form}};
    bool read = rows == ROWS_READ;
    plan_emit(e->p, OP_ADDNORM, PHASE_FORWARD, layer, attr,
              IDS(d, x, gamma, beta, read ? t->read_pos : t->pos, read ? t->read_seq : t->seq, t->ctl),
              IDS(y, rstd, xhat));
    return y;
}

static NormForm norm_form(const Emit *e, int index)
{
    return e->o->layers->norm_forms ? (NormForm)e->o->layers->norm_forms[index] : NORM_FORM_Y;
}

/* ---- the encoder ---- */

static TensorId emit_embeddings(Emit *e)
{
    const ModelConfig *c = e->c;
    int64_t h = c->hidden;
    TensorId word = add_param(e, c->vocab_padded, h, WORD_EMBEDDING, "word");
    TensorId position = add_param(e, c->positions, h, "bert.embeddings.position_embeddings.weight", "position");
    TensorId type = c->types ? add_param(e, c->types, h, "bert.embeddings.token_type_embeddings.weight", "type") : NONE;
    TensorId gamma = add_part(e, h, 1, "bert.embeddings.LayerNorm", "weight", "embed", "gamma");
    TensorId beta = add_part(e, h, 1, "bert.embeddings.LayerNorm", "bias", "embed", "beta");
    TensorId x = add_activation(e, 0, PART_INPUT, ROWS_TOKENS, h, "l0.x");
    const ModelTensors *t = e->t;
    OpAttr attr = {
        .embed = {.eps = c->norm_eps, .dropout = dropout_rate(e, c->hidden_dropout), .site = SITE_EMBEDDINGS}};
    plan_emit(e->p, OP_EMBED, PHASE_FORWARD, NONE, attr,
              IDS(t->ids, t->types, t->pos, t->seq, t->ctl, word, position, type, gamma, beta), IDS(x));
    return x;
}

static TensorId emit_attention(Emit *e, int l, TensorId x)
{
    const ModelConfig *c = e->c;
    TensorId qkv = add_activation(e, l, PART_QKV, ROWS_TOKENS, 3 * (int64_t)c->hidden, "l%d.qkv", l);
    /* the group of three starts with query */
    emit_dense(e, l, x, qkv, SHORT_TEXT("bert.encoder.layer.%d.attention.self.query", l), SHORT_TEXT("l%d.qkv", l));
    TensorId o = add_activation(e, l, PART_O, ROWS_TOKENS, c->hidden, "l%d.o", l);
    TensorId lse = add_activation(e, l, PART_O, ROWS_TOKENS, c->heads, "l%d.lse", l);
    e->p->tensors[lse].dtype = F32;
    OpAttr attr = {.attention = {.heads = c->heads,
                                 .head_dim = c->head_dim,
                                 .scale = (float)(1 / sqrt((double)c->head_dim)),
                                 .dropout = dropout_rate(e, c->attention_dropout),
                                 .site = SITE_ATTENTION(l),
                                 .longest = e->m->longest}};
    plan_emit(e->p, OP_ATTENTION, PHASE_FORWARD, l, attr, IDS(qkv, e->t->spans, e->t->seq_index, e->t->ctl),
              IDS(o, lse));
    return o;
}

/* The rows of x that `index` names. */
static TensorId emit_gather(Emit *e, int layer, int part, RowKind rows, TensorId x, TensorId index, const char *name)
{
    TensorId y = add_activation(e, layer, part, rows, e->c->hidden, "%s", name);
    plan_emit(e->p, OP_GATHER, PHASE_FORWARD, layer, (OpAttr){0}, IDS(x, index, e->t->ctl), IDS(y));
    return y;
}

/* `rows`: those that the layer computes behind its attention; `top`: it is the last layer of a stage, whose output no
   layer of this plan keeps. */
static TensorId emit_layer(Emit *e, int l, TensorId x, RowKind rows, bool top)
{
    const ModelConfig *c = e->c;
    float p = dropout_rate(e, c->hidden_dropout);
#define HF(part)   SHORT_TEXT("bert.encoder.layer.%d.%s", l, part)
#define NAME(part) SHORT_TEXT("l%d.%s", l, part)
    TensorId o = emit_attention(e, l, x);
    if (rows == ROWS_READ) {
        o = emit_gather(e, l, PART_O, rows, o, e->t->read, NAME("read_o"));
        x = emit_gather(e, l, PART_NEVER, rows, x, e->t->read, NAME("read_x"));
    }
    TensorId d1 = add_activation(e, l, PART_NEVER, rows, c->hidden, "l%d.d1", l);
    emit_dense(e, l, o, d1, HF("attention.output.dense"), NAME("out"));
    TensorId y1 = emit_addnorm(e, l, (Keep){l, PART_Y1}, d1, x, norm_form(e, 2 * l), c->kind == MODEL_BERT ? p : 0,
                               SITE_ATTENTION_OUTPUT(l), HF("attention.output.LayerNorm"), NAME("y1"));
    TensorId pre = add_activation(e, l, PART_PRE, rows, c->ffn, "l%d.pre", l);
    emit_dense(e, l, y1, pre, HF("intermediate.dense"), NAME("up"));
    TensorId g = add_activation(e, l, PART_G, rows, c->ffn, "l%d.g", l);
    plan_emit(e->p, OP_GELU, PHASE_FORWARD, l, (OpAttr){.gelu = {c->gelu}}, IDS(pre), IDS(g));
    TensorId d2 = add_activation(e, l, PART_NEVER, rows, c->hidden, "l%d.d2", l);
    emit_dense(e, l, g, d2, HF("output.dense"), NAME("down"));
    /* A layer's output is the next layer's input, and that layer's to keep. */
    return emit_addnorm(e, l, top ? (Keep){NONE, PART_ALWAYS} : (Keep){l + 1, PART_INPUT}, d2, y1,
                        norm_form(e, 2 * l + 1), p, SITE_FFN_OUTPUT(l), HF("output.LayerNorm"),
                        SHORT_TEXT("l%d.x", l + 1));
#undef HF
#undef NAME
}

/* ---- heads ---- */

typedef enum { ALWAYS, READ, LABELS, MASKED } InputPlans;

/* Adds the inputs that these plans have. Labels are as the head's loss reads them. */
static void add_inputs(Emit *e, InputPlans plans)
{
    HeadKind head = e->m->head.kind;
    bool soft = head == HEAD_CLASSIFIER && e->o->training && e->m->soft_labels;
    bool scores = plans == LABELS && (head == HEAD_REGRESSION || head == HEAD_MULTI || soft);
    int64_t labels = head == HEAD_MULTI || soft ? e->m->head.labels : head == HEAD_SPAN ? 2 : 1;
#define X(name, rows, columns, when)                                                                                   \
    if (plans == when)                                                                                                 \
        e->t->name = plan_tensor(e->p, REGION_INPUT, scores ? F32 : I32, rows_of(ROWS_##rows),                         \
                                 plans == LABELS ? labels : columns, #name);
    MICRO_INPUT_LIST(X)
#undef X
}

static TensorId emit_pooled(Emit *e, TensorId x)
{
    int64_t h = e->c->hidden;
    TensorId first = emit_gather(e, NONE, PART_ALWAYS, ROWS_SEQS, x, e->t->first, "first");
    TensorId pre = add_activation(e, NONE, PART_ALWAYS, ROWS_SEQS, h, "pooler.pre");
    emit_dense(e, NONE, first, pre, "bert.pooler.dense", "pooler");
    TensorId y = add_activation(e, NONE, PART_ALWAYS, ROWS_SEQS, h, "pooled");
    OpAttr attr = {.activate = {e->c->kind == MODEL_BERT ? ACTIVATE_TANH : ACTIVATE_RELU}};
    plan_emit(e->p, OP_ACTIVATE, PHASE_FORWARD, NONE, attr, IDS(pre), IDS(y));
    return y;
}

/* Logits in fp32 for the host, and room for their loss. Returns room for their gradient; NONE: it is not wanted. */
static TensorId emit_logits(Emit *e, RowKind rows, TensorId x, const char *hf, const char *name)
{
    ModelTensors *t = e->t;
    int32_t labels = e->m->head.labels;
    add_inputs(e, LABELS);
    t->logits = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(rows), labels, "logits");
    emit_dense(e, NONE, x, t->logits, hf, name);
    t->loss = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_SEQS), 1, "loss");
    return e->o->training ? add_activation(e, NONE, PART_ALWAYS, rows, labels, "dlogits") : NONE;
}

static void emit_sequence_loss(Emit *e, Op op, TensorId x, int slot, const char *hf, const char *name)
{
    int32_t labels = e->m->head.labels;
    ModelTensors *t = e->t;
    TensorId dlogits = emit_logits(e, ROWS_SEQS, x, hf, name);
    plan_emit(e->p, op, PHASE_FORWARD, NONE, (OpAttr){.loss = {.slot = slot, .classes = labels}},
              IDS(t->logits, t->labels, t->ctl, t->scaling), IDS(dlogits, t->loss, t->stats));
}

/* x, dropped at the rate of a head; `pos` is NONE where the rows are sequences. */
static TensorId emit_dropout(Emit *e, RowKind rows, float p, TensorId x, TensorId seq, TensorId pos, const char *name)
{
    if (dropout_rate(e, p) <= 0) return x;
    TensorId y = add_activation(e, NONE, PART_ALWAYS, rows, e->c->hidden, "%s", name);
    plan_emit(e->p, OP_DROPOUT, PHASE_FORWARD, NONE, (OpAttr){.dropout = {p, SITE_HEAD}}, IDS(x, seq, e->t->ctl, pos),
              IDS(y));
    return y;
}

/* Each token's logits for the start and the end of the answer, without a pooler. */
static void emit_span(Emit *e, TensorId x)
{
    ModelTensors *t = e->t;
    x = emit_dropout(e, ROWS_TOKENS, e->c->span_dropout, x, t->seq, t->pos, "span.dropped");
    TensorId dlogits = emit_logits(e, ROWS_TOKENS, x, "qa_outputs", "span");
    plan_emit(e->p, OP_SPAN_XENT, PHASE_FORWARD, NONE, (OpAttr){.loss = {.slot = 0, .classes = 2}},
              IDS(t->spans, t->labels, t->logits, t->ctl, t->scaling), IDS(dlogits, t->loss, t->stats));
}

static void emit_classifier(Emit *e, TensorId x)
{
    TensorId y = emit_pooled(e, x);
    y = emit_dropout(e, ROWS_SEQS, e->c->classifier_dropout, y, e->t->seq_index, NONE, "pooled.dropped");
    HeadKind kind = e->m->head.kind;
    Op loss = kind == HEAD_REGRESSION ? OP_MSE : kind == HEAD_MULTI ? OP_BCE : OP_XENT;
    emit_sequence_loss(e, loss, y, 0, "classifier", "classifier");
}

/* Vectors for the host, which writes their gradients before backward begins. */
static void emit_embedding(Emit *e, TensorId x)
{
    ModelTensors *t = e->t;
    bool cls = e->m->pooling == POOLING_CLS;
    t->logits = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_SEQS), e->c->hidden, "embedding");
    TensorId inverse = add_activation(e, NONE, PART_ALWAYS, ROWS_SEQS, 1, "embedding.inverse");
    e->p->tensors[inverse].dtype = F32;
    if (e->o->training) {
        t->given = plan_tensor(e->p, REGION_INPUT, F32, rows_of(ROWS_SEQS), e->c->hidden, "dembedding");
        e->p->tensors[t->logits].grad = t->given;
    }
    plan_emit(e->p, OP_POOL, PHASE_FORWARD, NONE, (OpAttr){.pool = {e->m->normalized || e->o->unit}},
              IDS(x, cls ? NONE : t->spans, cls ? t->first : NONE, t->ctl), IDS(t->logits, inverse));
}

static bool decoder_apart(const Emit *e)
{
    return e->o->training && e->o->apart && e->m->head.kind == HEAD_PRETRAINING;
}

/* MLM on the masked positions only; the decoder is tied to the word embedding. */
static void emit_mlm(Emit *e, TensorId x)
{
    const ModelConfig *c = e->c;
    int64_t h = c->hidden;
    ModelTensors *t = e->t;
    add_inputs(e, MASKED);
    TensorId rows = emit_gather(e, NONE, PART_ALWAYS, ROWS_MASKED, x, t->masked, "mlm.rows");
    TensorId pre = add_activation(e, NONE, PART_ALWAYS, ROWS_MASKED, h, "mlm.pre");
    emit_dense(e, NONE, rows, pre, "cls.predictions.transform.dense", "mlm.transform");
    TensorId g = add_activation(e, NONE, PART_ALWAYS, ROWS_MASKED, h, "mlm.g");
    plan_emit(e->p, OP_GELU, PHASE_FORWARD, NONE, (OpAttr){.gelu = {c->gelu}}, IDS(pre), IDS(g));
    TensorId y = emit_addnorm(e, NONE, (Keep){NONE, PART_ALWAYS}, g, NONE, norm_form(e, 2 * c->layers), 0, 0,
                              "cls.predictions.transform.LayerNorm", "mlm.y");
    TensorId word = plan_find(e->p, "word"); /* absent where another rank holds the first stage */
    if (word == NONE) word = add_param(e, c->vocab_padded, h, WORD_EMBEDDING, "word");
    TensorId w = compute_copy(e, word);
    TensorId bias = add_param(e, c->vocab_padded, 1, "cls.predictions.bias", "decoder.b");
    TensorId dh = e->o->training ? add_activation(e, NONE, PART_ALWAYS, ROWS_MASKED, h, "mlm.dy") : NONE;
    t->mlm_loss = plan_tensor(e->p, REGION_OUTPUT, F32, rows_of(ROWS_MASKED), 1, "mlm_loss");
    OpAttr attr = {.loss = {.slot = 0, .classes = c->vocab_size, .k = h, .n = c->vocab_padded}};
    bool training = e->o->training;
    TensorId dw = training ? e->p->tensors[word].grad : NONE;
    if (decoder_apart(e)) {
        dw = plan_tensor(e->p, REGION_GRAD, F32, rows_fixed(c->vocab_padded), h, PLAN_APART);
        e->p->tensors[dw].offset = (size_t)e->m->params.size * sizeof(float);
    }
    plan_emit(e->p, OP_MLM_XENT, PHASE_FORWARD, NONE, attr,
              IDS(y, w, training ? e->p->tensors[w].twin : NONE, bias, t->masked_labels, t->ctl, t->scaling),
              IDS(dh, t->mlm_loss, t->stats, dw, training ? e->p->tensors[bias].grad : NONE));
}

/* ---- the whole ---- */

static TensorId add_flat(Emit *e, Region region, int64_t start, int64_t size, const char *name)
{
    TensorId t = plan_tensor(e->p, region, F32, rows_fixed(size), 1, "%s", name);
    e->p->tensors[t].offset = (size_t)start * sizeof(float);
    return t;
}

static void add_flat_space(Emit *e)
{
    ModelTensors *t = e->t;
    int64_t size = e->m->params.size, moments = e->o->moments ? e->o->moments : size;
    int64_t v = (moments + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    t->weights = add_flat(e, REGION_WEIGHT, 0, size, "weights");
    if (!e->o->training) return;
    t->grads = t->cleared = add_flat(e, REGION_GRAD, 0, size, "grads");
    int64_t apart = decoder_apart(e) ? (int64_t)e->c->vocab_padded * e->c->hidden : 0;
    if (apart) t->cleared = add_flat(e, REGION_GRAD, 0, size + apart, "grads.all");
    int64_t waiting = e->o->waiting * size;
    e->p->waiting = e->o->waiting;
    if (waiting) add_flat(e, REGION_GRAD, size + apart, waiting, PLAN_WAITING);
    if (e->o->received) add_flat(e, REGION_GRAD, size + apart + waiting, e->o->received, PLAN_RECEIVED);
    t->moments_m = add_flat(e, REGION_MOMENT, 0, moments, "m");
    t->moments_v = add_flat(e, REGION_MOMENT, v, moments, "v");
    t->segments = plan_tensor(e->p, REGION_CONST, U8, rows_fixed(e->m->params.count), sizeof(Segment), "segments");
    if (e->p->compute != F16) return;
    t->scaling = plan_tensor(e->p, REGION_MOMENT, U8, rows_fixed(1), sizeof(LossScaling), "scaling");
    e->p->tensors[t->scaling].offset = 2 * (size_t)v * sizeof(float); /* behind v */
}

static bool heads_read_some(const Emit *e)
{
    HeadKind kind = e->m->head.kind;
    return kind == HEAD_EMBEDDING ? e->m->pooling == POOLING_CLS : kind != HEAD_SPAN && kind != HEAD_NONE;
}

static void emit_heads(Emit *e, TensorId x)
{
    const Head head = e->m->head;
    if (head.kind == HEAD_SPAN) {
        emit_span(e, x);
    } else if (head.kind == HEAD_EMBEDDING) {
        emit_embedding(e, x);
    } else if (head.kind == HEAD_PRETRAINING) {
        emit_mlm(e, x);
        if (head.labels) emit_sequence_loss(e, OP_XENT, emit_pooled(e, x), 1, "cls.seq_relationship", "nsp");
    } else if (head.kind != HEAD_NONE) {
        emit_classifier(e, x);
    }
}

/* The rows that come from the stage before. They are kept at every level. */
static TensorId emit_receive(Emit *e, int layer)
{
    TensorId x = add_activation(e, layer, PART_ALWAYS, ROWS_TOKENS, e->c->hidden, "l%d.x", layer);
    plan_emit(e->p, OP_RECEIVE, PHASE_FORWARD, NONE, (OpAttr){0}, NO_IDS, IDS(x));
    return x;
}

static void emit_stage(Emit *e, const Stage *s)
{
    TensorId x = stage_is_first(s) ? emit_embeddings(e) : emit_receive(e, s->first);
    bool last = stage_is_last(e->m, s), read = last && heads_read_some(e);
    if (read) add_inputs(e, READ);
    for (int l = s->first; l < s->first + s->layers; l++) {
        bool top = l + 1 == s->first + s->layers;
        x = emit_layer(e, l, x, top && read && !e->o->all_rows ? ROWS_READ : ROWS_TOKENS, top);
    }
    if (read && e->o->all_rows) x = emit_gather(e, NONE, PART_ALWAYS, ROWS_READ, x, e->t->read, "read_x");
    if (last)
        emit_heads(e, x);
    else
        plan_emit(e->p, OP_SEND, PHASE_FORWARD, NONE, (OpAttr){0}, IDS(x), NO_IDS);
}

void bert_emit(const Model *m, Plan *p, const EmitOptions *options, ModelTensors *t)
{
    memset(t, 0xff, sizeof *t); /* all NONE */
    Emit e = {m, &m->config, p, options, t, 0};
    add_inputs(&e, ALWAYS);
    t->ctl = plan_tensor(p, REGION_INPUT, U8, rows_fixed(1), sizeof(Ctl), "ctl");
    t->stats = plan_tensor(p, REGION_OUTPUT, U8, rows_fixed(1), sizeof(Stats), "stats");
    add_flat_space(&e);
    for (int k = 0; k < m->n_stages; k++) emit_stage(&e, &m->stages[k]);
}
