/* One op, alone, on any backend. An OpCase holds the call, the initial bytes of every operand, and runs it with
   every operand between sentinel zones. case_check() checks the rules of every op:
     - outputs are written whole, inputs are not written, nothing outside operands and scratch is written;
     - the same bits for any old content of scratch, in a second run, and for every in-place form that the table allows;
     - on every backend that opens here: the same as ref, by normalised error, or the same bits where they are I64.
   Life: case_init, case_add… and fills, case_check or case_run, case_values, case_free. Failures end the test through
   cmocka. */
#pragma once

#include "kernels/backend.h"
#include "testing.h"

/* One operand: its shape, its values before a run, and its memory after one. */
typedef struct {
    Operand operand;       /* data is set in a run */
    bool copy, transposed; /* a compute copy: `initial` is the (n, k) F32 weight, packed before a run by the backend */
    int64_t n, k;
    size_t bytes;           /* of the operand; of a copy: set in a run */
    unsigned char *initial; /* NULL: left unset before a run (an output) */
    unsigned char *block;   /* zone, data, zone */
    bool shared;            /* an input in whose memory an output was written in the last run */
} Slot;

typedef struct {
    Op op;
    OpAttr attr;
    RowCounts rows;
    Slot in[OP_MAX_IN], out[OP_MAX_OUT];
    uint8_t begun; /* of the call: these outputs are unset before a run */
    uint64_t seed; /* of case_random; changes with every fill */
} OpCase;

typedef struct {
    unsigned char scratch; /* byte that scratch holds before the run; 0xff makes NaNs */
    unsigned share;        /* bit i: out[i] is written in the memory of the input it may share */
} RunOptions;

/* Largest normalised error ‖a − b‖ / ‖b‖ against ref, by the output's type; a single element may be off by
   TOLERANCE_PEAK times as much of b's root mean square. {0} takes the defaults. f16 has a quarter of bf16's: three more
   bits, but fewer where values are small. */
typedef struct {
    double f32, bf16;
} Tolerance;
#define TOLERANCE_F32  1e-5
#define TOLERANCE_BF16 4e-3 /* 2^-8: a last place */
#define TOLERANCE_PEAK 24

/* Dtypes that every op is tested in; N_COMPUTE of them. CAIRN_CPU_BF16=emulate leaves bf16 alone, the only one that it
   changes. fp32 is the last. */
extern const Dtype compute_types[];
#define N_COMPUTE compute_types_count()
int compute_types_count(void);
float type_rounded(Dtype dtype, float x); /* x rounded as in a tensor of this type */

/* ---- backends ---- */

/* ref first, then cpu if it opens here; if not, prints the reason once. CAIRN_TEST_BACKENDS replaces cpu by backends of
   a list with commas, which must open; CAIRN_TEST_ATTENTION=cudnn opens them with cuDNN's attention. */
Backend *ops_next(const Backend *b); /* the one after b; NULL: the first, or none is left */
Backend *ops_ref(void);
/* Prepares, runs and releases a call whose operands lie in host memory, on a backend with memory of its own. */
void ops_run_on_device(Backend *b, const OpCall *call, const RowCounts buckets[2]);

/* ---- building a case ---- */

/* Adds `ctl` and `stats` where the op has them: no dropout key, batch 0, all rows real, scales 1. */
void case_init(OpCase *c, Op op, OpAttr attr, RowCounts rows);
void case_free(OpCase *c);
static inline RowCounts rows_tokens(int64_t n) { return (RowCounts){.count = {[ROWS_TOKENS] = n}}; }
static inline Rows fixed(int64_t n) { return (Rows){ROWS_FIXED, n}; }
static inline Rows rows_kind(RowKind kind) { return (Rows){kind, 0}; }

