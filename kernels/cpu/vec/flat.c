/* Passes over memory: column sums, sums of squares, the optimizers' updates, rows of the MLM loss. */
#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/word_mix.h"

INLINE void column_sums(float *sums, const void *x, int64_t first, int64_t end, int64_t cols, bool bf16)
{
    for (int64_t j = 0; j < cols; j += VL) store_at(sums, j, cols - j, false, splat(0));
    for (int64_t r = first; r < end; r += 4) {
        int64_t rows = end - r < 4 ? end - r : 4;
        for (int64_t j = 0; j < cols; j += VL) {
            vf sum = load_at(x, r * cols + j, cols - j, bf16);
            for (int64_t i = 1; i < rows; i++) sum += load_at(x, (r + i) * cols + j, cols - j, bf16);
            store_at(sums, j, cols - j, false, load_at(sums, j, cols - j, false) + sum);
        }
    }
}

void V(column_sums)(float *sums, const void *x, int64_t first, int64_t end, int64_t cols, bool bf16)
{
    BY_TYPE(bf16, column_sums, sums, x, first, end, cols);
}

/* to[first … end) += the same of each of the n blocks, block after block */
void V(add_blocks)(float *to, const float *blocks, int64_t n, int64_t stride, int64_t first, int64_t end)
{
    for (int64_t j = first; j < end; j += VL) {
        vf sum = load_at(blocks, j, end - j, false);
        for (int64_t i = 1; i < n; i++) sum += load_at(blocks + i * stride, j, end - j, false);
        store_at(to, j, end - j, false, load_at(to, j, end - j, false) + sum);
    }
}

void V(add_row)(void *to, const void *from, int64_t n, bool bf16)
{
    for (int64_t j = 0; j < n; j += VL)
        store_at(to, j, n - j, bf16, load_at(to, j, n - j, bf16) + load_at(from, j, n - j, bf16));
}

/* Σ word_mix of a row whose first word is number `place` of the tensor. */
uint64_t V(digest_row)(const void *row, int64_t bytes, uint64_t place)
{
    uint64_t sum = 0, word;
    int64_t n = bytes / 8, rest = bytes % 8;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&word, (const char *)row + 8 * i, 8);
        sum += word_mix(word, place + (uint64_t)i);
    }
    if (rest == 0) return sum;
    word = 0;
    memcpy(&word, (const char *)row + 8 * n, (size_t)rest);
    return sum + word_mix(word, place + (uint64_t)n);
}

/* Half a vector of floats, as doubles. */
typedef float HalfMem __attribute__((vector_size(2 * VL), aligned(4), may_alias));
typedef double vd __attribute__((vector_size(4 * VL)));

INLINE vd load_double(const float *p) { return __builtin_convertvector(*(const HalfMem *)p, vd); }

INLINE double block_squares(const float *x, int64_t n)
{
    vd sum[2] = {{0}, {0}};
    int64_t whole = n / VL * VL;
    for (int64_t i = 0; i < whole; i += VL) {
        vd a = load_double(x + i), b = load_double(x + i + VL / 2);
        sum[0] += a * a;
        sum[1] += b * b;
    }
    vd all = sum[0] + sum[1];
    double total = 0;
    for (int i = 0; i < VL / 2; i++) total += all[i];
    for (int64_t i = whole; i < n; i++) total += (double)x[i] * (double)x[i];
    return total;
}

/* Σ x² in double: blocks of NORM_BLOCK values, added in order. */
double V(sum_squares)(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += NORM_BLOCK)
        total += block_squares(x + first, n - first < NORM_BLOCK ? n - first : NORM_BLOCK);
    return total;
}

/* Updates m and v; then p −= rate·u, or writes u alone where `u` is given (it may lie in g's memory). */
void V(adam)(float *p, float *m, float *v, const float *g, float *u, int64_t n, const Adam *a)
{
    for (int64_t i = 0; i < n; i += VL) {
        int64_t left = n - i;
        vf grad = load_at(g, i, left, false) * splat(a->grad_scale), at = load_at(p, i, left, false);
        vf mean = fma_(splat(a->beta1), load_at(m, i, left, false), splat(1.0f - a->beta1) * grad);
        vf square = fma_(splat(a->beta2), load_at(v, i, left, false), splat(1.0f - a->beta2) * grad * grad);
        store_at(m, i, left, false, mean);
        store_at(v, i, left, false, square);
        vf update = mean * splat(a->bias1) / (sqrt_(square * splat(a->bias2)) + splat(a->eps));
        update = fma_(splat(a->decay), at, update);
        if (u)
            store_at(u, i, left, false, update);
        else
            store_at(p, i, left, false, fma_(splat(-a->rate), update, at));
    }
}

void V(descend)(float *p, const float *u, float rate, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL)
        store_at(p, i, n - i, false, fma_(splat(-rate), load_at(u, i, n - i, false), load_at(p, i, n - i, false)));
}

/* Loss of one row; where `gradient` is given (in the compute type; it may lie in the logits' memory) it becomes
   (softmax − onehot)·scale over the classes and 0 in the columns behind them. A negative label is none. */
float V(softmax_row)(void *gradient, float *logits, int64_t classes, int64_t cols, int32_t label, float scale,
                     bool bf16, bool *correct)
{
    vf best = splat(-INFINITY);
    for (int64_t j = 0; j < classes; j += VL) {
        vf x = load_at(logits, j, classes - j, false);
        if (classes - j < VL) x = select_(first_lanes(classes - j), x, splat(-INFINITY));
        best = max_(best, x);
    }
    float max = max_lanes(best), own = label >= 0 ? logits[label] : 0, loss = 0;
    int64_t largest = 0;
    while (largest < classes - 1 && !(logits[largest] >= max)) largest++;
    *correct = label >= 0 && largest == label;
    double sum = 0;
    if (label >= 0) {
        for (int64_t first = 0; first < classes; first += NORM_BLOCK) {
            int64_t end = first + NORM_BLOCK < classes ? first + NORM_BLOCK : classes;
            vf part = {0};
            for (int64_t j = first; j < end; j += VL) {
                vf e = exp_(load_at(logits, j, end - j, false) - splat(max));
                if (end - j < VL) e = (vf)((vi)e & first_lanes(end - j));
                store_at(logits, j, end - j, false, e);
                part += e;
            }
            sum += (double)sum_lanes(part);
        }
        loss = (float)(log(sum) + (double)max - (double)own);
    }
    if (!gradient) return loss;
    float factor = label >= 0 ? (float)((double)scale / sum) : 0;
    float at_label = label >= 0 ? (float)((double)logits[label] / sum - 1.0) * scale : 0;
    for (int64_t j = 0; j < cols; j += VL) {
        vf g = {0};
        if (label >= 0 && j < classes) {
            g = load_at(logits, j, classes - j, false) * splat(factor);
        }
        store_at(gradient, j, cols - j, bf16, g);
    }
    if (label >= 0 && bf16)
        ((uint16_t *)gradient)[label] = bf16_from_f32(at_label);
    else if (label >= 0)
        ((float *)gradient)[label] = at_label;
    return loss;
}
