/* Attention backward from lse and o. A block of queries against a block of keys:
       P = exp(q·kᵀ·scale − lse),  dP = (do·vᵀ)∘m,  dS = P∘(dP − do·o)·scale,
       dv += (P∘m)ᵀ·do,  dk += dSᵀ·q,  dq += dS·k,  m the dropout factors.
   Up to SPAN keys one pass gives all three gradients; beyond it dk and dv come from
   one pass (keys outside), dq from another (queries outside), so that scratch does not grow with the sequence. */
#include "kernels/cpu/vec/attention.h"

typedef struct {
    uint32_t *kt, *vt, *k;        /* a block of keys and values, transposed; keys as rows */
    uint32_t *q, *dout;           /* a block of queries and of do, as A */
    uint32_t *q_rows, *dout_rows; /* the same as B with the rows as depth */
    float *p, *ds;                // (BLOCK, span_cols): P∘m and dS; bf16: units of two queries; dS also in `ds_pairs`
    uint32_t *ds_pairs;           // (BLOCK / 2, span_cols), bf16 only
    float *dk, *dv;               // (span in whole tiles, d_cols)
    float *dq;                    // (queries, d_cols); queries: SPAN if spans, else BLOCK
    float *delta;                 // (BLOCK): do·o of each query
    uint16_t *draws;              // (BLOCK, draw_step)
    int64_t draw_step;
    HostScratch space;
} AttentionBwdScratch;

static AttentionBwdScratch attention_bwd_scratch_of(const Attention *a, const AttentionSizes *z, void *scratch)
{
    AttentionBwdScratch s = {.space.base = scratch, .draw_step = round_up(z->span, 16) + 4 * VL};
    int64_t keys = round_up(z->span, TILE_ROWS), block_units = depth_units(BLOCK, a->bf16);
    s.kt = take_units(&s.space, z->span_cols * z->d_units);
    s.vt = take_units(&s.space, z->span_cols * z->d_units);
    s.k = take_units(&s.space, z->d_cols * depth_units(z->span, a->bf16));
    s.q = take_units(&s.space, BLOCK * z->d_units);
    s.dout = take_units(&s.space, BLOCK * z->d_units);
    s.q_rows = take_units(&s.space, block_units * z->d_cols);
    s.dout_rows = take_units(&s.space, block_units * z->d_cols);
    s.p = take_units(&s.space, BLOCK * z->span_cols + TILE_ROWS);
    s.ds = take_units(&s.space, BLOCK * z->span_cols + TILE_ROWS);
    s.ds_pairs = take_units(&s.space, a->bf16 ? BLOCK / 2 * z->span_cols + TILE_ROWS : 0);
    s.dk = take_units(&s.space, keys * z->d_cols);
    s.dv = take_units(&s.space, keys * z->d_cols);
    s.dq = take_units(&s.space, (z->spans ? SPAN : BLOCK) * z->d_cols);
    s.delta = take_units(&s.space, BLOCK);
    s.draws = take_units(&s.space, a->dropout.threshold ? (BLOCK + 1) * s.draw_step / 2 : 0);
    return s;
}

typedef struct {
    int64_t query, queries, key, keys;
    bool want_dkv, first_dkv, want_dq, first_dq; /* first: overwrites, else adds */
} AttentionBwdBlock;

typedef struct {
    const Attention *a;
    const AttentionPart *part;
    AttentionSizes z;
    AttentionBwdScratch s;
    int64_t hidden;
} AttentionBwdWork;

INLINE MatrixRows input_rows(const AttentionBwdWork *k, int which, int64_t row, bool bf16)
{
    return rows_at(k->a->qkv, 3 * k->hidden, k->part->first + row, which * k->hidden + k->part->head * k->z.d, bf16);
}
INLINE MatrixRows head_rows(const AttentionBwdWork *k, const void *x, int64_t row, bool bf16)
{
    return rows_at(x, k->hidden, k->part->first + row, k->part->head * k->z.d, bf16);
}

INLINE float dot_row(MatrixRows x, MatrixRows y, int64_t i, int64_t d, bool bf16)
{
    const void *a = x.data + (size_t)(i * x.step) * (bf16 ? 2 : 4), *b = y.data + (size_t)(i * y.step) * (bf16 ? 2 : 4);
    vf sum = {0};
    for (int64_t j = 0; j < d; j += VL) sum = fma_(load_at(a, j, d - j, bf16), load_at(b, j, d - j, bf16), sum);
    return sum_lanes(sum);
}

/* P∘m and dS of VL keys of one query. */
typedef struct {
    vf p, ds;
} ProbabilityGrads;

