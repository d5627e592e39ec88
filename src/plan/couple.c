/* A step whose loss couples all its sequences: where `forward` ends, and the range `couple`, from their embeddings to
   the gradients of these. The cross-entropy of texts is that of words: MLM_XENT with texts in place of masked rows and
   of the vocabulary. */
#include "plan/plan.h"

static TensorId add_matrix(Plan *p, const PlanCouple *c, Region region, Dtype type, int64_t texts, const char *name)
{
    return plan_tensor(p, region, type, rows_fixed(texts * c->apart), c->cols, "%s", name);
}

static bool packs(const PlanCouple *c) { return c->copy_bytes(F32, c->apart, c->cols, true) > 0; }

/* The packed form of `texts`·apart rows that a product reads, or these rows themselves where it reads them as they lie;
   `copy` is its memory, NONE at first. */
static TensorId pack_rows(Plan *p, const PlanCouple *c, TensorId rows, int64_t texts, bool transposed, TensorId *copy)
{
    const int64_t n = texts * c->apart, row = c->cols * (int64_t)sizeof(float);
    const int64_t bytes = (int64_t)c->copy_bytes(F32, n, c->cols, transposed);
    if (!packs(c)) return transposed ? NONE : rows;
    if (*copy == NONE)
        *copy = plan_tensor(p, REGION_OUTPUT, F32, rows_fixed((bytes + row - 1) / row), c->cols, "step.copy%s",
                            transposed ? ".t" : "");
    plan_emit(p, OP_PACK, PHASE_BEGIN, NONE, (OpAttr){.pack = {.n = n, .k = c->cols, .transposed = transposed}},
              IDS(rows), IDS(*copy));
    return *copy;
}

/* Σ over rows of h of their cross-entropy over the rows of w, `texts`·apart. */
static void emit_entropy(Plan *p, const PlanCouple *c, TensorId h, TensorId w, int64_t texts, TensorId copies[2],
                         TensorId dh, TensorId dw, TensorId stats, TensorId ctl)
{
    TensorId loss = plan_tensor(p, REGION_OUTPUT, F32, p->tensors[h].rows, 1, "step.loss");
    TensorId packed = pack_rows(p, c, w, texts, false, &copies[0]),
             turned = pack_rows(p, c, w, texts, true, &copies[1]);
    int64_t n = texts * c->apart;
    plan_emit(p, OP_ZERO, PHASE_BEGIN, NONE, (OpAttr){0}, NO_IDS, IDS(dw));
    plan_emit(p, OP_MLM_XENT, PHASE_BEGIN, NONE,
              (OpAttr){.loss = {.slot = 0, .classes = (int32_t)n, .k = c->cols, .n = n}},
              IDS(h, packed, turned, c->bias, c->labels, ctl, NONE), IDS(dh, loss, stats, dw, NONE));
}

/* The larger of the two comes first and takes the memory of its copy. */
static void emit_entropies(Plan *p, PlanCouple *c, TensorId stats, TensorId ctl)
{
    TensorId copies[2] = {NONE, NONE};
    const int64_t others = c->texts - 1;
    c->bias = plan_tensor(p, REGION_INPUT, F32, rows_fixed(others * c->apart), 1, "step.bias");
    c->labels = plan_tensor(p, REGION_INPUT, I32, rows_fixed(others * c->apart), 1, "step.labels");
    emit_entropy(p, c, c->anchors, c->others, others, copies, c->danchors, c->dothers, stats, ctl);
    if (!c->symmetric) return;
    c->turned_danchors = add_matrix(p, c, REGION_OUTPUT, F32, 1, "step.turned_danchors");
    c->turned_dothers = add_matrix(p, c, REGION_OUTPUT, c->type, others, "step.turned_dothers");
    emit_entropy(p, c, c->others, c->anchors, 1, copies, c->turned_dothers, c->turned_danchors, stats, ctl);
}

void plan_couple(Plan *p, PlanCouple *c, TensorId stats, TensorId ctl)
{
    InstrId pool = p->micro.first;
    while (p->instrs[pool].op != OP_POOL) pool++;
    p->forward = (Range){p->micro.first, pool + 1 - p->micro.first};
    p->couple.first = p->n_instrs;
    c->type = c->entropy && p->compute == BF16 && !packs(c) ? BF16 : F32;
    c->anchors = add_matrix(p, c, REGION_INPUT, c->type, 1, "step.anchors");
    c->others = add_matrix(p, c, REGION_INPUT, c->type, c->texts - 1, "step.others");
    c->danchors = add_matrix(p, c, REGION_OUTPUT, c->type, 1, "step.danchors");
    c->dothers = add_matrix(p, c, REGION_OUTPUT, F32, c->texts - 1, "step.dothers");
    c->bias = c->labels = c->turned_danchors = c->turned_dothers = NONE;
    if (c->entropy) emit_entropies(p, c, stats, ctl);
    p->couple.count = p->n_instrs - p->couple.first;
    p->update = p->pack = (Range){p->n_instrs, 0};
}
