/* Cases of ATTENTION and its backward, for the tests that have tables of shapes. */
#pragma once

#include <math.h>

#include "ops/harness.h"

#define KEY   (UINT64_C(42) ^ PHILOX_DROPOUT)
#define SITE  4u
#define BATCH 9u

typedef struct {
    int lengths[6], n;  /* sequences */
    int64_t rows, seqs; /* of the bucket */
    int32_t heads, head_dim;
    float p;         /* dropout */
    int32_t longest; /* that there may be; 0: unknown */
} Shape;

/* If not 0, cases that leave `longest` open say this, or their longest sequence where that is longer: the cuda backend
   chooses its kernels by it. */
static int32_t longest_said;

static inline int32_t longest_of(const Shape *s)
{
    int32_t longest = longest_said;
    if (s->longest || !longest_said) return s->longest;
    for (int i = 0; i < s->n; i++)
        if (s->lengths[i] > longest) longest = s->lengths[i];
    return longest;
}

/* Of compute_types the first ones; fp32, the last, has one way, whatever is said of the longest. */
static inline int n_types(void) { return N_COMPUTE > 2 && longest_said ? 2 : N_COMPUTE; }
/* For the long tests: without fp16, whose addresses are bf16's; `test.sh deep` has it. */
static inline int n_long_types(void) { return longest_said && !testing_deep() ? 1 : n_types(); }

/* P and dS may be rounded to bf16 before their products. */
static const Tolerance tolerance = {.f32 = 2e-5, .bf16 = 8e-3};

static inline void attention_init(OpCase *c, Op op, const Shape *s)
{
    RowCounts rows = rows_tokens(s->rows);
    rows.count[ROWS_SEQS] = s->seqs;
    OpAttr attr = {.attention = {.heads = s->heads,
                                 .head_dim = s->head_dim,
                                 .scale = (float)(1 / sqrt((double)s->head_dim)),
                                 .dropout = s->p,
                                 .site = SITE,
                                 .longest = longest_of(s)}};
    case_init(c, op, attr, rows);
    case_add(c, "spans", I32, rows_kind(ROWS_SEQS), 2);
    case_add(c, "seq_index", I32, rows_kind(ROWS_SEQS), 1);
    case_sequences(c, s->lengths, NULL, s->n);
    for (int64_t i = s->n; i < s->seqs; i++)
        case_set_ints(c, "spans", 2 * i, 2, (int32_t[]){-7, 1 << 30}); /* not read */
    case_ctl(c)->dropout_key = KEY;
    case_ctl(c)->batch = BATCH;
}

static inline void forward_init(OpCase *c, const Shape *s, Dtype dtype)
{
    int64_t hidden = s->heads * s->head_dim;
    attention_init(c, OP_ATTENTION, s);
    case_add_random(c, "qkv", dtype, rows_kind(ROWS_TOKENS), 3 * hidden, 2);
    case_add(c, "o", dtype, rows_kind(ROWS_TOKENS), hidden);
    case_add(c, "lse", F32, rows_kind(ROWS_TOKENS), s->heads);
}

/* The backward of a forward case that has run. */
static inline void backward_init(OpCase *c, const Shape *s, const OpCase *forward, Dtype dtype)
{
    int64_t hidden = s->heads * s->head_dim;
    attention_init(c, OP_ATTENTION_BWD, s);
    case_take(c, "qkv", forward, "qkv");
    case_take(c, "o", forward, "o");
    case_take(c, "lse", forward, "lse");
    case_take(c, "spans", forward, "spans");
    case_take(c, "seq_index", forward, "seq_index");
    case_add_random(c, "do", dtype, rows_kind(ROWS_TOKENS), hidden, 1);
    case_add(c, "dqkv", dtype, rows_kind(ROWS_TOKENS), 3 * hidden);
}

/* With db, the column sums of dqkv. */
static inline void summed_init(OpCase *c, const Shape *s, const OpCase *forward, Dtype dtype)
{
    backward_init(c, s, forward, dtype);
    case_add_random(c, "db", F32, fixed(3 * s->heads * s->head_dim), 1, 1);
}

/* Whether a backend on Turing refuses a backward of such heads, for want of shared memory. */
static inline bool is_refused(const Shape *s, Dtype compute)
{
    Backend *b = ops_next(ops_ref());
    OpCall call = {.op = OP_ATTENTION_BWD, .attr.attention = {.head_dim = s->head_dim}};
    IN(&call, ATTENTION_BWD, qkv)->dtype = compute;
    if (!b || !strstr(b->describe, "sm_75") || compute != F32 || s->head_dim <= 64) return false;
    assert_status(b->op[OP_ATTENTION_BWD].prepare(&call, NULL, 0), E_USAGE);
    assert_message("in fp32 need more shared memory than the 64 KiB of ");
    return true;
}

static inline void check_shapes(const Shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int t = 0; t < n_long_types(); t++) {
            OpCase forward, backward;
            forward_init(&forward, &shapes[i], compute_types[t]);
            case_check(&forward, tolerance);
            int64_t tokens = case_ctl(&forward)->n_tokens;
            case_expect_zero_rows(&forward, "o", tokens, shapes[i].rows);
            case_expect_zero_rows(&forward, "lse", tokens, shapes[i].rows);
            if (is_refused(&shapes[i], compute_types[t])) {
                case_free(&forward);
                continue;
            }
            summed_init(&backward, &shapes[i], &forward, compute_types[t]);
            Tolerance of_sums = tolerance; /* db, in fp32, sums values of the compute type */
            if (compute_types[t] != F32) of_sums.f32 = tolerance.bf16;
            case_check(&backward, of_sums);
            case_expect_accumulated(&backward, "db");
            case_expect_zero_rows(&backward, "dqkv", tokens, shapes[i].rows);
            case_free(&forward);
            case_free(&backward);
        }
}
