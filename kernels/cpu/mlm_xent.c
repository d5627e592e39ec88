/* The decoder's product with its loss, CHUNK masked rows at a time: fp32 logits of a chunk in scratch, softmax and
   gradient row by row in place (bf16: beside the logits), then the chunk's dh, dw, db. A larger chunk means fewer
   passes over dw, which is as large as the vocabulary. */
#include "kernels/cpu/product.h"
#include "kernels/loss_scale.h"

#define CHUNK 256

typedef struct {
    Product logits, dh, dw;
    float *scores;  // (CHUNK, V)
    void *gradient; // (CHUNK, V): scores itself in fp32
    bool *correct;  // (CHUNK)
    float *sums;    /* of db */
    void *product;
    int64_t rows, real; /* of the bucket; those that hold something */
    bool training;
    HostScratch space;
} MlmXentScratch;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static MlmXentScratch mlm_xent_scratch(const OpCall *call, const RowCounts *rows)
{
    MlmXentScratch s = {.space.base = call->scratch};
    const Operand *h = IN(call, MLM_XENT, h);
    int64_t k = call->attr.loss.k, n = call->attr.loss.n;
    s.rows = rows_in(h->rows, rows);
    s.training = operand_present(OUT(call, MLM_XENT, dh));
    s.logits = (Product){.kind = PRODUCT_ROWS, .k = k, .n = n, .in = h->dtype, .out = F32, .bias = true};
    s.dh = (Product){.kind = PRODUCT_ROWS, .k = n, .n = k, .in = h->dtype, .out = h->dtype};
    s.dw = (Product){.kind = PRODUCT_GRAD, .k = k, .n = n, .in = h->dtype, .out = F32};
    int64_t chunk = s.rows < CHUNK ? s.rows : CHUNK;
    size_t needed = product_scratch(&s.logits, chunk, true);
    s.scores = host_take(&s.space, chunk * n, sizeof(float));
    s.gradient = h->dtype == F32 ? s.scores : host_take(&s.space, s.training ? chunk * n : 0, dtype_size(h->dtype));
    s.correct = host_take(&s.space, chunk, sizeof(bool));
    s.sums = cpu_take_sums(&s.space, chunk, s.training ? cpu_line((size_t)n * sizeof(float)) : 0);
    if (s.training)
        needed = larger(needed, larger(product_scratch(&s.dh, chunk, true), product_scratch(&s.dw, chunk, true)));
    s.product = host_take(&s.space, 1, needed);
    return s;
}

/* Enough for smaller buckets and for the last, shorter chunk: a product's scratch is enough for fewer rows. */
size_t cpu_mlm_xent_scratch(const OpCall *call, const RowCounts *rows)
{
    return mlm_xent_scratch(call, rows).space.bytes;
}

static Status prepare_rows(const MlmXentScratch *s, int64_t rows)
{
    TRY(product_prepare(&s->logits, rows));
    if (!s->training) return OK;
    TRY(product_prepare(&s->dh, rows));
    return product_prepare(&s->dw, rows);
}

Status cpu_mlm_xent_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    for (int i = 0; i < n_buckets; i++) {
        OpCall shape = *call;
        shape.scratch = NULL;
        MlmXentScratch s = mlm_xent_scratch(&shape, &buckets[i]);
        if (s.rows >= CHUNK) TRY(prepare_rows(&s, CHUNK));
        if (s.rows % CHUNK) TRY(prepare_rows(&s, s.rows % CHUNK));
    }
    return OK;
}

typedef struct {
    const OpCall *call;
    const MlmXentScratch *s;
    int64_t first, n; /* rows of the chunk */
} MlmXentChunk;

