/* Private to kernels/ref: helpers of its files. Plain scalar loops in fp32 define each op; sums over many
   values (LayerNorm statistics, norms, column sums) are double. Values are widened to fp32 when read and rounded once,
   to nearest even, when stored. One thread; no memory but call->scratch. */
#pragma once

#include "kernels/backend.h"
#include "kernels/dropout.h"
#include "kernels/host.h"

/* X(op, run, scratch): every op that a backend runs. */
#define REF_LIST(X)                                                                                                    \
    X(EMBED, ref_embed, ref_rows_scratch)                                                                              \
    X(EMBED_BWD, ref_embed_bwd, ref_rows_scratch)                                                                      \
    X(LINEAR, ref_linear, ref_linear_scratch)                                                                          \
    X(LINEAR_DGRAD, ref_linear_dgrad, ref_linear_scratch)                                                              \
    X(LINEAR_WGRAD, ref_linear_wgrad, ref_linear_scratch)                                                              \
    X(ATTENTION, ref_attention, ref_attention_scratch)                                                                 \
    X(ATTENTION_BWD, ref_attention_bwd, ref_attention_scratch)                                                         \
    X(GELU, ref_gelu, no_scratch)                                                                                      \
    X(GELU_BWD, ref_gelu_bwd, no_scratch)                                                                              \
    X(ADDNORM, ref_addnorm, ref_rows_scratch)                                                                          \
    X(ADDNORM_BWD, ref_addnorm_bwd, ref_rows_scratch)                                                                  \
    X(AFFINE, ref_affine, no_scratch)                                                                                  \
    X(GATHER, ref_gather, no_scratch)                                                                                  \
    X(SCATTER, ref_scatter, no_scratch)                                                                                \
    X(ACTIVATE, ref_activate, no_scratch)                                                                              \
    X(ACTIVATE_BWD, ref_activate_bwd, no_scratch)                                                                      \
    X(DROPOUT, ref_dropout, ref_rows_scratch)                                                                          \
    X(POOL, ref_pool, ref_rows_scratch)                                                                                \
    X(POOL_BWD, ref_pool_bwd, ref_rows_scratch)                                                                        \
    X(XENT, ref_xent, ref_rows_scratch)                                                                                \
    X(MSE, ref_mse, no_scratch)                                                                                        \
    X(BCE, ref_bce, no_scratch)                                                                                        \
    X(SPAN_XENT, ref_span_xent, no_scratch)                                                                            \
    X(MLM_XENT, ref_mlm_xent, ref_mlm_xent_scratch)                                                                    \
    X(GRAD_NORM, ref_grad_norm, no_scratch)                                                                            \
    X(ADAMW, ref_adamw, no_scratch)                                                                                    \
    X(LAMB, ref_lamb, no_scratch)                                                                                      \
    X(PACK, ref_pack, no_scratch)                                                                                      \
    X(ZERO, ref_zero, no_scratch)                                                                                      \
    X(ADD, ref_add, no_scratch)                                                                                        \
    X(OFFLOAD, ref_transfer, no_scratch)                                                                               \
    X(FETCH, ref_transfer, no_scratch)                                                                                 \
    X(BLOCK_SUMS, ref_block_sums, no_scratch)                                                                          \
    X(LAMB_STEP, ref_lamb_step, no_scratch)                                                                            \
    X(LAMB_DESCEND, ref_lamb_descend, no_scratch)                                                                      \
    X(DIGEST, ref_digest, no_scratch)                                                                                  \
    X(COMPARE, ref_compare, no_scratch)                                                                                \
    X(CURVATURE, ref_curvature, ref_curvature_scratch)                                                                 \
    X(INVERT, ref_invert, ref_invert_scratch)                                                                          \
    X(ADOPT, ref_adopt, no_scratch)                                                                                    \
    X(PRECONDITION, ref_precondition, ref_precondition_scratch)

#define X(op, run, scratch)                                                                                            \
    OpRun run;                                                                                                         \
    OpScratch scratch;
REF_LIST(X)
#undef X

/* ---- operands ---- */

static inline void ref_check_dtype(Dtype dtype)
{
    CHECK(dtype == BF16 || dtype == F16, "ref computes in f32, bf16 and f16, not %s", dtype_name(dtype));
}

