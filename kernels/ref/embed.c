/* x = dropout(LN(word[id] + position[pos] + type[type])), rounded once; without a table of types without that term;
   rows beyond n_tokens are 0. Nothing is kept: the backward gathers and normalises again, in fp32. */
#include "kernels/ref/ref.h"

/* The table rows of token r, and their sum in s->x. */
typedef struct {
    int32_t word, position, type;
} TableRows;

static TableRows gather_tables(const OpCall *call, const RowCounts *rows, int64_t r, const RefRows *s)
{
    const Operand *word = IN_EITHER(call, EMBED, EMBED_BWD, word),
                  *position = IN_EITHER(call, EMBED, EMBED_BWD, position),
                  *type = IN_EITHER(call, EMBED, EMBED_BWD, type);
    int64_t n = word->cols;
    TableRows at = {
        .word = ref_index(IN_EITHER(call, EMBED, EMBED_BWD, ids), r, rows_in(word->rows, rows), "embed: word id"),
        .position =
            ref_index(IN_EITHER(call, EMBED, EMBED_BWD, pos), r, rows_in(position->rows, rows), "embed: position"),
    };
    memcpy(s->x, ref_read(word, at.word * n, n, s->buffer), (size_t)n * sizeof(float));
    const float *p = ref_read(position, at.position * n, n, s->buffer);
    for (int64_t j = 0; j < n; j++) s->x[j] += p[j];
    if (!operand_present(type)) return at;
    at.type = ref_index(IN_EITHER(call, EMBED, EMBED_BWD, types), r, rows_in(type->rows, rows), "embed: type");
    const float *t = ref_read(type, at.type * n, n, s->buffer);
    for (int64_t j = 0; j < n; j++) s->x[j] += t[j];
    return at;
}

Status ref_embed(const OpCall *call, const RowCounts *rows)
{
    const float *gamma = IN(call, EMBED, gamma)->data, *beta = IN(call, EMBED, beta)->data; // (H)
    const int32_t *sequence = IN(call, EMBED, seq)->data;                                   // (T)
    const Operand *x = OUT(call, EMBED, x);
    Dropout dropout = dropout_of(op_ctl(call), call->attr.embed.dropout, call->attr.embed.site);
    RefRows s = ref_rows(call);
    int64_t n = x->cols, real = host_real_rows(x, rows, op_ctl(call));
    for (int64_t r = 0; r < real; r++) {
        TableRows at = gather_tables(call, rows, r, &s);
        ref_normalise(s.x, n, call->attr.embed.eps);
        dropout_row(s.factor, &dropout, (uint32_t)at.position, (uint32_t)sequence[r], n);
        for (int64_t j = 0; j < n; j++) s.x[j] = (gamma[j] * s.x[j] + beta[j]) * s.factor[j];
        ref_write(x, r * n, n, s.x);
    }
    host_clear_rows(x, real, rows_in(x->rows, rows));
    return OK;
}

Status ref_embed_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dx = IN(call, EMBED_BWD, dx);
    const float *gamma = IN(call, EMBED_BWD, gamma)->data;    // (H)
    const int32_t *sequence = IN(call, EMBED_BWD, seq)->data; // (T)
    float *dword = OUT(call, EMBED_BWD, dword)->data,
          *dposition = OUT(call, EMBED_BWD, dposition)->data;                                       // (V, H), (P, H)
    float *dtype = OUT(call, EMBED_BWD, dtype)->data;                                               // (types, H)
    float *dgamma = OUT(call, EMBED_BWD, dgamma)->data, *dbeta = OUT(call, EMBED_BWD, dbeta)->data; // (H)
    Dropout dropout = dropout_of(op_ctl(call), call->attr.embed.dropout, call->attr.embed.site);
    RefRows s = ref_rows(call);
    int64_t n = dx->cols, real = host_real_rows(dx, rows, op_ctl(call));
    for (int64_t r = 0; r < real; r++) {
        TableRows at = gather_tables(call, rows, r, &s);
        float rstd = ref_normalise(s.x, n, call->attr.embed.eps);
        dropout_row(s.factor, &dropout, (uint32_t)at.position, (uint32_t)sequence[r], n);
        const float *from = ref_read(dx, r * n, n, s.buffer);
        for (int64_t j = 0; j < n; j++) {
            s.factor[j] *= from[j]; /* now the gradient of LN's output */
            s.dgamma[j] += (double)s.factor[j] * (double)s.x[j];
            s.dbeta[j] += s.factor[j];
        }
        ref_normalise_bwd(s.ds, s.factor, s.x, rstd, gamma, n);
        ref_axpy(dword + at.word * n, 1.0f, s.ds, n);
        ref_axpy(dposition + at.position * n, 1.0f, s.ds, n);
        if (dtype) ref_axpy(dtype + at.type * n, 1.0f, s.ds, n);
    }
    ref_add_sums(dgamma, s.dgamma, n);
    ref_add_sums(dbeta, s.dbeta, n);
    return OK;
}
