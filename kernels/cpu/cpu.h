/* Private to kernels/cpu: helpers of its files. The backend `cpu` runs on this machine's cores: products through oneDNN
   or, where oneDNN has no packed weights for this CPU, through our own tiles; everything else in vector code (vec/).

   Work is cut into cpu.threads parts. A sum over rows is made in blocks of CPU_BLOCK_ROWS rows, block after block, so
   that no result depends on the number of threads. Nothing is allocated while an op runs. */
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/vec.h"

/* Implementation of products: oneDNN where it serves (onednn.h), or always the one asked for where it can. */
typedef enum { PRODUCTS_BEST, PRODUCTS_ONEDNN, PRODUCTS_OWN } ProductsBy;

/* Choices made when the backend was opened; one per process. */
typedef struct {
    int threads;
    const Vec *vec;
    bool bf16; /* it computes in bf16 */
    ProductsBy products;
} Cpu;
extern Cpu cpu;

int cpu_threads_offered(void); /* cores of this process's affinity mask, within the cgroup's quota */

/* Calls run(arg, part) for every part 0 … cpu.threads − 1, each in one thread, and returns when all are done. */
void cpu_parallel(void (*run)(void *arg, int part), void *arg);

typedef struct {
    int64_t first, end;
} CpuSpan;

/* Part `part` of [0, n) cut into `parts` pieces at multiples of `grain`. */
static inline CpuSpan cpu_span(int64_t n, int64_t grain, int part, int parts)
{
    int64_t grains = (n + grain - 1) / grain, first = grains * part / parts * grain;
    int64_t end = grains * (part + 1) / parts * grain;
    return (CpuSpan){first < n ? first : n, end < n ? end : n};
}

/* Rows that are summed as one block. */
#define CPU_BLOCK_ROWS 64

static inline int64_t cpu_blocks(int64_t rows) { return (rows + CPU_BLOCK_ROWS - 1) / CPU_BLOCK_ROWS; }

/* Block `block` of [0, rows). */
static inline CpuSpan cpu_block(int64_t rows, int64_t block)
{
    int64_t first = block * CPU_BLOCK_ROWS, end = first + CPU_BLOCK_ROWS;
    return (CpuSpan){first, end < rows ? end : rows};
}

/* X(op, run, scratch, prepare): the ops that differ from ref's. The rest (one small row per sequence) stay ref's. */
#define CPU_LIST(X)                                                                                                    \
    X(EMBED, cpu_embed, cpu_embed_scratch, no_prepare)                                                                 \
    X(EMBED_BWD, cpu_embed_bwd, cpu_embed_scratch, no_prepare)                                                         \
    X(LINEAR, cpu_linear, cpu_linear_scratch, cpu_linear_prepare)                                                      \
    X(LINEAR_DGRAD, cpu_linear, cpu_linear_scratch, cpu_linear_prepare)                                                \
    X(LINEAR_WGRAD, cpu_linear_wgrad, cpu_linear_scratch, cpu_linear_prepare)                                          \
    X(ATTENTION, cpu_attention, cpu_attention_scratch, no_prepare)                                                     \
    X(ATTENTION_BWD, cpu_attention_bwd, cpu_attention_scratch, no_prepare)                                             \
    X(GELU, cpu_gelu, no_scratch, no_prepare)                                                                          \
    X(GELU_BWD, cpu_gelu_bwd, cpu_gelu_bwd_scratch, no_prepare)                                                        \
    X(ADDNORM, cpu_addnorm, cpu_addnorm_scratch, no_prepare)                                                           \
    X(ADDNORM_BWD, cpu_addnorm_bwd, cpu_addnorm_bwd_scratch, no_prepare)                                               \
    X(AFFINE, cpu_affine, no_scratch, no_prepare)                                                                      \
    X(GATHER, cpu_gather, no_scratch, no_prepare)                                                                      \
    X(SCATTER, cpu_scatter, no_scratch, no_prepare)                                                                    \
    X(MLM_XENT, cpu_mlm_xent, cpu_mlm_xent_scratch, cpu_mlm_xent_prepare)                                              \
    X(GRAD_NORM, cpu_grad_norm, cpu_grad_norm_scratch, no_prepare)                                                     \
    X(ADAMW, cpu_adamw, no_scratch, no_prepare)                                                                        \
    X(LAMB, cpu_lamb, cpu_lamb_scratch, no_prepare)                                                                    \
    X(PACK, cpu_pack, no_scratch, cpu_pack_prepare)                                                                    \
    X(ZERO, cpu_zero, no_scratch, no_prepare)                                                                          \
    X(BLOCK_SUMS, cpu_block_sums, no_scratch, no_prepare)                                                              \
    X(LAMB_STEP, cpu_lamb_step, no_scratch, no_prepare)                                                                \
    X(LAMB_DESCEND, cpu_lamb_descend, cpu_lamb_descend_scratch, no_prepare)                                            \
    X(DIGEST, cpu_digest, no_scratch, no_prepare)                                                                      \
    X(CURVATURE, cpu_curvature, cpu_curvature_scratch, cpu_linear_prepare)                                             \
    X(INVERT, cpu_invert, cpu_invert_scratch, no_prepare)                                                              \
    X(PRECONDITION, cpu_precondition, cpu_precondition_scratch, no_prepare)