/* Returns n values from element `first` on as fp32: in place, or widened into `buffer`. */
static inline const float *ref_read(const Operand *o, int64_t first, int64_t n, float *buffer)
{
    if (o->dtype == F32) return (const float *)o->data + first;
    ref_check_dtype(o->dtype);
    const uint16_t *from = (const uint16_t *)o->data + first;
    if (o->dtype == BF16)
        for (int64_t i = 0; i < n; i++) buffer[i] = bf16_to_f32(from[i]);
    else
        for (int64_t i = 0; i < n; i++) buffer[i] = f16_to_f32(from[i]);
    return buffer;
}

static inline void ref_write(const Operand *o, int64_t first, int64_t n, const float *from)
{
    if (o->dtype == F32) {
        memmove((float *)o->data + first, from, (size_t)n * sizeof *from);
        return;
    }
    ref_check_dtype(o->dtype);
    uint16_t *to = (uint16_t *)o->data + first;
    if (o->dtype == BF16)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_from_f32(from[i]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = f16_from_f32(from[i]);
}

static inline float ref_load(const Operand *o, int64_t i)
{
    float buffer;
    return *ref_read(o, i, 1, &buffer);
}

static inline void ref_store(const Operand *o, int64_t i, float x) { ref_write(o, i, 1, &x); }

/* x rounded as in a tensor of this type. */
static inline float ref_rounded(Dtype dtype, float x)
{
    if (dtype == BF16) return bf16_to_f32(bf16_from_f32(x));
    return dtype == F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

static inline int32_t ref_index(const Operand *o, int64_t i, int64_t limit, const char *what)
{
    int32_t index = ((const int32_t *)o->data)[i];
    CHECK(index >= 0 && index < limit, "%s of row %lld is %d; expected 0 to %lld", what, (long long)i, index,
          (long long)limit - 1);
    return index;
}

/* ---- scratch ---- */

/* Rows of fp32 and sums over rows, for ops that work row by row; rows.c lists which of them an op has. */
typedef struct {
    float *x, *factor, *buffer, *ds; // (cols)
    double *dgamma, *dbeta;          // (cols): zeros
} RefRows;
RefRows ref_rows(const OpCall *call);
OpScratch ref_rows_scratch;

/* to (cols) += the column sums of x (n, cols). An absent `to` is no error. */
void ref_add_columns(const Operand *to, const Operand *x, int64_t n);

/* to += sums */
static inline void ref_add_sums(float *to, const double *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += (float)sums[i];
}

/* ---- arithmetic ---- */

/* Σ a·b in eight interleaved partial sums: a fixed order that depends on n alone. */
static inline float ref_dot(const float *a, const float *b, int64_t n)
{
    float lane[8] = {0};
    int64_t whole = n / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int j = 0; j < 8; j++) lane[j] += a[i + j] * b[i + j];
    for (int64_t i = whole; i < n; i++) lane[i - whole] += a[i] * b[i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* y += a·x */
static inline void ref_axpy(float *restrict y, float a, const float *restrict x, int64_t n)
{
    int64_t whole = n / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int j = 0; j < 8; j++) y[i + j] += a * x[i + j];
    for (int64_t i = whole; i < n; i++) y[i] += a * x[i];
}

/* s → xhat of one row, in place; returns rstd. Biased variance, eps inside the root. */
float ref_normalise(float *s, int64_t n, float eps);
/* Gradient of the normalised row's input: ds = rstd·(dxhat − mean(dxhat) − xhat·mean(dxhat·xhat)), dxhat = dy·γ. */
void ref_normalise_bwd(float *ds, const float *dy, const float *xhat, float rstd, const float *gamma, int64_t n);

/* −Σ t·log softmax(logits) of `targets` t (n), whose first largest is the label; NULL: 1 for `label`. In training the
   logits become Σt·softmax − t. A negative label is none: loss 0, gradient 0, never correct. `correct`: the first
   largest logit is the label. */
float ref_cross_entropy(float *logits, int64_t n, int64_t label, const float *targets, bool training, bool *correct);

/* ---- the flat parameter space ---- */

/* Σ x² in double: sums over blocks of NORM_BLOCK elements, added in order. */
double ref_sum_squares(const float *x, int64_t n);
