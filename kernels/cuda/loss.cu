/* Losses of one row per sequence: few rows of few classes, so one block does all, a thread per row. Σ of row losses is
   added to stats->loss[slot] in double: a thread's rows in order, then the tree of the block. A label that names no
   class gives NaN, which stops the update. */
#include <math.h>

#include "kernels/cuda/sums.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/loss_scale.h"

enum { THREADS = 256 };

struct LossCall {
    const float *logits; // (rows, cols)
    const void *labels;  // (rows): int32 classes, or float values
    const Ctl *ctl;
    const LossScaling *scaling; /* NULL: scale 1 */
    float *loss;                // (rows)
    Stats *stats;
    int64_t rows, cols;
    int32_t classes, slot;
    float smoothing;
};

/* dlogits (rows, cols), or NULL in evaluation */
template <typename T> __global__ void xent_kernel(LossCall c, T *dlogits)
{
    CUDA_SHARED(double, shared, [32]);
    const int32_t *labels = static_cast<const int32_t *>(c.labels);
    float scale = c.ctl->scale_seqs * loss_scale_of(c.scaling);
    double losses = 0;
    int64_t correct = 0;
    for (int64_t r = threadIdx.x; r < c.rows; r += THREADS) {
        int32_t label = r < c.ctl->n_seqs ? labels[r] : -1, best = 0;
        const float *x = c.logits + r * c.cols;
        T *dx = dlogits ? dlogits + r * c.cols : nullptr;
        if (label < 0) {
            c.loss[r] = 0;
            for (int64_t j = 0; dx && j < c.cols; j++) dx[j] = from_float<T>(0);
            continue;
        }
        for (int32_t j = 1; j < c.classes; j++)
            if (x[j] > x[best]) best = j;
        double sum = 0;
        for (int32_t j = 0; j < c.classes; j++) sum += (double)expf(x[j] - x[best]);
        float own = label < c.classes ? x[label] : NAN;
        double wanted = (double)own;
        if (c.smoothing > 0) {
            double all = 0;
            for (int32_t j = 0; j < c.classes; j++) all += (double)x[j];
            wanted = (1 - (double)c.smoothing) * (double)own + (double)c.smoothing * all / c.classes;
        }
        float loss = (float)(log(sum) + (double)x[best] - wanted);
        float hot = 1.0f - c.smoothing, all_hot = c.smoothing / (float)c.classes;
        for (int64_t j = 0; dx && j < c.cols; j++) {
            float g = label < c.classes ? 0.0f : NAN;
            if (j < c.classes) g += (float)((double)expf(x[j] - x[best]) / sum) - (j == label ? hot : 0.0f) - all_hot;
            dx[j] = from_float<T>(g * scale);
        }
        c.loss[r] = loss;
        losses += (double)loss;
        correct += best == label;
    }
    block_add_stats(c.stats, c.slot, losses, correct, shared);
}

/* Regression on the first column: loss = (logit − label)². */
template <typename T> __global__ void mse_kernel(LossCall c, T *dlogits)
{
    CUDA_SHARED(double, shared, [32]);
    const float *labels = static_cast<const float *>(c.labels);
    float scale = c.ctl->scale_seqs * loss_scale_of(c.scaling);
    double losses = 0;
    for (int64_t r = threadIdx.x; r < c.rows; r += THREADS) {
        float error = r < c.ctl->n_seqs ? c.logits[r * c.cols] - labels[r] : 0;
        for (int64_t j = 0; dlogits && j < c.cols; j++)
            dlogits[r * c.cols + j] = from_float<T>(j == 0 ? 2 * error * scale : 0);
        c.loss[r] = error * error;
        losses += (double)(error * error);
    }
    block_add_stats(c.stats, c.slot, losses, 0, shared);
}

/* Labels (rows, classes) F32. */
template <typename T> __global__ void bce_kernel(LossCall c, T *dlogits)
{
    CUDA_SHARED(double, shared, [32]);
    const float *labels = static_cast<const float *>(c.labels);
    float scale = c.ctl->scale_seqs * loss_scale_of(c.scaling);
    double losses = 0;
    int64_t all_correct = 0;
    for (int64_t r = threadIdx.x; r < c.rows; r += THREADS) {
        bool real = r < c.ctl->n_seqs, correct = real;
        double sum = 0;
        for (int64_t j = 0; j < c.cols; j++) {
            bool counts = real && j < c.classes;
            double x = counts ? (double)c.logits[r * c.cols + j] : 0;
            double y = counts ? (double)labels[r * c.classes + j] : 0, e = exp(-fabs(x));
            double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
            if (counts) sum += (x > 0 ? x : 0) - x * y + log1p(e);
            if (counts) correct = correct && (x > 0) == (y > 0.5);
            if (dlogits)
                dlogits[r * c.cols + j] = from_float<T>(counts ? (float)((sigmoid - y) / c.classes) * scale : 0);
        }
        c.loss[r] = (float)(sum / c.classes);
        losses += (double)c.loss[r];
        all_correct += correct;
    }
    block_add_stats(c.stats, c.slot, losses, all_correct, shared);
}

/* XENT, MSE and BCE have the same operands. */
static LossCall loss_call(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN_EITHER(call, XENT, MSE, logits);
    CHECK(logits->dtype == F32, "%s: logits are %s; expected f32", op_info(call->op)->name, dtype_name(logits->dtype));
    CHECK(call->attr.loss.classes >= 1 && call->attr.loss.classes <= logits->cols, "%s: %d classes in %lld columns",
          op_info(call->op)->name, call->attr.loss.classes, (long long)logits->cols);
    return {cuda_data<const float>(logits),
            IN_EITHER(call, XENT, MSE, labels)->data,
            op_ctl(call),
            cuda_data<const LossScaling>(IN_EITHER(call, XENT, MSE, scaling)),
            cuda_data<float>(OUT_EITHER(call, XENT, MSE, loss)),
            cuda_data<Stats>(OUT_EITHER(call, XENT, MSE, stats)),
            rows_in(logits->rows, rows),
            logits->cols,
            call->attr.loss.classes,
            call->attr.loss.slot,
            call->op == OP_XENT ? call->attr.loss.smoothing : 0};
}

Status cuda_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *dlogits = OUT(call, XENT, dlogits);
    LossCall c = loss_call(call, rows);
    Dtype dtype = operand_present(dlogits) ? dlogits->dtype : F32;
    CUDA_BY_TYPE(dtype, T, return CUDA_LAUNCH((xent_kernel<T>), 1, THREADS, 0, c, cuda_data<T>(dlogits)));
}

Status cuda_mse(const OpCall *call, const RowCounts *rows)
{
    const Operand *dlogits = OUT(call, MSE, dlogits);
    LossCall c = loss_call(call, rows);
    Dtype dtype = operand_present(dlogits) ? dlogits->dtype : F32;
    CUDA_BY_TYPE(dtype, T, return CUDA_LAUNCH((mse_kernel<T>), 1, THREADS, 0, c, cuda_data<T>(dlogits)));
}

Status cuda_bce(const OpCall *call, const RowCounts *rows)
{
    const Operand *dlogits = OUT(call, BCE, dlogits);
    LossCall c = loss_call(call, rows);
    Dtype dtype = operand_present(dlogits) ? dlogits->dtype : F32;
    CUDA_BY_TYPE(dtype, T, return CUDA_LAUNCH((bce_kernel<T>), 1, THREADS, 0, c, cuda_data<T>(dlogits)));
}
