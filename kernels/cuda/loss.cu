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
    const void *labels;  // (rows): int32 classes, or float values; (rows, classes): float
    const Ctl *ctl;
    const LossScaling *scaling; /* NULL: scale 1 */
    float *loss;                // (rows)
    Stats *stats;
    int64_t rows, cols;
    int32_t classes, slot;
    bool targets; /* XENT's labels */
};

/* Each loss has a function for one row of logits `x`: it returns the row's loss and writes its gradient to dx (cols),
   which is NULL in evaluation. */

__device__ static inline int32_t largest(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t j = 1; j < n; j++)
        if (x[j] > x[best]) best = j;
    return best;
}

/* Labels are classes, or targets (rows, classes) F32. */
struct Xent {
    template <typename T>
    __device__ static inline float row(const LossCall &c, int64_t r, const float *x, T *dx, float scale, bool *correct)
    {
        const float *targets = c.targets ? static_cast<const float *>(c.labels) + r * c.classes : nullptr;
        int32_t best = largest(x, c.classes);
        int32_t label = targets ? largest(targets, c.classes) : static_cast<const int32_t *>(c.labels)[r];
        if (label < 0) {
            for (int64_t j = 0; dx && j < c.cols; j++) dx[j] = from_float<T>(0);
            return 0;
        }
        double sum = 0, all = targets ? 0 : 1, wanted = targets ? 0 : (double)(label < c.classes ? x[label] : NAN);
        for (int32_t j = 0; j < c.classes; j++) {
            sum += (double)expf(x[j] - x[best]);
            if (targets) all += (double)targets[j], wanted += (double)targets[j] * (double)x[j];
        }
        for (int64_t j = 0; dx && j < c.cols; j++) {
            float g = label < c.classes ? 0.0f : NAN, t = j == label ? 1.0f : 0.0f;
            if (targets && j < c.classes) t = targets[j];
            if (j < c.classes) g += (float)(all * (double)expf(x[j] - x[best]) / sum) - t;
            dx[j] = from_float<T>(g * scale);
        }
        *correct = best == label;
        return (float)(all * (log(sum) + (double)x[best]) - wanted);
    }
};

/* Regression on the first column: loss = (logit − label)². */
struct Mse {
    template <typename T>
    __device__ static inline float row(const LossCall &c, int64_t r, const float *x, T *dx, float scale, bool *)
    {
        float error = x[0] - static_cast<const float *>(c.labels)[r];
        for (int64_t j = 0; dx && j < c.cols; j++) dx[j] = from_float<T>(j == 0 ? 2 * error * scale : 0);
        return error * error;
    }
};

/* Labels (rows, classes) F32. */
struct Bce {
    template <typename T>
    __device__ static inline float row(const LossCall &c, int64_t r, const float *logits, T *dx, float scale,
                                       bool *correct)
    {
        const float *labels = static_cast<const float *>(c.labels) + r * c.classes;
        double sum = 0;
        *correct = true;
        for (int64_t j = 0; j < c.cols; j++) {
            bool counts = j < c.classes;
            double x = counts ? (double)logits[j] : 0, y = counts ? (double)labels[j] : 0, e = exp(-fabs(x));
            double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
            if (counts) sum += (x > 0 ? x : 0) - x * y + log1p(e);
            if (counts) *correct = *correct && (x > 0) == (y > 0.5);
            if (dx) dx[j] = from_float<T>(counts ? (float)((sigmoid - y) / c.classes) * scale : 0);
        }
        return (float)(sum / c.classes);
    }
};

/* dlogits (rows, cols), or NULL in evaluation */
template <typename T, typename Loss> __global__ void loss_kernel(LossCall c, T *dlogits)
{
    CUDA_SHARED(double, shared, [32]);
    float scale = c.ctl->scale_seqs * loss_scale_of(c.scaling);
    double losses = 0;
    int64_t n_correct = 0;
    for (int64_t r = threadIdx.x; r < c.rows; r += THREADS) {
        T *dx = dlogits ? dlogits + r * c.cols : nullptr;
        bool real = r < c.ctl->n_seqs, correct = false;
        for (int64_t j = 0; dx && !real && j < c.cols; j++) dx[j] = from_float<T>(0);
        float loss = real ? Loss::template row<T>(c, r, c.logits + r * c.cols, dx, scale, &correct) : 0;
        c.loss[r] = loss;
        losses += (double)loss;
        n_correct += correct;
    }
    block_add_stats(c.stats, c.slot, losses, n_correct, shared);
}

/* XENT, MSE and BCE have the same operands. */
template <typename Loss> static Status loss_op(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, XENT, logits), *dlogits = OUT(call, XENT, dlogits);
    CHECK(logits->dtype == F32, "%s: logits are %s; expected f32", op_info(call->op)->name, dtype_name(logits->dtype));
    CHECK(call->attr.loss.classes >= 1 && call->attr.loss.classes <= logits->cols, "%s: %d classes in %lld columns",
          op_info(call->op)->name, call->attr.loss.classes, (long long)logits->cols);
    LossCall c = {cuda_data<const float>(logits),
                  IN(call, XENT, labels)->data,
                  op_ctl(call),
                  cuda_data<const LossScaling>(IN(call, XENT, scaling)),
                  cuda_data<float>(OUT(call, XENT, loss)),
                  cuda_data<Stats>(OUT(call, XENT, stats)),
                  rows_in(logits->rows, rows),
                  logits->cols,
                  call->attr.loss.classes,
                  call->attr.loss.slot,
                  IN(call, XENT, labels)->dtype == F32};
    Dtype dtype = operand_present(dlogits) ? dlogits->dtype : F32;
    CUDA_BY_TYPE(dtype, T, return CUDA_LAUNCH((loss_kernel<T, Loss>), 1, THREADS, 0, c, cuda_data<T>(dlogits)));
}

Status cuda_xent(const OpCall *call, const RowCounts *rows) { return loss_op<Xent>(call, rows); }
Status cuda_mse(const OpCall *call, const RowCounts *rows) { return loss_op<Mse>(call, rows); }
Status cuda_bce(const OpCall *call, const RowCounts *rows) { return loss_op<Bce>(call, rows); }
