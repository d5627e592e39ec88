/* Rows of LayerNorm: after residual and dropout (ADDNORM), and of the embedding sum (EMBED). A row lies in fp32 in this
   thread's scratch; sums over a row are fp32 in VL lanes. */

#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/philox.h"

#define WHOLE(n) (((n) + VL - 1) / VL * VL)

/* Rows of fp32 and the draws of one row, all in one piece. */
typedef struct {
    float *a, *b;    // (cols)
    uint16_t *draws; // (cols), rounded up to whole calls
} NormScratch;

static int64_t draws_size(int64_t cols) { return (cols + 8 * VL - 1) / (8 * VL) * 8 * VL; }

static NormScratch norm_scratch_at(void *scratch, int64_t cols)
{
    float *a = scratch;
    return (NormScratch){a, a + WHOLE(cols), (uint16_t *)(void *)(a + 2 * WHOLE(cols))};
}

size_t V(norm_scratch)(int64_t cols)
{
    return (2 * (size_t)WHOLE(cols) * sizeof(float) + (size_t)draws_size(cols) * sizeof(uint16_t) + 63) / 64 * 64;
}

INLINE vf drop_lanes(vf x, const Dropout *d, const uint16_t *draws, int64_t j)
{
    if (!d->threshold) return x;
    return (vf)((vi)(x * splat(d->scale)) & kept_lanes(draws + j, d->threshold));
}

/* s, with zeros behind it, becomes xhat; returns rstd. `total` is Σ s. */
INLINE float normalise_row(float *s, int64_t n, vf total, float eps)
{
    float mean = sum_lanes(total) / (float)n;
    vf squares = {0};
    for (int64_t j = 0; j < n; j += VL) {
        vf x = load(s + j) - splat(mean);
        if (n - j < VL) x = (vf)((vi)x & first_lanes(n - j));
        squares = fma_(x, x, squares);
    }
    float rstd = 1.0f / sqrtf(sum_lanes(squares) / (float)n + eps);
    for (int64_t j = 0; j < n; j += VL) store(s + j, (load(s + j) - splat(mean)) * splat(rstd));
    return rstd;
}

/* ds = rstd·(dxhat − mean(dxhat) − xhat·mean(dxhat·xhat)) from element j on; dxhat is in `s->a`, xhat in `s->b`. */
typedef struct {
    vf rstd, mean, mean_dot;
} NormGrad;

INLINE NormGrad norm_grad(float rstd, vf sum, vf dot, int64_t n)
{
    return (NormGrad){splat(rstd), splat(sum_lanes(sum) / (float)n), splat(sum_lanes(dot) / (float)n)};
}

INLINE vf norm_grad_at(const NormGrad *k, const NormScratch *s, int64_t j)
{
    return k->rstd * (load(s->a + j) - k->mean - load(s->b + j) * k->mean_dot);
}

INLINE void accumulate(float *to, int64_t j, int64_t m, vf x)
{
    store_at(to, j, m, false, load_at(to, j, m, false) + x);
}

/* ---- ADDNORM ---- */

INLINE void norm_fwd(const NormRows *a, int64_t first, int64_t end, void *scratch, bool bf16)
{
    int64_t n = a->cols;
    NormScratch s = norm_scratch_at(scratch, n);
    for (int64_t r = first; r < end; r++) {
        if (a->dropout.threshold) row_draws(s.draws, &a->dropout, (uint32_t)a->pos[r], (uint32_t)a->seq[r], n);
        vf total = {0};
        for (int64_t j = 0; j < n; j += VL) {
            vf x = drop_lanes(load_at(a->d, r * n + j, n - j, bf16), &a->dropout, s.draws, j);
            if (a->x) x += load_at(a->x, r * n + j, n - j, bf16);
            store(s.a + j, x);
            total += x;
        }
        a->rstd[r] = normalise_row(s.a, n, total, a->eps);
        for (int64_t j = 0; j < n; j += VL) {
            vf x = load(s.a + j);
            if (a->form_xhat) x = rounded(x, bf16);
            if (a->xhat) store_at(a->xhat, r * n + j, n - j, bf16, x);
            vf y = fma_(load_at(a->gamma, j, n - j, false), x, load_at(a->beta, j, n - j, false));
            store_at(a->y, r * n + j, n - j, bf16, y);
        }
    }
}

INLINE void norm_bwd(const NormRows *a, int64_t first, int64_t end, void *scratch, bool bf16)
{
    int64_t n = a->cols;
    NormScratch s = norm_scratch_at(scratch, n);
    for (int64_t r = first; r < end; r++) {
        vf sum = {0}, dot = {0};
        for (int64_t j = 0; j < n; j += VL) {
            vf gamma = load_at(a->gamma, j, n - j, false), dy = load_at(a->dy, r * n + j, n - j, bf16);
            vf xhat = load_at(a->kept, r * n + j, n - j, bf16);
            if (!a->form_xhat) {
                if (n - j < VL) gamma = select_(first_lanes(n - j), gamma, splat(1.0f)); /* no 0/0 behind the row */
                xhat = (xhat - load_at(a->beta, j, n - j, false)) / gamma;
            }
            vf dxhat = dy * gamma;
            accumulate(a->dgamma, j, n - j, dy * xhat);
            accumulate(a->dbeta, j, n - j, dy);
            sum += dxhat;
            dot = fma_(dxhat, xhat, dot);
            store(s.a + j, dxhat);
            store(s.b + j, xhat);
        }
        NormGrad grad = norm_grad(a->rstd[r], sum, dot, n);
        if (a->dropout.threshold) row_draws(s.draws, &a->dropout, (uint32_t)a->pos[r], (uint32_t)a->seq[r], n);
        for (int64_t j = 0; j < n; j += VL) {
            vf ds = norm_grad_at(&grad, &s, j);
            if (a->dx) store_at(a->dx, r * n + j, n - j, bf16, ds);
            store_at(a->dd, r * n + j, n - j, bf16, drop_lanes(ds, &a->dropout, s.draws, j));
        }
    }
}

