/* Private to kernels/ref: what its files share. Plain scalar loops in fp32 that say what each op means; sums over many
   values (LayerNorm statistics, norms, column sums) are double. Values are widened to fp32 when read and rounded once,
   to nearest even, when stored. One thread; no memory but call->scratch. */
#ifndef CAIRN_KERNELS_REF_H
#define CAIRN_KERNELS_REF_H

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/dropout.h"
#include "kernels/op.h"

/* X(op, function): every op of the table. Those in REF_SCRATCH_LIST have <function>_scratch too. */
#define REF_LIST(X)                                                                                                    \
    X(EMBED, ref_embed)                                                                                                \
    X(EMBED_BWD, ref_embed_bwd)                                                                                        \
    X(LINEAR, ref_linear)                                                                                              \
    X(LINEAR_DGRAD, ref_linear_dgrad)                                                                                  \
    X(LINEAR_WGRAD, ref_linear_wgrad)                                                                                  \
    X(ATTENTION, ref_attention)                                                                                        \
    X(ATTENTION_BWD, ref_attention_bwd)                                                                                \
    X(GELU, ref_gelu)                                                                                                  \
    X(GELU_BWD, ref_gelu_bwd)                                                                                          \
    X(ADDNORM, ref_addnorm)                                                                                            \
    X(ADDNORM_BWD, ref_addnorm_bwd)                                                                                    \
    X(AFFINE, ref_affine)                                                                                              \
    X(GATHER, ref_gather)                                                                                              \
    X(SCATTER, ref_scatter)                                                                                            \
    X(TANH, ref_tanh)                                                                                                  \
    X(TANH_BWD, ref_tanh_bwd)                                                                                          \
    X(DROPOUT, ref_dropout)                                                                                            \
    X(XENT, ref_xent)                                                                                                  \
    X(MSE, ref_mse)                                                                                                    \
    X(MLM_XENT, ref_mlm_xent)                                                                                          \
    X(GRAD_NORM, ref_grad_norm)                                                                                        \
    X(ADAMW, ref_adamw)                                                                                                \
    X(LAMB, ref_lamb)                                                                                                  \
    X(PACK, ref_pack)                                                                                                  \
    X(ZERO, ref_zero)                                                                                                  \
    X(OFFLOAD, ref_offload)                                                                                            \
    X(FETCH, ref_fetch)                                                                                                \
    X(BLOCK_SUMS, ref_block_sums)                                                                                      \
    X(LAMB_STEP, ref_lamb_step)                                                                                        \
    X(LAMB_DESCEND, ref_lamb_descend)

#define REF_SCRATCH_LIST(X)                                                                                            \
    X(EMBED, ref_embed)                                                                                                \
    X(EMBED_BWD, ref_embed_bwd)                                                                                        \
    X(LINEAR, ref_linear)                                                                                              \
    X(LINEAR_DGRAD, ref_linear_dgrad)                                                                                  \
    X(LINEAR_WGRAD, ref_linear_wgrad)                                                                                  \
    X(ATTENTION, ref_attention)                                                                                        \
    X(ATTENTION_BWD, ref_attention_bwd)                                                                                \
    X(ADDNORM, ref_addnorm)                                                                                            \
    X(ADDNORM_BWD, ref_addnorm_bwd)                                                                                    \
    X(DROPOUT, ref_dropout)                                                                                            \
    X(XENT, ref_xent)                                                                                                  \
    X(MLM_XENT, ref_mlm_xent)

#define X(op, function) Status function(const OpCall *call, const RowCounts *rows);
REF_LIST(X)
#undef X
#define X(op, function) size_t function##_scratch(const OpCall *call, const RowCounts *rows);
REF_SCRATCH_LIST(X)
#undef X

/* ---- operands ---- */

static inline const Operand *ref_in(const OpCall *call, const char *name) { return &call->in[op_in(call->op, name)]; }
static inline const Operand *ref_out(const OpCall *call, const char *name)
{
    return &call->out[op_out(call->op, name)];
}
static inline const Ctl *ref_ctl(const OpCall *call) { return ref_in(call, "ctl")->data; }

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

/* x as it will stand in a tensor of this type. */
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

const Segment *ref_segments(const OpCall *call, const RowCounts *rows, int64_t *n);
/* Σ x² in double: sums over blocks of NORM_BLOCK elements, added in order. */
double ref_sum_squares(const float *x, int64_t n);
/* The same of a whole tensor, from a table of its blocks' sums. */
double ref_add_blocks(const Segment *tensor, const double *sums);

typedef struct {
    float beta1, beta2, eps, bias1, bias2, grad_scale;
} RefAdam;
RefAdam ref_adam_of(const OpCall *call);
/* Moves m and v on and returns u = m·bias1 / (√(v·bias2) + eps) + decay·p. */
float ref_adam_update(const RefAdam *a, float p, float gradient, float decay, float *m, float *v);

#endif
