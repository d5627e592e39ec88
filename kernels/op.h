/* What plans and backends share: the ops (op_list.h), their attributes, and a call of one with its operands. */
#pragma once

#include "base/dtype.h"
#include "base/norm_block.h"
#include "base/philox.h" /* CAIRN_DEVICE */
#include "base/std.h"
#include "kernels/op_list.h"

#define OP_MAX_IN  10
#define OP_MAX_OUT 5

typedef enum {
#define X(op, text) OP_##op,
    OP_LIST(X)
#undef X
        N_OPS
} Op;

/* The index of every operand: LINEAR_IN_x among the inputs of LINEAR, LINEAR_OUT_y among its outputs. */
#define OP_NOTHING(op, name, ...)
#define OP_IN_INDEX(op, name, ...)  op##_IN_##name,
#define OP_OUT_INDEX(op, name, ...) op##_OUT_##name,
#define X(op, text)                                                                                                    \
    enum { op##_OPERANDS(OP_IN_INDEX, OP_NOTHING, op) op##_N_IN };                                                     \
    enum { op##_OPERANDS(OP_NOTHING, OP_OUT_INDEX, op) op##_N_OUT };
OP_LIST(X)
#undef X

typedef enum { GELU_ERF, GELU_TANH } GeluKind;
typedef enum { ACTIVATE_TANH, ACTIVATE_RELU } ActivateKind;
typedef enum { NORM_FORM_Y, NORM_FORM_XHAT } NormForm;

/* What a SHARE shares: all but FACTORS are sent from each part's owner to all. */
typedef enum {
    SHARE_SUMS,    /* a table of block sums */
    SHARE_WEIGHTS, /* by buckets */
    SHARE_FACTORS, /* K-FAC's statistics: their sum over all ranks, to the owner alone */
    SHARE_INVERSES /* K-FAC's */
} ShareKind;

/* Fixed when the plan is emitted; a union by op family. */
typedef union {
    struct {
        float eps, dropout;
        uint32_t site;
    } embed;
    struct {
        int64_t k, n; /* x is (rows, k), y is (rows, n), the weight (n, k) */
        bool fused;   /* LINEAR, _DGRAD: by a kernel that has GELU too (Backend.fuses), also where g is absent */
        GeluKind gelu;
    } linear; /* LINEAR, _DGRAD, _WGRAD, MLM_XENT (n = padded vocabulary) */
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
        ActivateKind kind;
    } activate;
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
        bool normalize;
    } pool; /* POOL, POOL_BWD */
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
        ShareKind what;
    } share;
    struct {
        int64_t first, n; /* columns of x */
        int32_t interval; /* steps, of which one gathers */
        bool of_input;    /* A; else B */
    } curvature;
    struct {
        float damping; /* λ */
        int64_t k, n;
        bool of_output; /* INVERT: B; else A */
    } kfac;             /* INVERT, ADOPT, PRECONDITION */
    struct {
        int32_t tensor; /* whose sums `again` are: its number in the plan */
    } compare;
} OpAttr;

/* Row counts of tensors are symbols until a micro-batch arrives. Read rows: those tokens of which the heads read the
   last layer's output. */
typedef enum { ROWS_FIXED, ROWS_TOKENS, ROWS_SEQS, ROWS_MASKED, ROWS_READ, N_ROW_KINDS } RowKind;

typedef struct {
    RowKind kind;
    int64_t extra; /* rows on top of the kind's count; all of them for ROWS_FIXED */
} Rows;

/* The rows of the bucket that a micro-batch runs in; `bucket` is its index among the prepared ones. */
typedef struct {
    int64_t count[N_ROW_KINDS]; /* [ROWS_FIXED] is 0 */
    int32_t bucket;
} RowCounts;

static inline int64_t rows_in(Rows rows, const RowCounts *counts) { return counts->count[rows.kind] + rows.extra; }

/* The INPUT tensor `ctl`: everything that varies from step to step. Kernels read it in device memory. */
typedef struct {
    uint64_t dropout_key;                       /* seed xor PHILOX_DROPOUT */
    uint32_t batch;                             /* global batches consumed before this one */
    int32_t n_tokens, n_seqs, n_masked, n_read; /* real rows of this micro-batch */
    float scale_seqs;   /* 1 / the sequences' weight (their number) in the step, over all ranks */
    float scale_masked; /* 1 / masked tokens of the step, over all ranks */
    float learning_rate;
    float bias1, bias2;  /* 1/(1 − β1^t), 1/(1 − β2^t); 1 without bias correction */
    int64_t kfac_tokens; /* real tokens of the step, over all ranks, where K-FAC gathers statistics; else 0 */
} Ctl;

/* How many of `all` rows in a bucket hold something: the ones beyond ctl's count do not. */
CAIRN_DEVICE static inline int64_t real_rows(RowKind kind, int64_t all, const Ctl *ctl)
{
    int64_t real = kind == ROWS_TOKENS   ? ctl->n_tokens
                   : kind == ROWS_SEQS   ? ctl->n_seqs
                   : kind == ROWS_MASKED ? ctl->n_masked
                   : kind == ROWS_READ   ? ctl->n_read
                                         : all;
    return real < all ? real : all;
}

