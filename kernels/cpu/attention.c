/* Items are the heads of the sequences; a part takes a run of them of about the same cost as the others'. */
#include "kernels/cpu/cpu.h"

typedef struct {
    Attention a;
    const int32_t (*span)[2]; // (S, 2)
    const int32_t *index;     // (S)
    int64_t rows, n_seqs;
    double cost; /* of all items */
    char *scratch;
    size_t each;
    const Operand *zero[2]; /* outputs whose rows in no sequence become 0 */
    void (*run)(const Attention *, const AttentionPart *, void *);
    float *db; /* as cpu_take_db */
    HostScratch space;
} AttentionWork;

static AttentionWork attention_work(const OpCall *call, const RowCounts *rows)
{
    AttentionWork w = {.space.base = call->scratch};
    const Operand *qkv = IN_EITHER(call, ATTENTION, ATTENTION_BWD, qkv);
    bool backward = call->op == OP_ATTENTION_BWD;
    w.rows = rows_in(qkv->rows, rows);
    w.a.heads = call->attr.attention.heads;
    w.a.head_dim = call->attr.attention.head_dim;
    w.a.max_length = w.rows;
    w.a.scale = call->attr.attention.scale;
    w.a.bf16 = cpu_is_bf16(qkv->dtype);
    w.a.dropout.threshold = dropout_threshold(call->attr.attention.dropout);
    w.each = backward ? cpu.vec->attention_bwd_scratch(&w.a) : cpu.vec->attention_fwd_scratch(&w.a);
    w.scratch = cpu_take_parts(&w.space, w.each);
    if (backward) w.db = cpu_take_db(&w.space, OUT(call, ATTENTION_BWD, db), w.rows, qkv->cols);
    return w;
}

size_t cpu_attention_scratch(const OpCall *call, const RowCounts *rows)
{
    return attention_work(call, rows).space.bytes;
}

/* The work of one head: products grow with the square of the length, packing and writing with the length. */
static double attention_cost(int64_t length) { return (double)length * (double)(length + 64); }

/* Sequences are in the order of their rows; rows between them and behind the last are in no sequence. */
static void clear_gaps(const AttentionWork *w)
{
    int64_t end = 0;
    for (int64_t s = 0; s <= w->n_seqs; s++) {
        int64_t next = s < w->n_seqs ? w->span[s][0] : w->rows;
        for (int i = 0; i < 2; i++)
            if (w->zero[i]) host_clear_rows(w->zero[i], end, next);
        if (s < w->n_seqs) end = w->span[s][1];
    }
}

static void attention_part(void *arg, int part)
{
    const AttentionWork *w = arg;
    double low = w->cost * part / cpu.threads, high = w->cost * (part + 1) / cpu.threads, at = 0;
    for (int64_t s = 0; s < w->n_seqs; s++) {
        AttentionPart item = {.first = w->span[s][0], .length = w->span[s][1] - w->span[s][0]};
        double cost = attention_cost(item.length);
        item.sequence = (uint32_t)w->index[s];
        for (item.head = 0; item.head < w->a.heads; item.head++, at += cost) {
            double middle = at + cost / 2;
            if (middle < low || middle >= high || item.length == 0) continue;
            w->run(&w->a, &item, w->scratch + (size_t)part * w->each);
        }
    }
    if (part == cpu.threads - 1) clear_gaps(w);
}

static Status attention_run(const OpCall *call, const RowCounts *rows, AttentionWork *w)
{
    const Operand *spans = IN_EITHER(call, ATTENTION, ATTENTION_BWD, spans);
    host_check_scratch(call, w->space.bytes);
    w->span = spans->data;
    w->index = IN_EITHER(call, ATTENTION, ATTENTION_BWD, seq_index)->data;
    w->n_seqs = host_real_rows(spans, rows, op_ctl(call));
    w->a.dropout = dropout_of(op_ctl(call), call->attr.attention.dropout, call->attr.attention.site);
    int64_t end = 0;
    for (int64_t s = 0; s < w->n_seqs; s++) {
        CHECK(end <= w->span[s][0] && w->span[s][0] <= w->span[s][1] && w->span[s][1] <= w->rows,
              "attention: sequence %lld has rows %d to %d of %lld; expected it behind row %lld", (long long)s,
              w->span[s][0], w->span[s][1], (long long)w->rows, (long long)end);
        end = w->span[s][1];
        w->cost += attention_cost(end - w->span[s][0]) * (double)w->a.heads;
    }
    cpu_parallel(attention_part, w);
    return OK;
}

Status cpu_attention(const OpCall *call, const RowCounts *rows)
{
    AttentionWork w = attention_work(call, rows);
    w.zero[0] = OUT(call, ATTENTION, o);
    w.zero[1] = OUT(call, ATTENTION, lse);
    w.a.qkv = IN(call, ATTENTION, qkv)->data;
    w.a.o = w.zero[0]->data;
    w.a.lse = w.zero[1]->data;
    w.run = cpu.vec->attention_fwd;
    return attention_run(call, rows, &w);
}

Status cpu_attention_bwd(const OpCall *call, const RowCounts *rows)
{
    AttentionWork w = attention_work(call, rows);
    w.zero[0] = OUT(call, ATTENTION_BWD, dqkv);
    w.a.qkv = IN(call, ATTENTION_BWD, qkv)->data;
    w.a.o_in = IN(call, ATTENTION_BWD, o)->data;
    w.a.dout = IN(call, ATTENTION_BWD, do)->data;
    w.a.lse = IN(call, ATTENTION_BWD, lse)->data;
    w.a.dqkv = w.zero[0]->data;
    w.run = cpu.vec->attention_bwd;
    TRY(attention_run(call, rows, &w));
    host_begin(call, rows);
    cpu_add_db(OUT(call, ATTENTION_BWD, db), w.zero[0], w.rows, w.db);
    return OK;
}
