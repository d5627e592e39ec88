/* Where an answer begins and ends: a softmax over a sequence's rows in each of the two columns of the logits. */
#include "kernels/loss_scale.h"
#include "kernels/ref/ref.h"

/* One column of a sequence of n ≥ 1 rows from row `first`. Returns −log of the share of `label`, and adds the gradient,
   `scale` times (softmax − onehot), in training. */
static double column_loss(const Operand *logits, const Operand *dlogits, int64_t first, int64_t n, int column,
                          int32_t label, float scale, bool *correct)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        if (ref_load(logits, 2 * (first + i) + column) > ref_load(logits, 2 * (first + best) + column)) best = i;
    float max = ref_load(logits, 2 * (first + best) + column);
    for (int64_t i = 0; i < n; i++) sum += (double)expf(ref_load(logits, 2 * (first + i) + column) - max);
    for (int64_t i = 0; operand_present(dlogits) && i < n; i++) {
        float share = (float)((double)expf(ref_load(logits, 2 * (first + i) + column) - max) / sum);
        ref_store(dlogits, 2 * (first + i) + column, (share - (i == label ? 1.0f : 0.0f)) * scale);
    }
    *correct = *correct && best == label;
    return log(sum) + (double)max - (double)ref_load(logits, 2 * (first + label) + column);
}

Status ref_span_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, SPAN_XENT, logits), *dlogits = OUT(call, SPAN_XENT, dlogits); // (T, 2)
    const int32_t *spans = IN(call, SPAN_XENT, spans)->data;                                       // (S, 2)
    const int32_t *labels = IN(call, SPAN_XENT, labels)->data;                                     // (S, 2)
    const Operand *losses = OUT(call, SPAN_XENT, loss);                                            // (S)
    float *loss = losses->data;
    Stats *stats = OUT(call, SPAN_XENT, stats)->data;
    const Ctl *ctl = op_ctl(call);
    float scale = 0.5f * ctl->scale_seqs * loss_scale_of(IN(call, SPAN_XENT, scaling)->data);
    int32_t slot = call->attr.loss.slot;
    int64_t all = rows_in(losses->rows, rows), real = host_real_rows(losses, rows, ctl);
    int64_t tokens = rows_in(logits->rows, rows);
    if (operand_present(dlogits) && real == 0) host_clear_rows(dlogits, all > 0 ? spans[0] : 0, tokens);
    for (int64_t s = 0; s < all; s++) {
        int64_t first = spans[2 * s], n = spans[2 * s + 1] - first;
        bool correct = true, labelled = s < real && labels[2 * s] >= 0 && labels[2 * s + 1] >= 0;
        loss[s] = 0;
        if (operand_present(dlogits) && s < real)
            host_clear_rows(dlogits, labelled ? first + n : first, s + 1 < real ? spans[2 * s + 2] : tokens);
        if (!labelled) continue;
        CHECK(labels[2 * s] < n && labels[2 * s + 1] < n, "span_xent: labels %d and %d in a sequence of %lld rows",
              labels[2 * s], labels[2 * s + 1], (long long)n);
        double sum = 0;
        for (int c = 0; c < 2; c++)
            sum += column_loss(logits, dlogits, first, n, c, labels[2 * s + c], scale, &correct);
        loss[s] = (float)(0.5 * sum);
        stats->loss[slot] += (double)loss[s];
        stats->correct[slot] += correct;
    }
    return OK;
}