/* The OUTPUT tensor `stats`: summed over the micro-batches of a step, cleared at its start. */
typedef struct {
    double loss[2];     /* Σ of row losses by slot: 0 task or MLM, 1 NSP; not divided by anything */
    int64_t correct[2]; /* rows whose largest logit is the label */
    double grad_norm;   /* before clipping, after unscaling */
    float grad_scale;   /* factor of the gradients in the optimizer */
    double kfac_norm;   /* of the tensors that K-FAC preconditions, which grad_norm leaves out; else 0 */
    float kfac_scale;   /* their factor */
    int32_t finite;     /* 0: the update is skipped */
} Stats;

/* The OUTPUT tensor `audit`: differences that COMPAREs found, cleared at a step's start. */
typedef struct {
    int64_t rows;        /* that differ, in all comparisons */
    int64_t tensor, row; /* of the first difference; without meaning where `rows` is 0 */
} AuditFound;

/* The MOMENT tensor `scaling` of fp16: state of the training, as the moments are. */
typedef struct {
    float scale;     /* factor of the losses' gradients */
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
    int32_t kfac;         /* 1 where K-FAC preconditions the gradient */
    int64_t shift;        /* of a slice: added to a place in the space gives its place in m and v; else 0 */
    int64_t block;        /* the number of its first norm block among those of the whole space */
    int64_t tensor;       /* index, among all segments, of the one that it is or, in a slice, is a piece of */
} Segment;

/* An operand: a tensor's shape from the plan, and its memory. */
typedef struct {
    void *data; /* NULL: optional and absent (then cols is 0) */
    Dtype dtype;
    Rows rows;
    int64_t cols;
} Operand;

/* An instr bound to memory. With shapes only (data NULL, cols set) it serves to ask for scratch. */
typedef struct {
    Op op;
    OpAttr attr;
    Operand in[OP_MAX_IN], out[OP_MAX_OUT];
    void *scratch; /* 64-byte aligned */
    size_t scratch_bytes;
    uint8_t begun;            /* bit k: output k, which is marked BEGUN, counts as 0 before this call */
    const RowCounts *largest; /* the largest bucket that the call is prepared for; NULL: each bucket on its own */
} OpCall;

/* An operand of a call by name. _EITHER: of a call that is of one of two ops. */
#define IN(call, op, name)                (&(call)->in[op##_IN_##name])
#define OUT(call, op, name)               (&(call)->out[op##_OUT_##name])
#define IN_EITHER(call, one, other, name) ((call)->op == OP_##one ? IN(call, one, name) : IN(call, other, name))

static inline bool operand_present(const Operand *o) { return o->cols != 0; }

/* Whether the call begins that output: see OpCall.begun. */
#define BEGINS(call, op, name) (((call)->begun >> op##_OUT_##name & 1) != 0)

/* Rows of the square matrix that an INVERT inverts. */
static inline int64_t op_inverse_side(const OpCall *call)
{
    return call->attr.kfac.of_output ? call->attr.kfac.n : call->attr.kfac.k;
}

/* Scratch bytes of a call at these row counts: a function of the backend, which the plan calls. */
typedef size_t OpScratch(const OpCall *call, const RowCounts *rows);

/* Ops between ranks: exec/ runs them, backends do not have them. Of all ranks, and of neighbours in a pipeline. */
static inline bool op_is_exchange(Op op) { return op == OP_REDUCE || op == OP_SHARE; }
static inline bool op_is_link(Op op) { return op == OP_SEND || op == OP_RECEIVE; }

/* ---- the table, made from OP_LIST ---- */
typedef struct {
    const char *name;
    bool optional, accumulated;
    bool begun;         /* accumulated, and a call may begin it */
    int8_t shares;      /* −1, or the input whose memory this output may or must share */
    bool shares_always; /* must */
    int8_t sums;        /* −1, or the output whose column sums are added to this one */
} OperandInfo;

typedef struct {
    const char *name;
    int n_in, n_out;
    int ctl; /* index of the input marked CTL; −1 */
    OperandInfo in[OP_MAX_IN], out[OP_MAX_OUT];
} OpInfo;

const OpInfo *op_info(Op op);
const Ctl *op_ctl(const OpCall *call);
/* The table that is the operand `segments`, and its length. */
const Segment *op_segments(const Operand *segments, const RowCounts *rows, int64_t *n);

/* Arithmetic and traffic of a call, for the planner's roofline: floating-point operations of products (2 per
   multiply-add) and bytes read and written. `seq_len` is the mean sequence length (attention's cost depends on it). */
typedef struct {
    double product_flops, bytes;
    double pass_bytes; /* of passes before or after the products, which do not overlap with them */
} OpCost;
OpCost op_cost(const OpCall *call, const RowCounts *rows, double seq_len);