static void softmax_part(void *arg, int part)
{
    const MlmXentChunk *c = arg;
    const MlmXentScratch *s = c->s;
    const int32_t *labels = IN(c->call, MLM_XENT, labels)->data; // (M)
    float scale = op_ctl(c->call)->scale_masked * loss_scale_of(IN(c->call, MLM_XENT, scaling)->data);
    float *loss = OUT(c->call, MLM_XENT, loss)->data; // (M)
    int64_t n = c->call->attr.loss.n;
    bool bf16 = cpu_is_bf16(s->logits.in);
    CpuSpan rows = cpu_span(c->n, 1, part, cpu.threads);
    for (int64_t r = rows.first; r < rows.end; r++) {
        int32_t label = c->first + r < s->real ? labels[c->first + r] : -1;
        CHECK(label < c->call->attr.loss.classes, "mlm_xent: label %d of row %lld; there are %d words", label,
              (long long)(c->first + r), c->call->attr.loss.classes);
        char *gradient = s->training ? (char *)s->gradient + (size_t)(r * n) * (bf16 ? 2 : 4) : NULL;
        loss[c->first + r] = cpu.vec->softmax_row(gradient, s->scores + r * n, c->call->attr.loss.classes, n, label,
                                                  scale, bf16, &s->correct[r]);
    }
}

static Status run_chunk(const MlmXentChunk *c)
{
    const OpCall *call = c->call;
    const MlmXentScratch *s = c->s;
    const Operand *h = IN(call, MLM_XENT, h), *dh = OUT(call, MLM_XENT, dh), *dw = OUT(call, MLM_XENT, dw),
                  *db = OUT(call, MLM_XENT, db);
    Stats *stats = OUT(call, MLM_XENT, stats)->data;
    const float *loss = OUT(call, MLM_XENT, loss)->data; // (M)
    int32_t slot = call->attr.loss.slot;
    TRY(product_run(&s->logits, c->n, host_row(h, c->first), IN(call, MLM_XENT, w)->data,
                    IN(call, MLM_XENT, bias)->data, s->scores, s->product));
    cpu_parallel(softmax_part, (void *)(uintptr_t)c);
    for (int64_t r = 0; r < c->n && c->first + r < s->real; r++) {
        stats->loss[slot] += (double)loss[c->first + r];
        stats->correct[slot] += s->correct[r];
    }
    if (!s->training) return OK;
    TRY(product_run(&s->dh, c->n, s->gradient, IN(call, MLM_XENT, wt)->data, NULL, host_row(dh, c->first), s->product));
    if (operand_present(db))
        cpu_add_column_sums(db->data, s->gradient, c->n, call->attr.loss.n, cpu_is_bf16(h->dtype), s->sums);
    if (!operand_present(dw)) return OK;
    return product_run(&s->dw, c->n, host_row(h, c->first), s->gradient, NULL, dw->data, s->product);
}

/* Chunks are whole to the bucket's end, so that all their sizes were prepared; rows that hold nothing have loss 0 and
   gradient 0. */
Status cpu_mlm_xent(const OpCall *call, const RowCounts *rows)
{
    MlmXentScratch s = mlm_xent_scratch(call, rows);
    host_check_scratch(call, s.space.bytes);
    CHECK(call->attr.loss.classes <= call->attr.loss.n, "mlm_xent: %d words in a padded vocabulary of %lld",
          call->attr.loss.classes, (long long)call->attr.loss.n);
    CHECK(!s.training || operand_present(IN(call, MLM_XENT, wt)), "mlm_xent: dh needs the transposed copy wt");
    host_begin(call, rows);
    s.real = host_real_rows(IN(call, MLM_XENT, h), rows, op_ctl(call));
    for (int64_t first = 0; first < s.rows; first += CHUNK) {
        MlmXentChunk c = {call, &s, first, s.rows - first < CHUNK ? s.rows - first : CHUNK};
        if (first < s.real) {
            TRY(run_chunk(&c));
            continue;
        }
        memset((float *)OUT(call, MLM_XENT, loss)->data + first, 0, (size_t)c.n * sizeof(float));
        if (s.training) host_clear_rows(OUT(call, MLM_XENT, dh), first, first + c.n);
    }
    return OK;
}
