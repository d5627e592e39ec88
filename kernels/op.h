/* The ops of a plan: what each reads and writes, what it may do in place, and its attributes. This is all that plans
   and backends share. The table is in op.c; the meaning of each op is the code in kernels/ref/.

   T tokens of a micro-batch, S sequences, M masked positions, H hidden, F feed-forward, A heads, V padded vocabulary.
   "c" is the compute type (F32, BF16 or F16); parameters, gradients of parameters and statistics are F32. An output
   marked
   "+=" is accumulated into. Every op writes all rows of the micro-batch's bucket; rows beyond the real ones are finite
   and their gradients exactly 0 (docs/contracts.md 2). */
#ifndef CAIRN_KERNELS_OP_H
#define CAIRN_KERNELS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/norm_block.h"

#define OP_MAX_IN  10
#define OP_MAX_OUT 5

/* X(op, printed name, inputs, outputs). In the lists: "?" optional, "+" accumulated into, "=k" may share the memory of
   input k, "!k" must share it (the kernel reads it there). Shapes in brackets are for readers; nothing parses them.

   EMBED: x = dropout(LN(word[id] + position[pos] + type[type])). Nothing is kept: the backward gathers again.
   LINEAR: y = x·wᵀ + bias; w is a compute copy, forward layout. DGRAD: dx = dy·w (+ add), w in its transposed layout.
   WGRAD: dw += dyᵀ·x, db += column sums of dy.
   ATTENTION: per sequence and head, o = dropout(softmax(q·kᵀ·scale))·v; lse (T, A) is the log-sum-exp of each query's
   scaled scores. `spans` (S, 2) holds each sequence's first row and the row after its last one: packed rows have no
   gaps, a padded rectangle has; in rows of no sequence o, lse and dqkv are 0. qkv (T, 3H) is q, k, v side by side,
   each head by head.
   GELU_BWD: dpre = gelu'(pre)·dg, and, where asked for, g = gelu(pre) again, in one pass.
   ADDNORM: xhat = normalise(dropout(d) + x) without γ and β, y = γ·xhat + β. Form Y keeps y; form XHAT keeps xhat, and
   y is made from the rounded xhat. BWD: dd = gradient of d (dropout applied), dx = gradient of the residual x.
   AFFINE: y = γ·xhat + β, the same bits as ADDNORM's y in form XHAT.
   GATHER: y[i] = x[index[i]]; rows beyond the real count are 0. SCATTER: dx[index[i]] += dy[i]; without `add` the
   others are 0.
   DROPOUT: counter position 0, one row per sequence; its own backward.
   XENT, MSE: loss of each row; dlogits = gradient of Σ loss · ctl.scale_seqs · scaling.scale, which is 1 where
   `scaling` is absent (all but fp16); stats.loss[slot] += Σ loss. A negative label is none: loss and gradient 0, not
   correct. Rows beyond the real count: loss and gradient 0. MLM_XENT: logits = h·wᵀ + bias over the real vocabulary,
   never stored beyond a chunk of rows; loss, and in training dh, dw, db at once (ctl.scale_masked). dh is made with wt,
   w's transposed copy where the backend has such copies. GRAD_NORM: norm = ‖grads‖ / scale from sums over 1024-element
   blocks of each segment in fixed order; grad_scale = 1 / (scale · max(1, norm / max_norm)); finite = 0 where the norm
   is not. Then, with a growth interval, scaling moves on (kernels/loss_scale.h). ADAMW (g = grads · grad_scale): m = β1
   m + (1−β1) g, v = β2 v + (1−β2) g², u = m·bias1 / (√(v·bias2) + eps) + decay·p, p −= lr·u. LAMB: the same u, kept in
   grads, then p −= lr·r·u, r = ‖p‖/‖u‖ where trust is set and both norms are not 0, else 1. Both do nothing if
   stats.finite is 0. PACK: a compute copy of a parameter; ZERO: fills with 0. OFFLOAD, FETCH: the rows of the
   micro-batch's bucket to pinned memory of the host, and back. REDUCE: the sum over all ranks, of a bucket of gradients
   or of the stats; no backend has it, exec/ runs it over the network.
   A sharded optimizer works on segments of this rank's slice: BLOCK_SUMS: the sums of squares of their norm blocks,
   each at its number among all blocks; SHARE (exec's too): every rank's part to all, of such a table or of the weights.
   GRAD_NORM adds `sums`, where it is there, instead of looking at grads. LAMB_STEP: u into grads; LAMB_DESCEND: the
   rest of LAMB, with the norms of all tensors from the tables. */