/* An operand: zeros if it is an input or accumulated into, else unset. */
void case_add(OpCase *c, const char *name, Dtype dtype, Rows rows, int64_t cols);
/* A compute copy of a random (n, k) weight, values within ±scale. */
void case_copy(OpCase *c, const char *name, Dtype dtype, int64_t n, int64_t k, bool transposed, double scale);
/* case_add, then case_random */
void case_add_random(OpCase *c, const char *name, Dtype dtype, Rows rows, int64_t cols, double scale);
void case_random(OpCase *c, const char *name, double centre, double scale); /* uniform in centre ± scale */
void case_set(OpCase *c, const char *name, int64_t first, int64_t n, const float *values);
void case_set_ints(OpCase *c, const char *name, int64_t first, int64_t n, const int32_t *values);
/* The initial bytes of an operand: a float array for F32 and copies, Ctl for "ctl", Stats for "stats". */
void *case_initial(OpCase *c, const char *name);
Ctl *case_ctl(OpCase *c);
void case_scaling(OpCase *c, float scale); /* adds the operand `scaling` */
/* Adds the operand of `from` after its last run to `to`, under another name. */
void case_take(OpCase *to, const char *name, const OpCase *from, const char *from_name);
/* Copies n rows of initial values of an operand that both cases have. */
void case_copy_rows(OpCase *to, int64_t to_row, const OpCase *from, int64_t from_row, int64_t n, const char *name);
/* Sets rows from `first` on to 0. */
void case_clear_rows(OpCase *c, const char *name, int64_t first);

/* ---- running, comparing ---- */

/* False: the backend lacks the op (test_backend.c lists those that it must have), or the type. */
bool case_runs_on(const OpCase *c, const Backend *b);
void case_run(OpCase *c, Backend *b, RunOptions options);
void case_check(OpCase *c, Tolerance tolerance);

int64_t case_count(const OpCase *c, const char *name);     /* elements */
float *case_values(const OpCase *c, const char *name);     /* after a run, as fp32; the caller frees */
const void *case_bytes(const OpCase *c, const char *name); /* after a run */
void case_expect_rows_equal(const OpCase *a, int64_t a_row, const OpCase *b, int64_t b_row, int64_t n,
                            const char *name);
/* Runs both on every backend: rows [row, row + n) of `a` have the bits of b's first n, in outputs x and y (may be
 * NULL). */
void case_expect_independent(OpCase *a, int64_t row, OpCase *b, int64_t n, const char *x, const char *y);
/* For case_check of a case with db: sums of what is rounded to `dtype`, and now and then otherwise than by ref. */
static inline Tolerance tolerance_of_sums(Dtype dtype)
{
    return (Tolerance){.f32 = dtype == F32 ? TOLERANCE_F32 : TOLERANCE_BF16};
}
/* After a run: accumulated `db` (cols) is its old value plus the column sums of the output `dy` as it is stored. */
void case_expect_column_sums(const OpCase *c, const char *db, const char *dy);
/* On every backend: an accumulated output becomes its old value plus the result from zeros. */
void case_expect_accumulated(OpCase *c, const char *name);
/* On every backend: a call that begins its outputs leaves the bits that it leaves on zeros. */
void case_expect_begun(OpCase *c);
void case_expect_zero_rows(const OpCase *c, const char *name, int64_t first, int64_t end);
/* Normalised error of n values, with `what` in the message. */
void expect_close(const char *what, const float *a, const float *b, int64_t n, double tolerance);

/* ---- finite differences ---- */

/* On ref: gradient of Σ weight·out over the initial values of an F32 input or copy, element by element, by central
   differences. `weight` has out's count, `gradient` the input's. */
void case_differences(OpCase *c, const char *input, const char *out, const float *weight, double step, float *gradient);
/* Compares a backward output after its run on ref with differences of the forward case. */
void expect_gradient(OpCase *forward, const char *input, const char *out, const OpCase *weights,
                     const char *weights_name, const OpCase *backward, const char *gradient, double step,
                     double tolerance);

/* ---- sequences ---- */

/* Lays sequences of these lengths one after the other and fills pos, seq, spans, seq_index where the case has them;
   sequence i has index `index[i]` in the global batch (NULL: i). Sets ctl's counts. Returns the tokens. */
int64_t case_sequences(OpCase *c, const int *lengths, const int *index, int n);
