#include "kernels/cpu/cpu.h"

typedef struct {
    const char *pre, *dg; /* dg NULL: forward */
    char *dpre, *g;
    int64_t n;
    bool bf16;
    GeluKind kind;
} GeluWork;

#define GRAIN 1024 /* elements */

static void gelu_part(void *arg, int part)
{
    const GeluWork *w = arg;
    CpuSpan s = cpu_span(w->n, GRAIN, part, cpu.threads);
    size_t from = (size_t)s.first * (w->bf16 ? 2 : 4);
    char *g = w->g ? w->g + from : NULL;
    if (w->dg)
        cpu.vec->gelu_bwd(w->dpre + from, g, w->pre + from, w->dg + from, s.end - s.first, w->bf16, w->kind);
    else
        cpu.vec->gelu(g, w->pre + from, s.end - s.first, w->bf16, w->kind);
}

Status cpu_gelu(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU, pre);
    GeluWork w = {.pre = pre->data, .g = OUT(call, GELU, g)->data, .n = rows_in(pre->rows, rows) * pre->cols};
    w.bf16 = cpu_is_bf16(pre->dtype);
    w.kind = call->attr.gelu.kind;
    cpu_parallel(gelu_part, &w);
    return OK;
}

static float *db_sums(const OpCall *call, const RowCounts *rows, HostScratch *s)
{
    const Operand *pre = IN(call, GELU_BWD, pre);
    return cpu_take_db(s, OUT(call, GELU_BWD, db), rows_in(pre->rows, rows), pre->cols);
}

size_t cpu_gelu_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    HostScratch s = {0};
    (void)db_sums(call, rows, &s);
    return s.bytes;
}

Status cpu_gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU_BWD, pre), *g = OUT(call, GELU_BWD, g);
    HostScratch scratch = {.base = call->scratch};
    float *sums = db_sums(call, rows, &scratch);
    host_check_scratch(call, scratch.bytes);
    GeluWork w = {.pre = pre->data, .dg = IN(call, GELU_BWD, dg)->data, .dpre = OUT(call, GELU_BWD, dpre)->data};
    w.g = operand_present(g) ? g->data : NULL;
    w.n = rows_in(pre->rows, rows) * pre->cols;
    w.bf16 = cpu_is_bf16(pre->dtype);
    w.kind = call->attr.gelu.kind;
    cpu_parallel(gelu_part, &w);
    host_begin(call, rows);
    cpu_add_db(OUT(call, GELU_BWD, db), OUT(call, GELU_BWD, dpre), rows_in(pre->rows, rows), sums);
    return OK;
}
