/* Where an answer begins and ends: few sequences of some hundred rows, so one block does all, a warp per sequence. Σ of
   row losses is added to stats->loss[slot] in double: a warp's sequences in order, then the tree of the block. A label
   beyond the sequence gives NaN, which stops the update. */
#include <math.h>

#include "kernels/cuda/sums.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/loss_scale.h"

enum { THREADS = 1024 };

struct SpanCall {
    const float *logits;           // (T, 2)
    const int32_t *spans, *labels; // (S, 2)
    const Ctl *ctl;
    const LossScaling *scaling; /* NULL: scale 1 */
    float *loss;                // (S)
    Stats *stats;
    int64_t tokens, seqs;
    int32_t slot;
};

/* The largest of a column and the first row that has it, in every lane. */
__device__ static inline float column_max(const float *x, int32_t n, int32_t *best)
{
    float max = -INFINITY;
    *best = n;
    for (int32_t i = (int32_t)(threadIdx.x % CUDA_WARP); i < n; i += CUDA_WARP) {
        if (*best < n && !(x[2 * i] > max)) continue;
        max = x[2 * i];
        *best = i;
    }
    for (int step = CUDA_WARP / 2; step > 0; step /= 2) {
        float other = __shfl_xor_sync(CUDA_FULL, max, step);
        int32_t at = __shfl_xor_sync(CUDA_FULL, *best, step);
        bool takes = at < n && (*best >= n || other > max || (other == max && at < *best));
        if (takes) max = other;
        if (takes) *best = at;
    }
    return max;
}

/* The loss of one column of a sequence of n rows; all lanes call. x and dx point to its first element, the next is two
   further; dx NULL in evaluation. */
template <typename T>
__device__ static inline double column_loss(const float *x, T *dx, int32_t n, int32_t label, float scale, bool *correct)
{
    int32_t best;
    float max = column_max(x, n, &best), own = label < n ? x[2 * label] : NAN;
    double sum = 0;
    for (int32_t i = (int32_t)(threadIdx.x % CUDA_WARP); i < n; i += CUDA_WARP) sum += (double)expf(x[2 * i] - max);
    sum = warp_sum(sum);
    for (int32_t i = (int32_t)(threadIdx.x % CUDA_WARP); dx && i < n; i += CUDA_WARP) {
        float g = label < n ? (float)((double)expf(x[2 * i] - max) / sum) - (i == label ? 1.0f : 0.0f) : NAN;
        dx[2 * i] = from_float<T>(g * scale);
    }
    *correct = *correct && best == label;
    return log(sum) + (double)max - (double)own;
}

/* dlogits (T, 2), or NULL in evaluation */
template <typename T> __global__ void span_xent_kernel(SpanCall c, T *dlogits)
{
    CUDA_SHARED(double, shared, [32]);
    float scale = 0.5f * c.ctl->scale_seqs * loss_scale_of(c.scaling);
    double losses = 0;
    int64_t n_correct = 0;
    bool none = c.ctl->n_seqs == 0;
    int64_t from = none && c.seqs > 0 ? 2 * (int64_t)c.spans[0] : 0;
    for (int64_t i = from + threadIdx.x; dlogits && none && i < 2 * c.tokens; i += THREADS)
        dlogits[i] = from_float<T>(0);
    for (int64_t s = threadIdx.x / CUDA_WARP; s < c.seqs; s += THREADS / CUDA_WARP) {
        bool first_lane = threadIdx.x % CUDA_WARP == 0, real = s < c.ctl->n_seqs;
        int32_t begin = c.spans[2 * s], n = c.spans[2 * s + 1] - begin;
        int32_t start = real ? c.labels[2 * s] : -1, end = real ? c.labels[2 * s + 1] : -1;
        bool correct = true, labelled = start >= 0 && end >= 0 && n > 0;
        int64_t next = s + 1 < c.seqs && s + 1 < c.ctl->n_seqs ? c.spans[2 * s + 2] : c.tokens;
        float loss = 0;
        for (int64_t i = 2 * (begin + (labelled ? (int64_t)n : 0)) + threadIdx.x % CUDA_WARP;
             dlogits && real && i < 2 * next; i += CUDA_WARP)
            dlogits[i] = from_float<T>(0);
        if (labelled) {
            const float *x = c.logits + 2 * (int64_t)begin;
            T *dx = dlogits ? dlogits + 2 * (int64_t)begin : nullptr;
            double sum = column_loss<T>(x, dx, n, start, scale, &correct);
            sum += column_loss<T>(x + 1, dx ? dx + 1 : nullptr, n, end, scale, &correct);
            loss = (float)(0.5 * sum);
            if (first_lane) losses += (double)loss;
            if (first_lane) n_correct += correct;
        }
        if (first_lane) c.loss[s] = loss;
    }
    block_add_stats(c.stats, c.slot, losses, n_correct, shared);
}

Status cuda_span_xent(const OpCall *call, const RowCounts *rows)
{
    const Operand *logits = IN(call, SPAN_XENT, logits), *loss = OUT(call, SPAN_XENT, loss),
                  *dlogits = OUT(call, SPAN_XENT, dlogits);
    CHECK(logits->dtype == F32 && logits->cols == 2, "span_xent: logits are %s in %lld columns; expected f32 in 2",
          dtype_name(logits->dtype), (long long)logits->cols);
    SpanCall c = {cuda_data<const float>(logits),
                  cuda_data<const int32_t>(IN(call, SPAN_XENT, spans)),
                  cuda_data<const int32_t>(IN(call, SPAN_XENT, labels)),
                  op_ctl(call),
                  cuda_data<const LossScaling>(IN(call, SPAN_XENT, scaling)),
                  cuda_data<float>(loss),
                  cuda_data<Stats>(OUT(call, SPAN_XENT, stats)),
                  rows_in(logits->rows, rows),
                  rows_in(loss->rows, rows),
                  call->attr.loss.slot};
    Dtype dtype = operand_present(dlogits) ? dlogits->dtype : F32;
    CUDA_BY_TYPE(dtype, T, return CUDA_LAUNCH((span_xent_kernel<T>), 1, THREADS, 0, c, cuda_data<T>(dlogits)));
}
