/* Losses of one row per sequence. Σ of row losses goes to stats->loss[slot] undivided; gradients carry
   ctl.scale_seqs and the loss scale. Rows beyond the real count have loss 0 and gradient 0. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

float ref_cross_entropy(float *logits, int64_t n, int32_t label, float smoothing, bool training, bool *correct)
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
    double sum = 0, wanted = (double)own;
    if (smoothing > 0) {
        double all = 0;
        for (int64_t j = 0; j < n; j++) all += (double)logits[j];
        wanted = (1 - (double)smoothing) * (double)own + (double)smoothing * all / (double)n;
    }
    for (int64_t j = 0; j < n; j++) {
        float e = expf(logits[j] - max);
        sum += e;
        if (training) logits[j] = e;
    }
    if (training) {
        for (int64_t j = 0; j < n; j++) logits[j] = (float)(logits[j] / sum);
        logits[label] -= 1.0f - smoothing;
        for (int64_t j = 0; smoothing > 0 && j < n; j++) logits[j] -= smoothing / (float)n;
    }
    return (float)(log(sum) + (double)max - wanted);
}

Status ref_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, XENT, logits), *dlogits = OUT(call, XENT, dlogits); // (S, C)
    const int32_t *labels = IN(call, XENT, labels)->data;                                // (S)
    float *loss = OUT(call, XENT, loss)->data;                                           // (S)
    Stats *stats = OUT(call, XENT, stats)->data;
    const Ctl *ctl = op_ctl(call);
    int64_t cols = logits->cols, real = host_real_rows(logits, rows, ctl), all = rows_in(logits->rows, rows);
    int32_t classes = call->attr.loss.classes, slot = call->attr.loss.slot;
    bool training = operand_present(dlogits);
    float scale = ctl->scale_seqs * loss_scale_of(IN(call, XENT, scaling)->data);
    float *row = ref_rows(call).x;
    CHECK(classes >= 1 && classes <= cols, "xent: %d classes in %lld columns", classes, (long long)cols);
    for (int64_t r = 0; r < real; r++) {
        bool correct;
        const float *from = ref_read(logits, r * cols, classes, row);
        if (from != row) memcpy(row, from, (size_t)classes * sizeof *row);
        loss[r] = ref_cross_entropy(row, classes, labels[r], call->attr.loss.smoothing, training, &correct);
        stats->loss[slot] += (double)loss[r];
        stats->correct[slot] += correct;
        for (int64_t j = 0; training && j < cols; j++)
            ref_store(dlogits, r * cols + j, j < classes ? row[j] * scale : 0.0f);
    }
    for (int64_t r = real; r < all; r++) loss[r] = 0;
    if (training) host_clear_rows(dlogits, real, all);
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
    int64_t cols = logits->cols, real = host_real_rows(logits, rows, ctl), all = rows_in(logits->rows, rows);
    float scale = ctl->scale_seqs * loss_scale_of(IN(call, MSE, scaling)->data);
    if (operand_present(dlogits)) host_clear_rows(dlogits, 0, all);
    for (int64_t r = 0; r < all; r++) {
        float error = r < real ? ref_load(logits, r * cols) - labels[r] : 0;
        loss[r] = error * error;
        stats->loss[call->attr.loss.slot] += (double)loss[r];
        if (operand_present(dlogits)) ref_store(dlogits, r * cols, 2 * error * scale);
    }
    return OK;
}

Status ref_bce(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, BCE, logits), *dlogits = OUT(call, BCE, dlogits); // (S, C)
    const float *labels = IN(call, BCE, labels)->data;                                 // (S, classes)
    float *loss = OUT(call, BCE, loss)->data;                                          // (S)
    Stats *stats = OUT(call, BCE, stats)->data;
    const Ctl *ctl = op_ctl(call);
    int64_t cols = logits->cols, real = host_real_rows(logits, rows, ctl), all = rows_in(logits->rows, rows);
    int32_t classes = call->attr.loss.classes, slot = call->attr.loss.slot;
    float scale = ctl->scale_seqs * loss_scale_of(IN(call, BCE, scaling)->data);
    CHECK(classes >= 1 && classes <= cols, "bce: %d classes in %lld columns", classes, (long long)cols);
    if (operand_present(dlogits)) host_clear_rows(dlogits, 0, all);
    for (int64_t r = 0; r < all; r++) {
        double sum = 0;
        bool correct = r < real;
        for (int32_t j = 0; j < classes && r < real; j++) {
            double x = (double)ref_load(logits, r * cols + j), y = (double)labels[r * classes + j], e = exp(-fabs(x));
            double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
            sum += (x > 0 ? x : 0) - x * y + log1p(e);
            correct = correct && (x > 0) == (y > 0.5);
            if (operand_present(dlogits)) ref_store(dlogits, r * cols + j, (float)((sigmoid - y) / classes) * scale);
        }
        loss[r] = (float)(sum / classes);
        stats->loss[slot] += (double)loss[r];
        stats->correct[slot] += correct;
    }
    return OK;
}
