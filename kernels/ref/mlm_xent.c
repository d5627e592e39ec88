/* The decoder's product with its loss, a chunk of rows at a time, so that (M, V) logits never exist. Logits and the
   softmax are fp32; their gradient is rounded to h's type before the products, as if it had been stored. Only the first
   `classes` rows of the padded vocabulary take part: pad rows of dw and db are not touched. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

#define CHUNK 16

typedef struct {
    float *h, *logits, *w; // (CHUNK, H), (CHUNK, classes), (max(H, classes))
    double *db;            // (classes)
    HostScratch space;
} MlmXentScratch;

static MlmXentScratch mlm_xent_scratch(const OpCall *call)
{
    MlmXentScratch s = {.space.base = call->scratch};
    int64_t k = call->attr.loss.k, classes = call->attr.loss.classes;
    s.h = host_take(&s.space, CHUNK * k, sizeof(float));
    s.logits = host_take(&s.space, CHUNK * classes, sizeof(float));
    s.w = host_take(&s.space, k > classes ? k : classes, sizeof(float));
    s.db = host_take(&s.space, classes, sizeof(double));
    return s;
}

size_t ref_mlm_xent_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return mlm_xent_scratch(call).space.bytes;
}

/* h is (block, H); s->logits becomes (block, classes). */
static void chunk_logits(const OpCall *call, MlmXentScratch *s, const float *h, int64_t block)
{
    const Operand *w = IN(call, MLM_XENT, w); // (V, H)
    const float *bias = IN(call, MLM_XENT, bias)->data;
    int64_t k = call->attr.loss.k, classes = call->attr.loss.classes;
    for (int64_t c = 0; c < classes; c++) {
        const float *row = ref_read(w, c * k, k, s->w);
        for (int64_t r = 0; r < block; r++) s->logits[r * classes + c] = ref_dot(h + r * k, row, k) + bias[c];
    }
}

/* dh, dw, db of a chunk; its logits hold their gradient by now. */
static void chunk_gradients(const OpCall *call, MlmXentScratch *s, const float *h, int64_t first, int64_t block)
{
    const Operand *wt = IN(call, MLM_XENT, wt), *dh = OUT(call, MLM_XENT, dh),
                  *dw = OUT(call, MLM_XENT, dw); // wt: (H, V)
    int64_t k = call->attr.loss.k, n = call->attr.loss.n, classes = call->attr.loss.classes;
    for (int64_t i = 0; i < k; i++) {
        const float *column = ref_read(wt, i * n, classes, s->w);
        for (int64_t r = 0; r < block; r++)
            ref_store(dh, (first + r) * k + i, ref_dot(s->logits + r * classes, column, classes));
    }
    for (int64_t c = 0; c < classes; c++)
        for (int64_t r = 0; r < block; r++) {
            float d = s->logits[r * classes + c];
            s->db[c] += d;
            if (operand_present(dw)) ref_axpy((float *)dw->data + c * k, d, h + r * k, k);
        }
}

Status ref_mlm_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *h = IN(call, MLM_XENT, h), *wt = IN(call, MLM_XENT, wt);
    const Operand *dh = OUT(call, MLM_XENT, dh), *db = OUT(call, MLM_XENT, db);
    const int32_t *labels = IN(call, MLM_XENT, labels)->data; // (M)
    float *loss = OUT(call, MLM_XENT, loss)->data;            // (M)
    Stats *stats = OUT(call, MLM_XENT, stats)->data;
    const Ctl *ctl = op_ctl(call);
    int64_t k = call->attr.loss.k, classes = call->attr.loss.classes, slot = call->attr.loss.slot;
    int64_t real = host_real_rows(h, rows, ctl), all = rows_in(h->rows, rows);
    bool training = operand_present(dh);
    float scale = ctl->scale_masked * loss_scale_of(IN(call, MLM_XENT, scaling)->data);
    CHECK(classes <= call->attr.loss.n, "mlm_xent: %lld classes in a padded vocabulary of %lld", (long long)classes,
          (long long)call->attr.loss.n);
    CHECK(!training || operand_present(wt), "mlm_xent: dh needs the transposed copy wt");
    MlmXentScratch s = mlm_xent_scratch(call);
    host_check_scratch(call, s.space.bytes);
    host_begin(call, rows);
    memset(s.db, 0, (size_t)classes * sizeof *s.db);
    for (int64_t first = 0; first < real; first += CHUNK) {
        int64_t block = real - first < CHUNK ? real - first : CHUNK;
        const float *hs = ref_read(h, first * k, block * k, s.h);
        chunk_logits(call, &s, hs, block);
        for (int64_t r = 0; r < block; r++) {
            bool correct;
            float *row = s.logits + r * classes;
            loss[first + r] = ref_cross_entropy(row, classes, labels[first + r], NULL, training, &correct);
            stats->loss[slot] += (double)loss[first + r];
            stats->correct[slot] += correct;
            for (int64_t c = 0; training && c < classes; c++) row[c] = ref_rounded(h->dtype, row[c] * scale);
        }
        if (training) chunk_gradients(call, &s, hs, first, block);
    }
    if (operand_present(db)) ref_add_sums(db->data, s.db, classes);
    for (int64_t r = real; r < all; r++) loss[r] = 0;
    if (training) host_clear_rows(dh, real, all);
    return OK;
}