INLINE ProbabilityGrads probability_grads(const AttentionBwdWork *k, const float *score, const float *dp,
                                          const uint16_t *draws, float lse, float delta, int64_t left)
{
    vf p = exp_(fma_(load(score), splat(k->a->scale), splat(-lse)));
    if (left < VL) p = (vf)((vi)p & first_lanes(left));
    vf grad = load(dp), dropped = p;
    if (draws) {
        vi kept = kept_lanes(draws, k->a->dropout.threshold);
        grad = (vf)((vi)(grad * splat(k->a->dropout.scale)) & kept);
        dropped = (vf)((vi)(p * splat(k->a->dropout.scale)) & kept);
    }
    return (ProbabilityGrads){dropped, p * (grad - splat(delta)) * splat(k->a->scale)};
}

INLINE float lse_of(const AttentionBwdWork *k, int64_t query)
{
    return k->a->lse[(k->part->first + query) * k->a->heads + k->part->head];
}

/* The block's scores and dP become P∘m and dS, in place. */
INLINE void probability_grads_f32(const AttentionBwdWork *k, const AttentionBwdBlock *w, int64_t cols, bool drop)
{
    for (int64_t i = 0; i < w->queries; i++) {
        float *p = k->s.p + i * cols, *ds = k->s.ds + i * cols, lse = lse_of(k, w->query + i);
        const uint16_t *draws = drop ? k->s.draws + i * k->s.draw_step : NULL;
        for (int64_t j = 0; j < cols; j += VL) {
            ProbabilityGrads x = {{0}, {0}};
            if (j < w->keys)
                x = probability_grads(k, p + j, ds + j, draws ? draws + j : NULL, lse, k->s.delta[i], w->keys - j);
            store(p + j, x.p);
            store(ds + j, x.ds);
        }
    }
}

/* P∘m and dS in bf16, in units of two queries, dS also row by row for dq. A unit row is written where a row of
   scores has been read. */
INLINE void probability_grads_bf16(const AttentionBwdWork *k, const AttentionBwdBlock *w, int64_t cols, bool drop)
{
    for (int64_t i = 0; i < w->queries; i += 2) {
        bool two = i + 1 < w->queries;
        float *p = k->s.p + i * cols, *ds = k->s.ds + i * cols;
        const uint16_t *draws = drop ? k->s.draws + i * k->s.draw_step : NULL;
        float lse[2] = {lse_of(k, w->query + i), two ? lse_of(k, w->query + i + 1) : 0};
        uint32_t *p_pairs = (uint32_t *)(void *)(k->s.p + i / 2 * cols), *ds_pairs = k->s.ds_pairs + i / 2 * cols;
        for (int64_t j = 0; j < cols; j += VL) {
            ProbabilityGrads x = {{0}, {0}}, y = {{0}, {0}};
            if (j < w->keys) {
                int64_t left = w->keys - j;
                x = probability_grads(k, p + j, ds + j, draws ? draws + j : NULL, lse[0], k->s.delta[i], left);
                if (two)
                    y = probability_grads(k, p + cols + j, ds + cols + j, draws ? draws + k->s.draw_step + j : NULL,
                                          lse[1], k->s.delta[i + 1], left);
            }
            store_u(p_pairs + j, round_bf16(x.p) >> 16 | (round_bf16(y.p) & 0xffff0000u));
            store_u(ds_pairs + j, round_bf16(x.ds) >> 16 | (round_bf16(y.ds) & 0xffff0000u));
            store_h((uint16_t *)(void *)ds + j, narrow(x.ds));
            store_h((uint16_t *)(void *)(ds + cols) + j, narrow(y.ds));
        }
    }
}