void V(norm_fwd)(const NormRows *a, int64_t first, int64_t end, void *scratch)
{
    BY_TYPE(a->bf16, norm_fwd, a, first, end, scratch);
}

void V(norm_bwd)(const NormRows *a, int64_t first, int64_t end, void *scratch)
{
    BY_TYPE(a->bf16, norm_bwd, a, first, end, scratch);
}

INLINE void affine(void *y, const void *xhat, const float *gamma, const float *beta, int64_t rows, int64_t n, bool bf16)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j += VL) {
            vf x = load_at(xhat, r * n + j, n - j, bf16);
            vf z = fma_(load_at(gamma, j, n - j, false), x, load_at(beta, j, n - j, false));
            store_at(y, r * n + j, n - j, bf16, z);
        }
}

void V(affine)(void *y, const void *xhat, const float *gamma, const float *beta, int64_t rows, int64_t cols, bool bf16)
{
    BY_TYPE(bf16, affine, y, xhat, gamma, beta, rows, cols);
}

/* ---- EMBED ---- */

/* The sum of token r's table rows, normalised, into s->b; returns rstd. */
INLINE float embed_row(const EmbedRows *a, int64_t r, const NormScratch *s)
{
    int64_t n = a->cols;
    const float *word = a->word + a->ids[r] * n, *position = a->position + a->pos[r] * n;
    const float *type = a->type ? a->type + a->types[r] * n : NULL;
    vf total = {0};
    for (int64_t j = 0; j < n; j += VL) {
        vf x = load_at(word, j, n - j, false) + load_at(position, j, n - j, false);
        if (type) x += load_at(type, j, n - j, false);
        store(s->b + j, x);
        total += x;
    }
    if (a->dropout.threshold) row_draws(s->draws, &a->dropout, (uint32_t)a->pos[r], (uint32_t)a->seq[r], n);
    return normalise_row(s->b, n, total, a->eps);
}

INLINE void embed_fwd(const EmbedRows *a, int64_t first, int64_t end, void *scratch, bool bf16)
{
    int64_t n = a->cols;
    NormScratch s = norm_scratch_at(scratch, n);
    for (int64_t r = first; r < end; r++) {
        embed_row(a, r, &s);
        for (int64_t j = 0; j < n; j += VL) {
            vf y = fma_(load_at(a->gamma, j, n - j, false), load(s.b + j), load_at(a->beta, j, n - j, false));
            store_at(a->x, r * n + j, n - j, bf16, drop_lanes(y, &a->dropout, s.draws, j));
        }
    }
}

INLINE void embed_bwd(const EmbedRows *a, int64_t first, int64_t end, void *scratch, bool bf16)
{
    int64_t n = a->cols;
    NormScratch s = norm_scratch_at(scratch, n);
    for (int64_t i = first; i < end; i++) {
        int64_t r = a->order[i];
        float rstd = embed_row(a, r, &s);
        vf sum = {0}, dot = {0};
        for (int64_t j = 0; j < n; j += VL) {
            vf dy = drop_lanes(load_at(a->dx, r * n + j, n - j, bf16), &a->dropout, s.draws, j), xhat = load(s.b + j);
            vf dxhat = dy * load_at(a->gamma, j, n - j, false);
            if (a->dgamma) {
                accumulate(a->dgamma, j, n - j, dy * xhat);
                accumulate(a->dbeta, j, n - j, dy);
            }
            sum += dxhat;
            dot = fma_(dxhat, xhat, dot);
            store(s.a + j, dxhat);
        }
        NormGrad grad = norm_grad(rstd, sum, dot, n);
        float *to = a->dtable + a->index[r] * n, *type = a->dtype ? a->dtype + a->types[r] * n : NULL;
        for (int64_t j = 0; j < n; j += VL) {
            vf ds = norm_grad_at(&grad, &s, j);
            accumulate(to, j, n - j, ds);
            if (type) accumulate(type, j, n - j, ds);
        }
    }
}

void V(embed_fwd)(const EmbedRows *a, int64_t first, int64_t end, void *scratch)
{
    BY_TYPE(a->bf16, embed_fwd, a, first, end, scratch);
}

void V(embed_bwd)(const EmbedRows *a, int64_t first, int64_t end, void *scratch)
{
    BY_TYPE(a->bf16, embed_bwd, a, first, end, scratch);
}