#define X(op, run, scratch, prepare)                                                                                   \
    OpRun run;                                                                                                         \
    OpScratch scratch;                                                                                                 \
    OpPrepare prepare;
CPU_LIST(X)
#undef X

/* ---- operands ---- */

/* Whether activations of this type are BF16; CHECKs that it is one the vector code computes in. */
bool cpu_is_bf16(Dtype dtype);
/* Checks that each of the n indices is in [0, limit). */
void cpu_check_index(const Operand *index, int64_t n, int64_t limit, const char *what);

/* ---- scratch ---- */

static inline size_t cpu_line(size_t bytes) { return (bytes + 63) / 64 * 64; }
/* One piece of `each` bytes (a multiple of 64) for every part. */
static inline void *cpu_take_parts(HostScratch *s, size_t each) { return host_take(s, cpu.threads, each); }

/* One piece of `each` bytes (a multiple of 64) for the sums of every block of so many rows. */
static inline void *cpu_take_sums(HostScratch *s, int64_t rows, size_t each)
{
    return host_take(s, cpu_blocks(rows), each);
}

/* Σ over rows of x (rows, cols) added to sums (cols): each block's rows, then block after block. Scratch: cpu_take_sums
   of cpu_line(cols · 4) bytes. */
void cpu_add_column_sums(float *sums, const void *x, int64_t rows, int64_t cols, bool bf16, float *blocks);
/* A bias gradient, where it is present: its scratch, and db (cols) += column sums of dy (rows, cols). */
float *cpu_take_db(HostScratch *s, const Operand *db, int64_t rows, int64_t cols);
void cpu_add_db(const Operand *db, const Operand *dy, int64_t rows, float *blocks);
/* to (n) += the sums of all blocks of so many rows, `stride` floats apart. */
void cpu_add_blocks(float *to, const float *blocks, int64_t rows, int64_t stride, int64_t n);

/* ---- the flat parameter space ---- */

typedef struct {
    const OpCall *call;
    const Stats *stats;
    const Segment *segments; // (n)
    int64_t n;
    float *weights, *m, *v, *grads;
    bool keep_u;             /* into grads; else the weights descend by it */
    double *p_sums, *u_sums; /* of norm blocks, by number; NULL: not wanted */
} CpuUpdate;
void cpu_update(const CpuUpdate *w);
/* CHECKs that the numbers of all norm blocks are below `most`. */
void cpu_check_blocks(const Segment *segments, int64_t n, int64_t most, const char *op);