#define OP_LIST(X)                                                                                                     \
    X(EMBED, "embed", "ids types pos seq ctl word position type gamma beta", "x")                                      \
    X(EMBED_BWD, "embed_bwd", "dx ids types pos seq ctl word position type gamma",                                     \
      "dword+ dposition+ dtype+ dgamma+ dbeta+")                                                                       \
    X(LINEAR, "linear", "x w bias?", "y")                                                                              \
    X(LINEAR_DGRAD, "linear_dgrad", "dy w add?", "dx!2")                                                               \
    X(LINEAR_WGRAD, "linear_wgrad", "x dy", "dw+ db+?")                                                                \
    X(ATTENTION, "attention", "qkv spans seq_index ctl", "o lse")                                                      \
    X(ATTENTION_BWD, "attention_bwd", "qkv o lse do spans seq_index ctl", "dqkv")                                      \
    X(GELU, "gelu", "pre", "g=0")                                                                                      \
    X(GELU_BWD, "gelu_bwd", "pre dg", "dpre=1 g?=0")                                                                   \
    X(ADDNORM, "addnorm", "d x? gamma beta pos seq ctl", "y=0 rstd xhat?")                                             \
    X(ADDNORM_BWD, "addnorm_bwd", "kept rstd gamma beta dy pos seq ctl", "dd dx?=4 dgamma+ dbeta+")                    \
    X(AFFINE, "affine", "xhat gamma beta", "y")                                                                        \
    X(GATHER, "gather", "x index ctl", "y")                                                                            \
    X(SCATTER, "scatter", "dy index ctl add?", "dx!3")                                                                 \
    X(TANH, "tanh", "x", "y=0")                                                                                        \
    X(TANH_BWD, "tanh_bwd", "y dy", "dx=1")                                                                            \
    X(DROPOUT, "dropout", "x seq_index ctl", "y=0")                                                                    \
    X(XENT, "xent", "logits labels ctl scaling?", "dlogits? loss stats+")                                              \
    X(MSE, "mse", "logits labels ctl scaling?", "dlogits? loss stats+")                                                \
    X(MLM_XENT, "mlm_xent", "h w wt? bias labels ctl scaling?", "dh? loss stats+ dw+? db+?")                           \
    X(GRAD_NORM, "grad_norm", "grads segments ctl sums?", "stats+ scaling+?")                                          \
    X(ADAMW, "adamw", "grads segments ctl stats", "weights+ m+ v+")                                                    \
    X(LAMB, "lamb", "segments ctl stats", "weights+ m+ v+ grads+")                                                     \
    X(PACK, "pack", "weight", "copy")                                                                                  \
    X(ZERO, "zero", "", "x")                                                                                           \
    X(OFFLOAD, "offload", "x", "host")                                                                                 \
    X(FETCH, "fetch", "host", "x")                                                                                     \
    X(REDUCE, "reduce", "", "x+")                                                                                      \
    X(BLOCK_SUMS, "block_sums", "x segments", "sums+")                                                                 \
    X(LAMB_STEP, "lamb_step", "weights segments ctl stats", "m+ v+ grads+")                                            \
    X(LAMB_DESCEND, "lamb_descend", "u segments all p_sums u_sums ctl stats", "weights+")                              \
    X(SHARE, "share", "", "x+")

typedef enum {
#define X(op, text, in, out) OP_##op,
    OP_LIST(X)
#undef X
        N_OPS
} Op;

typedef enum { GELU_ERF, GELU_TANH } GeluKind;
typedef enum { NORM_FORM_Y, NORM_FORM_XHAT } NormForm;

/* Fixed when the plan is emitted; a union by op family. */
typedef union {
    struct {
        float eps, dropout;
        uint32_t site;
    } embed;
    struct {
        int64_t k, n; /* x is (rows, k), y is (rows, n), the weight (n, k) */
    } linear;         /* LINEAR, _DGRAD, _WGRAD, MLM_XENT (n = padded vocabulary) */
    struct {
        int32_t heads, head_dim;
        float scale, dropout;
        uint32_t site;
        int32_t longest; /* no sequence has more tokens; 0: than there are rows */
    } attention;
    struct {
        GeluKind kind;
    } gelu;
    struct {
        float eps, dropout;
        uint32_t site;
        NormForm form;
    } norm; /* ADDNORM, ADDNORM_BWD */
    struct {
        float dropout;
        uint32_t site;
    } dropout;
    struct {
        int32_t slot;    /* which of stats.loss and stats.correct */
        int32_t classes; /* real columns of the logits; MLM: real vocabulary */
        int64_t k, n;    /* MLM_XENT: hidden size, padded vocabulary */
    } loss;
    struct {
        float max_norm;          /* 0: no clipping */
        int32_t growth_interval; /* of scaling: updates until it doubles; 0: it is fixed */
    } grad_norm;
    struct {
        float beta1, beta2, eps;
    } optimizer;
    struct {
        int64_t n, k;
        bool transposed; /* for DGRAD */
    } pack;
    struct {
        int32_t bucket; /* which of the plan's gradient buckets; −1: the stats */
    } reduce;
    struct {
        bool weights; /* by buckets; else a table of block sums */
    } share;
} OpAttr;

