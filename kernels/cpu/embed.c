/* The backward computes each token's gradient twice: once in the order of word ids, once in that of positions. A block
   has whole runs of equal ids, so table rows are written by one thread only, in the order of the tokens. */
#include "kernels/cpu/cpu.h"

typedef struct {
    EmbedRows a;
    int64_t rows;
    char *rows_scratch;            /* per part: vec->norm_scratch */
    int32_t *order, *spare;        /* (T) */
    float *dtype, *dgamma, *dbeta; /* per block: (types, H), (H), (H) */
    size_t each, line, types_line;
    HostScratch space;
} EmbedWork;

static EmbedWork embed_work_of(const OpCall *call, int64_t n_rows, int64_t types)
{
    EmbedWork w = {.space.base = call->scratch, .rows = n_rows};
    bool backward = call->op == OP_EMBED_BWD;
    int64_t cols = IN_EITHER(call, EMBED, EMBED_BWD, word)->cols;
    w.each = cpu.vec->norm_scratch(cols);
    w.line = cpu_line((size_t)cols * sizeof(float));
    w.types_line = cpu_line((size_t)(types * cols) * sizeof(float));
    w.rows_scratch = cpu_take_parts(&w.space, w.each);
    if (!backward) return w;
    w.order = host_take(&w.space, n_rows, sizeof(int32_t));
    w.spare = host_take(&w.space, n_rows, sizeof(int32_t));
    w.dtype = cpu_take_sums(&w.space, n_rows, w.types_line);
    w.dgamma = cpu_take_sums(&w.space, n_rows, w.line);
    w.dbeta = cpu_take_sums(&w.space, n_rows, w.line);
    return w;
}

static EmbedWork embed_work(const OpCall *call, const RowCounts *rows)
{
    return embed_work_of(call, rows_in(IN_EITHER(call, EMBED, EMBED_BWD, ids)->rows, rows),
                         rows_in(IN_EITHER(call, EMBED, EMBED_BWD, type)->rows, rows));
}

size_t cpu_embed_scratch(const OpCall *call, const RowCounts *rows) { return embed_work(call, rows).space.bytes; }

static void embed_common(const OpCall *call, const RowCounts *rows, EmbedRows *a, int64_t real, const Operand *x)
{
    const Operand *ids = IN_EITHER(call, EMBED, EMBED_BWD, ids), *word = IN_EITHER(call, EMBED, EMBED_BWD, word);
    const Operand *pos = IN_EITHER(call, EMBED, EMBED_BWD, pos),
                  *position = IN_EITHER(call, EMBED, EMBED_BWD, position);
    const Operand *types = IN_EITHER(call, EMBED, EMBED_BWD, types), *type = IN_EITHER(call, EMBED, EMBED_BWD, type);
    CHECK(word->dtype == F32 && position->dtype == F32 && (!operand_present(type) || type->dtype == F32),
          "embed: a table is not f32");
    cpu_check_index(ids, real, rows_in(word->rows, rows), "embed: word id");
    cpu_check_index(pos, real, rows_in(position->rows, rows), "embed: position");
    if (operand_present(type)) cpu_check_index(types, real, rows_in(type->rows, rows), "embed: type");
    a->ids = ids->data;
    a->types = types->data;
    a->pos = pos->data;
    a->seq = IN_EITHER(call, EMBED, EMBED_BWD, seq)->data;
    a->word = word->data;
    a->position = position->data;
    a->type = type->data;
    a->gamma = IN_EITHER(call, EMBED, EMBED_BWD, gamma)->data;
    a->cols = x->cols;
    a->eps = call->attr.embed.eps;
    a->bf16 = cpu_is_bf16(x->dtype);
    a->dropout = dropout_of(op_ctl(call), call->attr.embed.dropout, call->attr.embed.site);
}

static void forward_part(void *arg, int part)
{
    const EmbedWork *w = arg;
    CpuSpan rows = cpu_span(w->rows, 1, part, cpu.threads);
    cpu.vec->embed_fwd(&w->a, rows.first, rows.end, w->rows_scratch + (size_t)part * w->each);
}

Status cpu_embed(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = OUT(call, EMBED, x);
    EmbedWork w = embed_work(call, rows);
    host_check_scratch(call, w.space.bytes);
    w.rows = host_real_rows(x, rows, op_ctl(call));
    embed_common(call, rows, &w.a, w.rows, x);
    w.a.beta = IN(call, EMBED, beta)->data;
    w.a.x = x->data;
    cpu_parallel(forward_part, &w);
    host_clear_rows(x, w.rows, rows_in(x->rows, rows));
    return OK;
}

