/* The backward computes each token's gradient twice: once in the order of word ids, once in that of positions. A thread
   owns whole runs of equal ids, so table rows are written by one thread only, in the order of the tokens. */
#include "kernels/cpu/cpu.h"

typedef struct {
    EmbedRows a;
    int64_t rows;
    char *rows_scratch;            /* per part: vec->norm_scratch */
    int32_t *order, *spare;        /* (T) */
    float *dtype, *dgamma, *dbeta; /* per part: (types, H), (H), (H) */
    size_t each, line, types_line;
    CpuSpace space;
} Work;

static Work work_of(const OpCall *call, int64_t n_rows, int64_t types)
{
    Work w = {.space.base = call->scratch, .rows = n_rows};
    bool backward = call->op == OP_EMBED_BWD;
    int64_t cols = cpu_in(call, "word")->cols;
    w.each = cpu.vec->norm_scratch(cols);
    w.line = cpu_line((size_t)cols * sizeof(float));
    w.types_line = cpu_line((size_t)(types * cols) * sizeof(float));
    w.rows_scratch = cpu_take_parts(&w.space, w.each);
    if (!backward) return w;
    w.order = cpu_take(&w.space, (size_t)n_rows * sizeof(int32_t));
    w.spare = cpu_take(&w.space, (size_t)n_rows * sizeof(int32_t));
    w.dtype = cpu_take_parts(&w.space, w.types_line);
    w.dgamma = cpu_take_parts(&w.space, w.line);
    w.dbeta = cpu_take_parts(&w.space, w.line);
    return w;
}

static int64_t table_rows(const OpCall *call, const RowCounts *rows, const char *name)
{
    return rows_in(cpu_in(call, name)->rows, rows);
}

static Work work_for(const OpCall *call, const RowCounts *rows)
{
    return work_of(call, rows_in(cpu_in(call, "ids")->rows, rows), table_rows(call, rows, "type"));
}

size_t cpu_embed_scratch(const OpCall *call, const RowCounts *rows) { return work_for(call, rows).space.bytes; }
size_t cpu_embed_bwd_scratch(const OpCall *call, const RowCounts *rows) { return work_for(call, rows).space.bytes; }

static void fill_common(const OpCall *call, const RowCounts *rows, EmbedRows *a, int64_t real, const Operand *x)
{
    static const struct {
        const char *index, *table, *what;
    } checks[] = {
        {"ids", "word", "embed: word id"}, {"pos", "position", "embed: position"}, {"types", "type", "embed: type"}};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        CHECK(cpu_in(call, checks[i].table)->dtype == F32, "embed: the table %s is not f32", checks[i].table);
        cpu_check_index(cpu_in(call, checks[i].index), real, table_rows(call, rows, checks[i].table), checks[i].what);
    }
    a->ids = cpu_in(call, "ids")->data;
    a->types = cpu_in(call, "types")->data;
    a->pos = cpu_in(call, "pos")->data;
    a->seq = cpu_in(call, "seq")->data;
    a->word = cpu_in(call, "word")->data;
    a->position = cpu_in(call, "position")->data;
    a->type = cpu_in(call, "type")->data;
    a->gamma = cpu_in(call, "gamma")->data;
    a->cols = x->cols;
    a->eps = call->attr.embed.eps;
    a->bf16 = cpu_is_bf16(x->dtype);
    a->dropout = dropout_of(cpu_ctl(call), call->attr.embed.dropout, call->attr.embed.site);
}

static void forward_part(void *arg, int part)
{
    const Work *w = arg;
    Span rows = cpu_span(w->rows, 1, part, cpu.threads);
    cpu.vec->embed_fwd(&w->a, rows.first, rows.end, w->rows_scratch + (size_t)part * w->each);
}

Status cpu_embed(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = cpu_out(call, "x");
    Work w = work_for(call, rows);
    cpu_check_space(call, &w.space);
    w.rows = cpu_real_rows(x, rows, cpu_ctl(call));
    fill_common(call, rows, &w.a, w.rows, x);
    w.a.beta = cpu_in(call, "beta")->data;
    w.a.x = x->data;
    cpu_parallel(forward_part, &w);
    cpu_clear_rows(x, w.rows, rows_in(x->rows, rows));
    return OK;
}

/* ---- backward ---- */

#define RADIX_BITS 11
#define RADIX      (1 << RADIX_BITS)

/* Tokens 0 … n−1 in the order of `key`, equal ones as they stand: a radix sort from the lowest digit up. */
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

/* A part's bounds in the sorted order, moved back to where a run of equal keys starts. */
static int64_t run_start(const Work *w, int64_t at)
{
    if (at >= w->rows) return w->rows;
    while (at > 0 && w->a.index[w->a.order[at]] == w->a.index[w->a.order[at - 1]]) at--;
    return at;
}

static void backward_part(void *arg, int part)
{
    const Work *w = arg;
    Span even = cpu_span(w->rows, 1, part, cpu.threads);
    EmbedRows a = w->a;
    if (w->dtype) {
        a.dtype = w->dtype + (size_t)part * w->types_line / sizeof(float);
        a.dgamma = w->dgamma + (size_t)part * w->line / sizeof(float);
        a.dbeta = w->dbeta + (size_t)part * w->line / sizeof(float);
        memset(a.dtype, 0, w->types_line);
        memset(a.dgamma, 0, w->line);
        memset(a.dbeta, 0, w->line);
    }
    cpu.vec->embed_bwd(&a, run_start(w, even.first), run_start(w, even.end), w->rows_scratch + (size_t)part * w->each);
}

static void add_table(Work *w, const int32_t *index, int64_t limit, float *dtable)
{
    sort_tokens(w->order, w->spare, index, w->rows, limit);
    w->a.order = w->order;
    w->a.index = index;
    w->a.dtable = dtable;
    cpu_parallel(backward_part, w);
}

Status cpu_embed_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dx = cpu_in(call, "dx");
    Work w = work_for(call, rows);
    cpu_check_space(call, &w.space);
    w.rows = cpu_real_rows(dx, rows, cpu_ctl(call));
    fill_common(call, rows, &w.a, w.rows, dx);
    w.a.dx = dx->data;
    add_table(&w, w.a.ids, table_rows(call, rows, "word"), cpu_out(call, "dword")->data);
    int64_t types = table_rows(call, rows, "type"), line = (int64_t)(w.line / sizeof(float));
    cpu_add_parts(cpu_out(call, "dtype")->data, w.dtype, (int64_t)(w.types_line / sizeof(float)), types * dx->cols);
    cpu_add_parts(cpu_out(call, "dgamma")->data, w.dgamma, line, dx->cols);
    cpu_add_parts(cpu_out(call, "dbeta")->data, w.dbeta, line, dx->cols);
    w.dtype = NULL; /* these are done */
    add_table(&w, w.a.pos, table_rows(call, rows, "position"), cpu_out(call, "dposition")->data);
    return OK;
}