/* Row counts of tensors are symbols until a micro-batch arrives. */
typedef enum { ROWS_FIXED, ROWS_TOKENS, ROWS_SEQS, ROWS_MASKED, N_ROW_KINDS } RowKind;

typedef struct {
    RowKind kind;
    int64_t extra; /* rows on top of the kind's count; all of them for ROWS_FIXED */
} Rows;

/* The bucket that a micro-batch runs in; `bucket` indexes what was prepared for it. */
typedef struct {
    int64_t count[N_ROW_KINDS]; /* [ROWS_FIXED] is 0 */
    int32_t bucket;
} RowCounts;

static inline int64_t rows_in(Rows rows, const RowCounts *counts) { return counts->count[rows.kind] + rows.extra; }

/* The INPUT tensor `ctl`: all that varies from step to step, read by kernels in device memory. */
typedef struct {
    uint64_t dropout_key;               /* seed xor PHILOX_DROPOUT */
    uint32_t batch;                     /* global batches consumed before this one */
    int32_t n_tokens, n_seqs, n_masked; /* real rows of this micro-batch */
    float scale_seqs;                   /* 1 / sequences of the step, over all ranks */
    float scale_masked;                 /* 1 / masked tokens of the step, over all ranks */
    float learning_rate;
    float bias1, bias2; /* 1/(1 − β1^t), 1/(1 − β2^t); 1 without bias correction */
} Ctl;

/* The OUTPUT tensor `stats`: summed over the micro-batches of a step, cleared at its start. */
typedef struct {
    double loss[2];     /* Σ of row losses by slot: 0 task or MLM, 1 NSP; not divided by anything */
    int64_t correct[2]; /* rows whose largest logit is the label */
    double grad_norm;   /* before clipping, after unscaling */
    float grad_scale;   /* what the optimizer multiplies gradients with */
    int32_t finite;     /* 0: the update is skipped */
} Stats;

/* The MOMENT tensor `scaling` of fp16: state of the training, as the moments are. */
typedef struct {
    float scale;     /* what the losses' gradients are multiplied with */
    int32_t good;    /* updates since it changed */
    int64_t skipped; /* updates skipped since training began */
} LossScaling;
#define LOSS_SCALE_LEAST 1.0f
#define LOSS_SCALE_MOST  4294967296.0f /* 2^32 */

/* One parameter in the flat space, for GRAD_NORM, ADAMW and LAMB: the CONST tensor `segments`. */
typedef struct {
    int64_t offset, size; /* elements */
    float decay;          /* weight decay, 0 where excluded */
    int32_t trust;        /* LAMB: 1 where its trust ratio applies */
    /* Of a slice; 0 else. */
    int64_t shift;  /* from a place in the space to its place in m and v */
    int64_t block;  /* the number of its first norm block among those of the whole space */
    int64_t tensor; /* which of all segments it is a piece of */
} Segment;

/* An operand: what a plan says of a tensor, and where it is. */
typedef struct {
    void *data; /* NULL: optional and absent (then cols is 0) */
    Dtype dtype;
    Rows rows;
    int64_t cols;
} Operand;

/* An instr bound to memory. As a shape only (data NULL but cols set) it is also the question "how much scratch?". */
typedef struct {
    Op op;
    OpAttr attr;
    Operand in[OP_MAX_IN], out[OP_MAX_OUT];
    void *scratch; /* 64-byte aligned */
    size_t scratch_bytes;
    void *prepared; /* the backend's own, made by prepare() */
} OpCall;

static inline bool operand_present(const Operand *o) { return o->cols != 0; }

/* Scratch bytes of a call at these row counts: a backend's function, given to the plan as a pointer. */
typedef size_t (*ScratchFn)(const OpCall *call, const RowCounts *rows);

/* Between ranks: no backend has them, exec/ runs them. */
static inline bool op_is_exchange(Op op) { return op == OP_REDUCE || op == OP_SHARE; }

/* ---- the table, parsed once from OP_LIST ---- */
typedef struct {
    const char *name;
    bool optional, accumulated;
    int8_t shares;      /* −1, or the input whose memory this output may or must share */
    bool shares_always; /* must */
} OperandInfo;

typedef struct {
    const char *name;
    int n_in, n_out;
    OperandInfo in[OP_MAX_IN], out[OP_MAX_OUT];
} OpInfo;

const OpInfo *op_info(Op op);
int op_in(Op op, const char *name); /* index of an input by name; CHECKs that it exists */
int op_out(Op op, const char *name);

/* Arithmetic and traffic of a call, for the planner's roofline: floating-point operations of products (2 per
   multiply-add) and bytes read and written. `seq_len` is the mean sequence length (attention's cost depends on it). */
typedef struct {
    double product_flops, bytes;
    double pass_bytes; /* of passes before or after the products, which hide behind none of them */
} OpCost;
OpCost op_cost(const OpCall *call, const RowCounts *rows, double seq_len);

#endif
