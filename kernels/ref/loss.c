/* Losses of one row per sequence. Σ of row losses goes to stats->loss[slot] undivided; gradients carry
   ctl.scale_seqs and the loss scale. Rows beyond the real count have loss 0 and gradient 0. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

static int64_t largest(const float *x, int64_t n) // (n)
{
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > x[best]) best = j;
    return best;
}

float ref_cross_entropy(float *logits, int64_t n, int64_t label, const float *targets, bool training, bool *correct)
{
    int64_t best = largest(logits, n);
    if (targets) label = largest(targets, n);
    CHECK(label < n, "label is %lld; there are %lld classes", (long long)label, (long long)n);
    *correct = label >= 0 && best == label;
    if (label < 0) {
        if (training) memset(logits, 0, (size_t)n * sizeof *logits);
        return 0;
    }
    float max = logits[best];
    double sum = 0, all = targets ? 0 : 1, wanted = targets ? 0 : (double)logits[label];
    for (int64_t j = 0; j < n; j++) {
        float e = expf(logits[j] - max);
        sum += e;
        if (targets) all += (double)targets[j], wanted += (double)targets[j] * (double)logits[j];
        if (training) logits[j] = e;
    }
    for (int64_t j = 0; training && j < n; j++)
        logits[j] = (float)(all * logits[j] / sum) - (targets ? targets[j] : (float)(j == label));
    return (float)(all * (log(sum) + (double)max) - wanted);
}

/* Returns the loss of row r, and in training writes its gradient times `scale`. XENT, MSE and BCE have the same
   operands. */
typedef float RowLoss(const OpCall *call, int64_t r, float scale, bool *correct);

static Status each_row(const OpCall *call, const RowCounts *rows, RowLoss *loss_of)
{
    const Operand *logits = IN(call, XENT, logits), *dlogits = OUT(call, XENT, dlogits); // (S, C)
    float *loss = OUT(call, XENT, loss)->data;                                           // (S)
    Stats *stats = OUT(call, XENT, stats)->data;
    int64_t real = host_real_rows(logits, rows, op_ctl(call)), all = rows_in(logits->rows, rows);
    int32_t classes = call->attr.loss.classes, slot = call->attr.loss.slot;
    float scale = op_ctl(call)->scale_seqs * loss_scale_of(IN(call, XENT, scaling)->data);
    CHECK(classes >= 1 && classes <= logits->cols, "%s: %d classes in %lld columns", op_info(call->op)->name, classes,
          (long long)logits->cols);
    if (operand_present(dlogits)) host_clear_rows(dlogits, 0, all);
    for (int64_t r = 0; r < all; r++) {
        bool correct = false;
        loss[r] = r < real ? loss_of(call, r, scale, &correct) : 0;
        stats->loss[slot] += (double)loss[r];
        stats->correct[slot] += correct;
    }
    return OK;
}

static float xent_row(const OpCall *call, int64_t r, float scale, bool *correct)
{
    const Operand *logits = IN(call, XENT, logits), *dlogits = OUT(call, XENT, dlogits); // (S, C)
    const Operand *labels = IN(call, XENT, labels);                                      // (S), or (S, classes)
    int64_t classes = call->attr.loss.classes, first = r * logits->cols;
    bool training = operand_present(dlogits);
    float *row = ref_rows(call).x;
    const float *from = ref_read(logits, first, classes, row);
    if (from != row) memcpy(row, from, (size_t)classes * sizeof *row);
    const float *targets = labels->dtype == F32 ? (const float *)labels->data + r * classes : NULL;
    int32_t label = targets ? 0 : ((const int32_t *)labels->data)[r];
    float loss = ref_cross_entropy(row, classes, label, targets, training, correct);
    for (int64_t j = 0; training && j < classes; j++) ref_store(dlogits, first + j, row[j] * scale);
    return loss;
}

/* Regression on the first column: loss = (logit − label)². */
static float mse_row(const OpCall *call, int64_t r, float scale, bool *correct)
{
    const Operand *logits = IN(call, MSE, logits), *dlogits = OUT(call, MSE, dlogits); // (S, C)
    float error = ref_load(logits, r * logits->cols) - ((const float *)IN(call, MSE, labels)->data)[r];
    if (operand_present(dlogits)) ref_store(dlogits, r * logits->cols, 2 * error * scale);
    *correct = false;
    return error * error;
}

static float bce_row(const OpCall *call, int64_t r, float scale, bool *correct)
{
    const Operand *logits = IN(call, BCE, logits), *dlogits = OUT(call, BCE, dlogits); // (S, C)
    const float *labels = IN(call, BCE, labels)->data;                                 // (S, classes)
    int64_t classes = call->attr.loss.classes, first = r * logits->cols;
    double sum = 0;
    *correct = true;
    for (int64_t j = 0; j < classes; j++) {
        double x = (double)ref_load(logits, first + j), y = (double)labels[r * classes + j], e = exp(-fabs(x));
        double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
        sum += (x > 0 ? x : 0) - x * y + log1p(e);
        *correct = *correct && (x > 0) == (y > 0.5);
        if (operand_present(dlogits)) ref_store(dlogits, first + j, (float)((sigmoid - y) / (double)classes) * scale);
    }
    return (float)(sum / (double)classes);
}

Status ref_xent(const OpCall *call, const RowCounts *rows) { return each_row(call, rows, xent_row); }
Status ref_mse(const OpCall *call, const RowCounts *rows) { return each_row(call, rows, mse_row); }
Status ref_bce(const OpCall *call, const RowCounts *rows) { return each_row(call, rows, bce_row); }
