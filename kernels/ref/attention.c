/* Attention of each sequence with itself, head by head. With s = q·kᵀ·scale, P = softmax(s), m the dropout factors
   (0 or 1/(1−p)):  o = (P∘m)·v,  lse = log Σ exp(s).  Backward from lse and the stored o:
       dP = (do·vᵀ)∘m,  D = do·o,  dS = P∘(dP − D)·scale,  dq = dS·k,  dk = dSᵀ·q,  dv = (P∘m)ᵀ·do.
   P and dS stay fp32; only o and dqkv are rounded, and db has the sums of the rounded dqkv. */
#include "kernels/ref/ref.h"

typedef struct {
    float *q, *k, *v, *o, *dout;  // (L, D), L up to all rows
    float *dq, *dk, *dv;          // (L, D)
    float *p, *dp, *factor, *row; // (L), (L), (L), (D)
    HostScratch space;
} AttentionScratch;

static AttentionScratch attention_scratch(const OpCall *call, const RowCounts *rows)
{
    AttentionScratch s = {.space.base = call->scratch};
    int64_t length = rows_in(IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv)->rows, rows),
            d = call->attr.attention.head_dim;
    s.q = host_take(&s.space, length * d, sizeof(float));
    s.k = host_take(&s.space, length * d, sizeof(float));
    s.v = host_take(&s.space, length * d, sizeof(float));
    s.p = host_take(&s.space, length, sizeof(float));
    s.factor = host_take(&s.space, length, sizeof(float));
    s.row = host_take(&s.space, d, sizeof(float));
    if (call->op == OP_ATTENTION_BWD) {
        s.o = host_take(&s.space, length * d, sizeof(float));
        s.dout = host_take(&s.space, length * d, sizeof(float));
        s.dq = host_take(&s.space, length * d, sizeof(float));
        s.dk = host_take(&s.space, length * d, sizeof(float));
        s.dv = host_take(&s.space, length * d, sizeof(float));
        s.dp = host_take(&s.space, length, sizeof(float));
    }
    return s;
}

size_t ref_attention_scratch(const OpCall *call, const RowCounts *rows)
{
    return attention_scratch(call, rows).space.bytes;
}

/* One head of one sequence. */
typedef struct {
    int64_t first, length; /* rows */
    int32_t head;
    uint32_t sequence; /* index in the global batch */
} AttentionPart;

/* Columns [col, col + d) of the part's rows of x, to or from (length, d). */
static void read_columns(float *to, const Operand *x, const AttentionPart *part, int64_t col, int64_t d)
{
    for (int64_t i = 0; i < part->length; i++) {
        const float *from = ref_read(x, (part->first + i) * x->cols + col, d, to + i * d);
        if (from != to + i * d) memcpy(to + i * d, from, (size_t)d * sizeof(float));
    }
}

static void write_columns(const Operand *x, const AttentionPart *part, int64_t col, int64_t d, const float *from)
{
    for (int64_t i = 0; i < part->length; i++) ref_write(x, (part->first + i) * x->cols + col, d, from + i * d);
}

static void read_qkv(const OpCall *call, AttentionScratch *s, const AttentionPart *part)
{
    const Operand *qkv = IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv); // (T, 3H)
    int64_t d = call->attr.attention.head_dim, hidden = d * call->attr.attention.heads, col = part->head * d;
    read_columns(s->q, qkv, part, col, d);
    read_columns(s->k, qkv, part, hidden + col, d);
    read_columns(s->v, qkv, part, 2 * hidden + col, d);
}

/* Scaled scores of query i into s->p. */
static void query_scores(const OpCall *call, AttentionScratch *s, const AttentionPart *part, int64_t i)
{
    int64_t d = call->attr.attention.head_dim;
    for (int64_t j = 0; j < part->length; j++)
        s->p[j] = ref_dot(s->q + i * d, s->k + j * d, d) * call->attr.attention.scale;
}

static void head_fwd(const OpCall *call, AttentionScratch *s, const AttentionPart *part, const Dropout *dropout)
{
    const Operand *o = OUT(call, ATTENTION, o);
    float *lse = OUT(call, ATTENTION, lse)->data; // (T, A)
    int64_t d = call->attr.attention.head_dim, heads = call->attr.attention.heads;
    read_qkv(call, s, part);
    for (int64_t i = 0; i < part->length; i++) {
        query_scores(call, s, part, i);
        float max = s->p[0], sum = 0;
        for (int64_t j = 1; j < part->length; j++) max = s->p[j] > max ? s->p[j] : max;
        for (int64_t j = 0; j < part->length; j++) {
            s->p[j] = expf(s->p[j] - max);
            sum += s->p[j];
        }
        lse[(part->first + i) * heads + part->head] = max + logf(sum);
        dropout_query(s->factor, dropout, (uint32_t)part->head, part->sequence, i, part->length);
        memset(s->row, 0, (size_t)d * sizeof(float));
        for (int64_t j = 0; j < part->length; j++) ref_axpy(s->row, s->p[j] / sum * s->factor[j], s->v + j * d, d);
        ref_write(o, (part->first + i) * o->cols + part->head * d, d, s->row);
    }
}

