/* Attention forward: a block of queries against a block of keys, softmax online over the blocks. Up to SPAN keys there
   is one block and nothing is ever rescaled. */
#include "kernels/cpu/vec/attention.h"

typedef struct {
    uint32_t *k, *v, *q; /* packed: keys transposed, values, a block of queries */
    float *s;            // (BLOCK, span_cols): scores, then probabilities
    float *o;            // (queries, d_cols): sums of probability · value; queries: SPAN if spans, else BLOCK
    float *max, *sum;    // (queries): of each query's scores so far
    uint16_t *draws;     // (BLOCK, draw_step)
    int64_t draw_step;
    HostScratch space;
} AttentionFwdScratch;

static AttentionFwdScratch attention_fwd_scratch_of(const Attention *a, const AttentionSizes *z, void *scratch)
{
    AttentionFwdScratch s = {.space.base = scratch, .draw_step = round_up(z->span, 16) + 4 * VL};
    int64_t queries = z->spans ? SPAN : BLOCK;
    s.k = take_units(&s.space, z->span_cols * z->d_units);
    s.v = take_units(&s.space, z->d_cols * depth_units(z->span, a->bf16));
    s.q = take_units(&s.space, BLOCK * z->d_units);
    s.s = take_units(&s.space, BLOCK * z->span_cols);
    s.o = take_units(&s.space, queries * z->d_cols);
    s.max = take_units(&s.space, queries);
    s.sum = take_units(&s.space, queries);
    s.draws = take_units(&s.space, a->dropout.threshold ? (BLOCK + 1) * s.draw_step / 2 : 0);
    return s;
}

/* A block of queries against a block of keys. */
typedef struct {
    int64_t query, queries, key, keys;
    bool first; /* block of keys */
} AttentionFwdBlock;

/* One query's scores become probabilities, not yet divided by their sum; `o` is rescaled to the new
   maximum. Columns behind the keys become 0. In bf16 the probabilities are written over the scores. */
INLINE void softmax_row(const Attention *a, float *s, const uint16_t *draws, const AttentionFwdBlock *w, int64_t cols,
                        float *max, float *sum, float *o, int64_t d_cols, bool bf16)
{
    vf best = splat(-INFINITY), total = {0};
    for (int64_t j = 0; j < w->keys; j += VL) {
        vf x = load(s + j) * splat(a->scale);
        if (w->keys - j < VL) x = select_(first_lanes(w->keys - j), x, splat(-INFINITY));
        store(s + j, x);
        best = max_(best, x);
    }
    float top = max_lanes(best);
    if (!w->first) {
        top = top > *max ? top : *max;
        float factor = expf(*max - top);
        for (int64_t j = 0; j < d_cols; j += VL) store(o + j, load(o + j) * splat(factor));
        *sum *= factor;
    }
    *max = top;
    for (int64_t j = 0; j < cols; j += VL) {
        vf p = {0};
        if (j < w->keys) {
            p = exp_(load(s + j) - splat(top));
            if (w->keys - j < VL) p = (vf)((vi)p & first_lanes(w->keys - j));
            total += p;
            if (draws) p = (vf)((vi)p & kept_lanes(draws + j, a->dropout.threshold));
        }
        if (bf16)
            store_h((uint16_t *)(void *)s + j, narrow(p));
        else
            store(s + j, p);
    }
    *sum = (w->first ? 0 : *sum) + sum_lanes(total);
}

INLINE void forward_block(const Attention *a, const AttentionPart *part, const AttentionSizes *z,
                          const AttentionFwdScratch *s, const AttentionFwdBlock *w, int64_t offset, bool bf16)
{
    int64_t hidden = a->heads * z->d, cols = round_up(w->keys, TILE_COLS), rows = round_up(w->queries, TILE_ROWS);
    float *o = s->o + offset * z->d_cols;
    copy_rows(s->q, rows_at(a->qkv, 3 * hidden, part->first + w->query, part->head * z->d, bf16), w->queries, z->d,
              bf16);
    multiply(s->s, cols, false, s->q, z->d_units, 1, s->k, z->d_units, rows, cols, bf16);
    bool drop = a->dropout.threshold != 0;
    if (drop)
        tile_draws(s->draws, s->draw_step, &a->dropout, (uint32_t)part->head, part->sequence, w->query, w->queries,
                   w->key, w->keys);
    for (int64_t i = 0; i < w->queries; i++)
        softmax_row(a, s->s + i * cols, drop ? s->draws + i * s->draw_step : NULL, w, cols, &s->max[offset + i],
                    &s->sum[offset + i], o + i * z->d_cols, z->d_cols, bf16);
    multiply(o, z->d_cols, !w->first, (const uint32_t *)(const void *)s->s, cols, 1, s->v, depth_units(w->keys, bf16),
             rows, z->d_cols, bf16);
}

/* o and lse of queries [query, query + queries), whose sums begin at row `offset` of s->o. */
INLINE void write_outputs(const Attention *a, const AttentionPart *part, const AttentionSizes *z,
                          const AttentionFwdScratch *s, int64_t query, int64_t queries, int64_t offset, bool bf16)
{
    int64_t hidden = a->heads * z->d;
    for (int64_t i = 0; i < queries; i++) {
        int64_t row = part->first + query + i;
        const float *from = s->o + (offset + i) * z->d_cols;
        float factor = (a->dropout.threshold ? a->dropout.scale : 1.0f) / s->sum[offset + i];
        for (int64_t j = 0; j < z->d; j += VL)
            store_at(a->o, row * hidden + part->head * z->d + j, z->d - j, bf16, load(from + j) * splat(factor));
        a->lse[row * a->heads + part->head] = s->max[offset + i] + logf(s->sum[offset + i]);
    }
}

INLINE void forward(const Attention *a, const AttentionPart *part, void *scratch, bool bf16)
{
    AttentionSizes z = attention_sizes(a);
    AttentionFwdScratch s = attention_fwd_scratch_of(a, &z, scratch);
    int64_t hidden = a->heads * z.d, n = part->length, group = n > SPAN ? SPAN : BLOCK;
    for (int64_t query = 0; query < n; query += group) {
        int64_t group_end = at_most(query + group, n);
        for (int64_t key = 0; key < n; key += SPAN) {
            AttentionFwdBlock w = {.key = key, .keys = at_most(n - key, SPAN), .first = key == 0};
            if (query == 0 || n > SPAN) {
                int64_t col = hidden + part->head * z.d, row = part->first + key;
                pack_transposed(s.k, rows_at(a->qkv, 3 * hidden, row, col, bf16), w.keys, z.d, bf16);
                pack_natural(s.v, rows_at(a->qkv, 3 * hidden, row, col + hidden, bf16), w.keys, z.d, bf16);
            }
            for (w.query = query; w.query < group_end; w.query += BLOCK) {
                w.queries = at_most(group_end - w.query, BLOCK);
                forward_block(a, part, &z, &s, &w, w.query - query, bf16);
            }
        }
        write_outputs(a, part, &z, &s, query, group_end - query, 0, bf16);
    }
}

void V(attention_fwd)(const Attention *a, const AttentionPart *part, void *scratch)
{
    BY_TYPE(a->bf16, forward, a, part, scratch);
}

size_t V(attention_fwd_scratch)(const Attention *a)
{
    AttentionSizes z = attention_sizes(a);
    return attention_fwd_scratch_of(a, &z, NULL).space.bytes;
}
