/* Private to kernels/ref: helpers of its files. Plain scalar loops in fp32 define each op; sums over many
   values (LayerNorm statistics, norms, column sums) are double. Values are widened to fp32 when read and rounded once,
   to nearest even, when stored. One thread; no memory but call->scratch. */
#ifndef CAIRN_KERNELS_REF_H
#define CAIRN_KERNELS_REF_H

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/backend.h"
#include "kernels/dropout.h"

/* X(op, run, scratch): every op that a backend runs. */
#define REF_LIST(X)                                                                                                    \
    X(EMBED, ref_embed, ref_embed_scratch)                                                                             \
    X(EMBED_BWD, ref_embed_bwd, ref_embed_scratch)                                                                     \
    X(LINEAR, ref_linear, ref_linear_scratch)                                                                          \
    X(LINEAR_DGRAD, ref_linear_dgrad, ref_linear_dgrad_scratch)                                                        \
    X(LINEAR_WGRAD, ref_linear_wgrad, ref_linear_wgrad_scratch)                                                        \
    X(ATTENTION, ref_attention, ref_attention_scratch)                                                                 \
    X(ATTENTION_BWD, ref_attention_bwd, ref_attention_scratch)                                                         \
    X(GELU, ref_gelu, no_scratch)                                                                                      \
    X(GELU_BWD, ref_gelu_bwd, no_scratch)                                                                              \
    X(ADDNORM, ref_addnorm, ref_addnorm_scratch)                                                                       \
    X(ADDNORM_BWD, ref_addnorm_bwd, ref_addnorm_bwd_scratch)                                                           \
    X(AFFINE, ref_affine, no_scratch)                                                                                  \
    X(GATHER, ref_gather, no_scratch)                                                                                  \
    X(SCATTER, ref_scatter, no_scratch)                                                                                \
    X(TANH, ref_tanh, no_scratch)                                                                                      \
    X(TANH_BWD, ref_tanh_bwd, no_scratch)                                                                              \
    X(DROPOUT, ref_dropout, ref_dropout_scratch)                                                                       \
    X(XENT, ref_xent, ref_xent_scratch)                                                                                \
    X(MSE, ref_mse, no_scratch)                                                                                        \
    X(MLM_XENT, ref_mlm_xent, ref_mlm_xent_scratch)                                                                    \
    X(GRAD_NORM, ref_grad_norm, no_scratch)                                                                            \
    X(ADAMW, ref_adamw, no_scratch)                                                                                    \
    X(LAMB, ref_lamb, no_scratch)                                                                                      \
    X(PACK, ref_pack, no_scratch)                                                                                      \
    X(ZERO, ref_zero, no_scratch)                                                                                      \
    X(OFFLOAD, ref_transfer, no_scratch)                                                                               \
    X(FETCH, ref_transfer, no_scratch)                                                                                 \
    X(BLOCK_SUMS, ref_block_sums, no_scratch)                                                                          \
    X(LAMB_STEP, ref_lamb_step, no_scratch)                                                                            \
    X(LAMB_DESCEND, ref_lamb_descend, no_scratch)

#define X(op, run, scratch)                                                                                            \
    OpRun run;                                                                                                         \
    OpScratch scratch;
REF_LIST(X)
#undef X

/* ---- operands ---- */

/* Rows of an operand that hold something: those of the bucket, less the ones beyond ctl's count. */
static inline int64_t ref_real_rows(const Operand *o, const RowCounts *rows, const Ctl *ctl)
{
    int64_t all = rows_in(o->rows, rows), real = all;
    if (o->rows.kind == ROWS_TOKENS) real = ctl->n_tokens;
    if (o->rows.kind == ROWS_SEQS) real = ctl->n_seqs;
    if (o->rows.kind == ROWS_MASKED) real = ctl->n_masked;
    return real < all ? real : all;
}

static inline void ref_check_dtype(Dtype dtype)
{
    CHECK(dtype == BF16 || dtype == F16, "ref computes in f32, bf16 and f16, not %s", dtype_name(dtype));
}

/* n values from element `first` on, as fp32: where they lie, or widened into `buffer`. */
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

static inline void ref_clear_rows(const Operand *o, int64_t first, int64_t end)
{
    size_t row = (size_t)o->cols * dtype_size(o->dtype);
    if (first < end) memset((char *)o->data + (size_t)first * row, 0, (size_t)(end - first) * row);
}

static inline int32_t ref_index(const Operand *o, int64_t i, int64_t limit, const char *what)
{
    int32_t index = ((const int32_t *)o->data)[i];
    CHECK(index >= 0 && index < limit, "%s of row %lld is %d; expected 0 to %lld", what, (long long)i, index,
          (long long)limit - 1);
    return index;
}

/* ---- scratch: a Space is laid out by one function, for counting (base NULL) and for running ---- */

typedef struct {
    char *base;
    size_t bytes;
} RefSpace;

static inline void *ref_take(RefSpace *space, int64_t count, size_t size)
{
    void *p = space->base ? space->base + space->bytes : NULL;
    space->bytes += ((size_t)count * size + 63) / 64 * 64;
    return p;
}
static inline float *ref_take_floats(RefSpace *space, int64_t n) { return ref_take(space, n, sizeof(float)); }
static inline double *ref_take_doubles(RefSpace *space, int64_t n) { return ref_take(space, n, sizeof(double)); }

static inline void ref_check_space(const OpCall *call, const RefSpace *space)
{
    CHECK(call->scratch_bytes >= space->bytes, "%s needs %zu bytes of scratch, was given %zu", op_info(call->op)->name,
          space->bytes, call->scratch_bytes);
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

/* Negative log-likelihood of `label` under softmax(logits). In training the logits become softmax − onehot.
   A negative label is none: loss 0, gradient 0, never correct. `correct`: the first largest logit is the label. */
float ref_cross_entropy(float *logits, int64_t n, int32_t label, bool training, bool *correct);

/* ---- the flat parameter space ---- */

/* Σ x² in double: sums over blocks of NORM_BLOCK elements, added in order. */
double ref_sum_squares(const float *x, int64_t n);
/* The same of a whole tensor, from a table of its blocks' sums. */
double ref_add_blocks(const Segment *tensor, const double *sums);

typedef struct {
    float beta1, beta2, eps, bias1, bias2, grad_scale;
} RefAdam;
RefAdam ref_adam_of(const OpCall *call, const Stats *stats);
/* Moves m and v on and returns u = m·bias1 / (√(v·bias2) + eps) + decay·p. */
float ref_adam_update(const RefAdam *a, float p, float gradient, float decay, float *m, float *v);

#endif
