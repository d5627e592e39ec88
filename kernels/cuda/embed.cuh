/* Shared by EMBED and its backward: the tables, a token's rows of them, their normalised sum. */
#pragma once

#include "kernels/cuda/rows.cuh"

enum { WORD, POSITION, TYPE, N_TABLES };

/* ---- tokens and their rows of the tables ---- */

struct EmbedTable {
    const int32_t *index; // (T)
    const float *rows;    // (n, H)
    int64_t n;            /* of an absent table 0 */
};

struct Embed {
    EmbedTable table[N_TABLES];
    const int32_t *seq; // (T)
    const float *gamma; // (H)
    const Ctl *ctl;
    int64_t rows, cols;
    float eps;
    RowDropout dropout;
};

struct EmbedToken {
    int32_t row, at[N_TABLES], sequence;
    bool known; /* it names a row of each table that is there */
};

__device__ static inline int64_t embed_tokens(const Embed &e) { return min((int64_t)e.ctl->n_tokens, e.rows); }

__device__ static inline EmbedToken embed_token(const Embed &e, int64_t r)
{
    EmbedToken t;
    t.row = (int32_t)r;
    t.known = true;
    CUDA_UNROLL for (int i = 0; i < N_TABLES; i++)
    {
        t.at[i] = e.table[i].index[r];
        t.known = t.known && (e.table[i].n == 0 || (t.at[i] >= 0 && t.at[i] < e.table[i].n));
    }
    t.sequence = e.seq[r];
    return t;
}

/* The normalised sum of a token's rows; returns rstd. */
template <typename S>
__device__ static inline float embed_xhat(const Embed &e, const EmbedToken &t, float (&s)[S::groups][GROUP],
                                          float *sums)
{
    int64_t n = e.cols;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float p[GROUP] = {}, q[GROUP] = {};
        S::load(e.table[WORD].rows + t.at[WORD] * n, i, n, s[i]);
        S::load_constant(e.table[POSITION].rows + t.at[POSITION] * n, i, n, p);
        if (e.table[TYPE].n) S::load_constant(e.table[TYPE].rows + t.at[TYPE] * n, i, n, q);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] = s[i][k] + p[k] + q[k];
    }
    return row_normalise<S>(s, n, e.eps, sums);
}

static EmbedTable embed_table(const Operand *index, const Operand *table, const RowCounts *rows)
{
    CHECK(table->dtype == F32, "embed: a table is %s; expected f32", dtype_name(table->dtype));
    return {cuda_data<const int32_t>(index), cuda_data<const float>(table), rows_in(table->rows, rows)};
}

static Embed embed_of(const OpCall *call, const RowCounts *rows)
{
    Embed e = {};
    const Operand *ids = IN_EITHER(call, EMBED, EMBED_BWD, ids), *word = IN_EITHER(call, EMBED, EMBED_BWD, word);
    e.table[WORD] = embed_table(ids, word, rows);
    e.table[POSITION] =
        embed_table(IN_EITHER(call, EMBED, EMBED_BWD, pos), IN_EITHER(call, EMBED, EMBED_BWD, position), rows);
    e.table[TYPE] =
        embed_table(IN_EITHER(call, EMBED, EMBED_BWD, types), IN_EITHER(call, EMBED, EMBED_BWD, type), rows);
    e.seq = cuda_data<const int32_t>(IN_EITHER(call, EMBED, EMBED_BWD, seq));
    e.gamma = cuda_data<const float>(IN_EITHER(call, EMBED, EMBED_BWD, gamma));
    e.ctl = op_ctl(call);
    e.rows = rows_in(ids->rows, rows), e.cols = word->cols;
    e.eps = call->attr.embed.eps;
    e.dropout = row_dropout(call->attr.embed.dropout, call->attr.embed.site);
    CHECK(e.rows <= INT32_MAX, "embed: %lld rows", (long long)e.rows);
    return e;
}

static bool embed_whole(const Embed &e)
{
    return e.cols % GROUP == 0 && on_16(e.table[WORD].rows, e.table[POSITION].rows, e.table[TYPE].rows, e.gamma);
}