/* ---- backward ---- */

#define RADIX_BITS 11
#define RADIX      (1 << RADIX_BITS)

/* Tokens 0 … n−1 in the order of `key`, stable: a radix sort from the lowest digit up. */
static void sort_tokens(int32_t *order, int32_t *spare, const int32_t *key, int64_t n, int64_t limit)
{
    int passes = 0;
    for (int64_t reach = 1; reach < limit; reach <<= RADIX_BITS) passes++;
    int32_t *from = passes % 2 ? spare : order, *to = passes % 2 ? order : spare;
    for (int64_t i = 0; i < n; i++) from[i] = (int32_t)i;
    for (int pass = 0; pass < passes; pass++) {
        int32_t start[RADIX + 1] = {0};
        int shift = pass * RADIX_BITS;
        for (int64_t i = 0; i < n; i++) start[((key[i] >> shift) & (RADIX - 1)) + 1]++;
        for (int d = 0; d < RADIX; d++) start[d + 1] += start[d];
        for (int64_t i = 0; i < n; i++) to[start[(key[from[i]] >> shift) & (RADIX - 1)]++] = from[i];
        int32_t *swap = from;
        from = to;
        to = swap;
    }
}

/* A block's bounds in the sorted order, moved back to where a run of equal keys starts. */
static int64_t run_start(const EmbedWork *w, int64_t at)
{
    if (at >= w->rows) return w->rows;
    while (at > 0 && w->a.index[w->a.order[at]] == w->a.index[w->a.order[at - 1]]) at--;
    return at;
}

static void backward_part(void *arg, int part)
{
    const EmbedWork *w = arg;
    CpuSpan mine = cpu_span(cpu_blocks(w->rows), 1, part, cpu.threads);
    for (int64_t b = mine.first; b < mine.end; b++) {
        CpuSpan even = cpu_block(w->rows, b);
        EmbedRows a = w->a;
        if (w->dgamma) {
            if (a.type) a.dtype = memset(w->dtype + (size_t)b * w->types_line / sizeof(float), 0, w->types_line);
            a.dgamma = w->dgamma + (size_t)b * w->line / sizeof(float);
            a.dbeta = w->dbeta + (size_t)b * w->line / sizeof(float);
            memset(a.dgamma, 0, w->line);
            memset(a.dbeta, 0, w->line);
        }
        cpu.vec->embed_bwd(&a, run_start(w, even.first), run_start(w, even.end),
                           w->rows_scratch + (size_t)part * w->each);
    }
}

static void add_table(EmbedWork *w, const int32_t *index, int64_t limit, float *dtable)
{
    sort_tokens(w->order, w->spare, index, w->rows, limit);
    w->a.order = w->order;
    w->a.index = index;
    w->a.dtable = dtable;
    cpu_parallel(backward_part, w);
}

Status cpu_embed_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dx = IN(call, EMBED_BWD, dx);
    EmbedWork w = embed_work(call, rows);
    host_check_scratch(call, w.space.bytes);
    w.rows = host_real_rows(dx, rows, op_ctl(call));
    embed_common(call, rows, &w.a, w.rows, dx);
    w.a.dx = dx->data;
    add_table(&w, w.a.ids, rows_in(IN(call, EMBED_BWD, word)->rows, rows), OUT(call, EMBED_BWD, dword)->data);
    int64_t types = rows_in(IN(call, EMBED_BWD, type)->rows, rows), line = (int64_t)(w.line / sizeof(float));
    if (types)
        cpu_add_blocks(OUT(call, EMBED_BWD, dtype)->data, w.dtype, w.rows, (int64_t)(w.types_line / sizeof(float)),
                       types * dx->cols);
    cpu_add_blocks(OUT(call, EMBED_BWD, dgamma)->data, w.dgamma, w.rows, line, dx->cols);
    cpu_add_blocks(OUT(call, EMBED_BWD, dbeta)->data, w.dbeta, w.rows, line, dx->cols);
    w.dgamma = NULL; /* these are done */
    add_table(&w, w.a.pos, rows_in(IN(call, EMBED_BWD, position)->rows, rows), OUT(call, EMBED_BWD, dposition)->data);
    return OK;
}