static void head_bwd(const OpCall *call, AttentionScratch *s, const AttentionPart *part, const Dropout *dropout)
{
    const Operand *dqkv = OUT(call, ATTENTION_BWD, dqkv);
    const float *lse = IN(call, ATTENTION_BWD, lse)->data; // (T, A)
    int64_t d = call->attr.attention.head_dim, heads = call->attr.attention.heads, col = part->head * d;
    size_t bytes = (size_t)(part->length * d) * sizeof(float);
    read_qkv(call, s, part);
    read_columns(s->o, IN(call, ATTENTION_BWD, o), part, col, d);
    read_columns(s->dout, IN(call, ATTENTION_BWD, do), part, col, d);
    memset(s->dq, 0, bytes);
    memset(s->dk, 0, bytes);
    memset(s->dv, 0, bytes);
    for (int64_t i = 0; i < part->length; i++) {
        const float *dout = s->dout + i * d;
        float query_lse = lse[(part->first + i) * heads + part->head], dot = ref_dot(dout, s->o + i * d, d);
        query_scores(call, s, part, i);
        dropout_query(s->factor, dropout, (uint32_t)part->head, part->sequence, i, part->length);
        for (int64_t j = 0; j < part->length; j++) {
            float p = expf(s->p[j] - query_lse), dp = ref_dot(dout, s->v + j * d, d) * s->factor[j];
            float ds = p * (dp - dot) * call->attr.attention.scale;
            ref_axpy(s->dv + j * d, p * s->factor[j], dout, d);
            ref_axpy(s->dq + i * d, ds, s->k + j * d, d);
            ref_axpy(s->dk + j * d, ds, s->q + i * d, d);
        }
    }
    write_columns(dqkv, part, col, d, s->dq);
    write_columns(dqkv, part, d * heads + col, d, s->dk);
    write_columns(dqkv, part, 2 * d * heads + col, d, s->dv);
}

static void each_head(const OpCall *call, const RowCounts *rows,
                      void (*head)(const OpCall *, AttentionScratch *, const AttentionPart *, const Dropout *))
{
    const Operand *spans = IN_EITHER(call, ATTENTION, ATTENTION_BWD, spans);
    const int32_t(*span)[2] = spans->data;                                                // (S, 2)
    const int32_t *sequence = IN_EITHER(call, ATTENTION, ATTENTION_BWD, seq_index)->data; // (S)
    Dropout dropout = dropout_of(op_ctl(call), call->attr.attention.dropout, call->attr.attention.site);
    int64_t n_rows = rows_in(IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv)->rows, rows),
            real = host_real_rows(spans, rows, op_ctl(call));
    AttentionScratch s = attention_scratch(call, rows);
    host_check_scratch(call, s.space.bytes);
    for (int64_t i = 0; i < real; i++) {
        CHECK(0 <= span[i][0] && span[i][0] <= span[i][1] && span[i][1] <= n_rows,
              "attention: sequence %lld has rows %d to %d of %lld", (long long)i, span[i][0], span[i][1],
              (long long)n_rows);
        AttentionPart part = {
            .first = span[i][0], .length = span[i][1] - span[i][0], .sequence = (uint32_t)sequence[i]};
        for (part.head = 0; part.head < call->attr.attention.heads; part.head++) head(call, &s, &part, &dropout);
    }
}

Status ref_attention(const OpCall *call, const RowCounts *rows)
{
    const Operand *o = OUT(call, ATTENTION, o), *lse = OUT(call, ATTENTION, lse);
    host_clear_rows(o, 0, rows_in(o->rows, rows)); /* rows of no sequence stay 0 */
    host_clear_rows(lse, 0, rows_in(lse->rows, rows));
    each_head(call, rows, head_fwd);
    return OK;
}

Status ref_attention_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dqkv = OUT(call, ATTENTION_BWD, dqkv);
    host_clear_rows(dqkv, 0, rows_in(dqkv->rows, rows));
    each_head(call, rows, head_bwd);
    host_begin(call, rows);
    ref_add_columns(OUT(call, ATTENTION_BWD, db), dqkv, rows_in(dqkv->rows, rows));
    return OK;
}