/* One block of queries against the packed block of keys; dq's sums begin at row `offset` of s.dq. */
INLINE void backward_block(const AttentionBwdWork *k, const AttentionBwdBlock *w, int64_t offset, bool bf16)
{
    const AttentionSizes *z = &k->z;
    const AttentionBwdScratch *s = &k->s;
    int64_t cols = round_up(w->keys, TILE_COLS), rows = round_up(w->queries, TILE_ROWS);
    int64_t key_rows = round_up(w->keys, TILE_ROWS), depth = depth_units(w->queries, bf16);
    MatrixRows q = input_rows(k, 0, w->query, bf16), dout = head_rows(k, k->a->dout, w->query, bf16);
    MatrixRows o = head_rows(k, k->a->o_in, w->query, bf16);
    for (int64_t i = 0; i < w->queries; i++) s->delta[i] = dot_row(o, dout, i, z->d, bf16);
    copy_rows(s->q, q, w->queries, z->d, bf16);
    copy_rows(s->dout, dout, w->queries, z->d, bf16);
    multiply(s->p, cols, false, s->q, z->d_units, 1, s->kt, z->d_units, rows, cols, bf16);
    multiply(s->ds, cols, false, s->dout, z->d_units, 1, s->vt, z->d_units, rows, cols, bf16);
    bool drop = k->a->dropout.threshold != 0;
    if (drop)
        tile_draws(s->draws, s->draw_step, &k->a->dropout, (uint32_t)k->part->head, k->part->sequence, w->query,
                   w->queries, w->key, w->keys);
    if (bf16)
        probability_grads_bf16(k, w, cols, drop);
    else
        probability_grads_f32(k, w, cols, drop);
    const uint32_t *p_units = (const uint32_t *)(const void *)s->p, *ds_rows = (const uint32_t *)(const void *)s->ds;
    if (w->want_dkv) {
        pack_natural(s->q_rows, q, w->queries, z->d, bf16);
        pack_natural(s->dout_rows, dout, w->queries, z->d, bf16);
        multiply(s->dv, z->d_cols, !w->first_dkv, p_units, 1, cols, s->dout_rows, depth, key_rows, z->d_cols, bf16);
        multiply(s->dk, z->d_cols, !w->first_dkv, bf16 ? s->ds_pairs : ds_rows, 1, cols, s->q_rows, depth, key_rows,
                 z->d_cols, bf16);
    }
    if (w->want_dq)
        multiply(s->dq + offset * z->d_cols, z->d_cols, !w->first_dq, ds_rows, cols, 1, s->k,
                 depth_units(w->keys, bf16), rows, z->d_cols, bf16);
}

INLINE void pack_keys(const AttentionBwdWork *k, const AttentionBwdBlock *w, bool bf16)
{
    pack_transposed(k->s.kt, input_rows(k, 1, w->key, bf16), w->keys, k->z.d, bf16);
    pack_transposed(k->s.vt, input_rows(k, 2, w->key, bf16), w->keys, k->z.d, bf16);
    if (w->want_dq) pack_natural(k->s.k, input_rows(k, 1, w->key, bf16), w->keys, k->z.d, bf16);
}

/* Rows [row, row + n) of dq (which 0), dk (1) or dv (2). */
INLINE void write_rows(const AttentionBwdWork *k, int which, int64_t row, int64_t n, const float *from, bool bf16)
{
    int64_t step = 3 * k->hidden, col = which * k->hidden + k->part->head * k->z.d;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k->z.d; j += VL)
            store_at(k->a->dqkv, (k->part->first + row + i) * step + col + j, k->z.d - j, bf16,
                     load(from + i * k->z.d_cols + j));
}

INLINE void each_block(const AttentionBwdWork *k, AttentionBwdBlock *w, int64_t first, int64_t end, bool bf16)
{
    for (w->query = first; w->query < end; w->query += BLOCK) {
        w->queries = at_most(end - w->query, BLOCK);
        backward_block(k, w, w->want_dkv ? 0 : w->query - first, bf16);
        w->first_dkv = false;
        if (w->want_dkv && w->want_dq) write_rows(k, 0, w->query, w->queries, k->s.dq, bf16);
    }
}

INLINE void backward(const Attention *a, const AttentionPart *part, void *scratch, bool bf16)
{
    AttentionSizes z = attention_sizes(a);
    AttentionBwdWork k = {a, part, z, attention_bwd_scratch_of(a, &z, scratch), a->heads * z.d};
    int64_t n = part->length;
    bool one_pass = n <= SPAN;
    for (int64_t key = 0; key < n; key += SPAN) {
        AttentionBwdBlock w = {.key = key, .keys = at_most(n - key, SPAN), .want_dkv = true, .first_dkv = true};
        w.want_dq = w.first_dq = one_pass;
        pack_keys(&k, &w, bf16);
        each_block(&k, &w, 0, n, bf16);
        write_rows(&k, 1, key, w.keys, k.s.dk, bf16);
        write_rows(&k, 2, key, w.keys, k.s.dv, bf16);
    }
    if (one_pass) return;
    for (int64_t query = 0; query < n; query += SPAN) {
        int64_t end = at_most(query + SPAN, n);
        for (int64_t key = 0; key < n; key += SPAN) {
            AttentionBwdBlock w = {.key = key, .keys = at_most(n - key, SPAN), .want_dq = true, .first_dq = key == 0};
            pack_keys(&k, &w, bf16);
            each_block(&k, &w, query, end, bf16);
        }
        write_rows(&k, 0, query, end - query, k.s.dq, bf16);
    }
}

void V(attention_bwd)(const Attention *a, const AttentionPart *part, void *scratch)
{
    BY_TYPE(a->bf16, backward, a, part, scratch);
}

size_t V(attention_bwd_scratch)(const Attention *a)
{
    AttentionSizes z = attention_sizes(a);
    return attention_bwd_scratch_of(a, &z, NULL).space.bytes;
}
