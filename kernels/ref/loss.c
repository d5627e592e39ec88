/* Losses of one row per sequence. Σ of row losses goes to stats->loss[slot] undivided; gradients carry
   ctl.scale_seqs and the loss scale. Rows beyond the real count have loss 0 and gradient 0. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

float ref_cross_entropy(float *logits, int64_t n, int32_t label, bool training, bool *correct)
{
    CHECK(label < n, "label is %d; there are %lld classes", label, (long long)n);
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (logits[j] > logits[best]) best = j;
    *correct = label >= 0 && best == label;
    if (label < 0) {
        if (training) memset(logits, 0, (size_t)n * sizeof *logits);
        return 0;
    }
    float max = logits[best], own = logits[label];
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        float e = expf(logits[j] - max);
        sum += e;
        if (training) logits[j] = e;
    }
    if (training) {
        for (int64_t j = 0; j < n; j++) logits[j] = (float)(logits[j] / sum);
        logits[label] -= 1.0f;
    }
    return (float)(log(sum) + (double)max - (double)own);
}

typedef struct {
    float *logits; // (C)
    RefSpace space;
} XentScratch;

static XentScratch xent_scratch(const OpCall *call)
{
    XentScratch s = {.space.base = call->scratch};
    s.logits = ref_take_floats(&s.space, IN(call, XENT, logits)->cols);
    return s;
}

size_t ref_xent_scratch(const OpCall *call, const RowCounts *rows)
{
    (void)rows;
    return xent_scratch(call).space.bytes;
}

static void check_classes(const OpCall *call, int64_t cols)
{
    CHECK(call->attr.loss.classes >= 1 && call->attr.loss.classes <= cols, "%s: %d classes in %lld columns",
          op_info(call->op)->name, call->attr.loss.classes, (long long)cols);
}

Status ref_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, XENT, logits), *dlogits = OUT(call, XENT, dlogits); // (S, C)
    const int32_t *labels = IN(call, XENT, labels)->data;                                // (S)
    float *loss = OUT(call, XENT, loss)->data;                                           // (S)
    Stats *stats = OUT(call, XENT, stats)->data;
    const Ctl *ctl = op_ctl(call);
    int64_t cols = logits->cols, real = ref_real_rows(logits, rows, ctl), all = rows_in(logits->rows, rows);
    int32_t classes = call->attr.loss.classes, slot = call->attr.loss.slot;
    bool training = operand_present(dlogits);
    float scale = ctl->scale_seqs * loss_scale_of(IN(call, XENT, scaling)->data);
    XentScratch s = xent_scratch(call);
    ref_check_space(call, &s.space);
    check_classes(call, cols);
    for (int64_t r = 0; r < real; r++) {
        bool correct;
        const float *row = ref_read(logits, r * cols, classes, s.logits);
        if (row != s.logits) memcpy(s.logits, row, (size_t)classes * sizeof(float));
        loss[r] = ref_cross_entropy(s.logits, classes, labels[r], training, &correct);
        stats->loss[slot] += (double)loss[r];
        stats->correct[slot] += correct;
        for (int64_t j = 0; training && j < cols; j++)
            ref_store(dlogits, r * cols + j, j < classes ? s.logits[j] * scale : 0.0f);
    }
    for (int64_t r = real; r < all; r++) loss[r] = 0;
    if (training) ref_clear_rows(dlogits, real, all);
    return OK;
}

/* Regression on the first column: loss = (logit − label)². */
Status ref_mse(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, MSE, logits), *dlogits = OUT(call, MSE, dlogits); // (S, C)
    const float *labels = IN(call, MSE, labels)->data;                                 // (S)
    float *loss = OUT(call, MSE, loss)->data;                                          // (S)
    Stats *stats = OUT(call, MSE, stats)->data;
    const Ctl *ctl = op_ctl(call);
    int64_t cols = logits->cols, real = ref_real_rows(logits, rows, ctl), all = rows_in(logits->rows, rows);
    float scale = ctl->scale_seqs * loss_scale_of(IN(call, MSE, scaling)->data);
    if (operand_present(dlogits)) ref_clear_rows(dlogits, 0, all);
    for (int64_t r = 0; r < all; r++) {
        float error = r < real ? ref_load(logits, r * cols) - labels[r] : 0;
        loss[r] = error * error;
        stats->loss[call->attr.loss.slot] += (double)loss[r];
        if (operand_present(dlogits)) ref_store(dlogits, r * cols, 2 * error * scale);
    }
    return OK;
}
