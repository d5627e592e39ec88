/* The decoder's product with its loss, a chunk of masked rows at a time: fp32 logits of a chunk in scratch, softmax
   over the real vocabulary with its gradient written over the logits, then the chunk's dh, dw, db. Larger chunks
   mean fewer passes over dw, which is as large as the vocabulary; a row has the same bits in any chunk. The number of
   real rows is known on the device only, so all rows of the bucket are computed; the others have loss 0 and gradient 0.

   In the second pass over a row the gradient of columns j … overwrites logits of columns ≤ j. The block processes the
   row in tiles: all threads read, wait, and write to bytes before those that the next tile reads. */
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/sums.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product.h"
#include "kernels/loss_scale.h"

static const int64_t CHUNK_ROWS = 1024;

enum {
    SUM_WARPS = 16, /* of the column sums */
    SUM_THREADS = SUM_WARPS * CUDA_WARP,
    SUM_ROWS = 4,            /* that a warp loads at once */
    COLUMNS = CUDA_WARP * 8, /* of a block */
    STATS_THREADS = 256
};

/* ---- softmax ---- */

struct LossRows {
    float *logits;         // (chunk, n)
    const int32_t *labels; // (rows)
    const Ctl *ctl;
    const LossScaling *scaling; /* NULL: scale 1 */
    float *loss;                // (rows)
    uint8_t *correct;           // (rows)
    int64_t n;
    int32_t classes;
};

/* One block per row of a chunk whose first row is `first`. With `gradient` the row becomes one of type T, in the first
   half of its bytes where T has two. */
template <typename T>
__global__ void __launch_bounds__(SOFTMAX_THREADS, CUDA_BLOCKS(SOFTMAX_THREADS, 2))
    softmax_kernel(LossRows c, int32_t first, bool gradient)
{
    CUDA_SHARED(Softmax, shared, [SOFTMAX_WARPS]);
    int32_t row = first + (int32_t)blockIdx.x, label = row < c.ctl->n_masked ? c.labels[row] : -1;
    float *x = c.logits + blockIdx.x * c.n;
    T *dx = reinterpret_cast<T *>(x);
    Softmax s = {0, 1, 0};
    float bad = 0; /* NaN for a label that names no word */
    if (label >= 0) {
        float own = label < c.classes ? x[label] : NAN;
        s = block_softmax(thread_softmax(x, c.classes), shared);
        bad = label < c.classes ? 0.0f : NAN;
        if (threadIdx.x == 0) c.loss[row] = (float)(log((double)s.sum) + (double)s.max - (double)own);
    } else if (threadIdx.x == 0) {
        c.loss[row] = 0;
    }
    if (threadIdx.x == 0) c.correct[row] = label >= 0 && s.best == label;
    if (!gradient) return;
    float scale = c.ctl->scale_masked * loss_scale_of(c.scaling), part = 1 / s.sum;
    for (int32_t tile = 0; tile < c.n; tile += SOFTMAX_TILE) {
        int32_t j = tile + (int32_t)threadIdx.x * 8;
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (label >= 0 && j < c.classes) {
            load8(x + j, v);
            CUDA_UNROLL for (int i = 0; i < 8; i++)
            {
                float p = expf(v[i] - s.max) * part - (j + i == label ? 1.0f : 0.0f);
                v[i] = j + i < c.classes ? (p + bad) * scale : 0.0f;
            }
        }
        __syncthreads();
        if (j < c.n) store8(dx + j, v);
    }
}

/* One block, once all chunks are done. */
__global__ void add_losses_kernel(Stats *stats, int32_t slot, const float *loss, const uint8_t *correct, int32_t rows)
{
    CUDA_SHARED(double, shared, [32]);
    double losses = 0;
    int64_t right = 0;
    for (int32_t r = (int32_t)threadIdx.x; r < rows; r += STATS_THREADS) {
        losses += (double)loss[r];
        right += correct[r];
    }
    block_add_stats(stats, slot, losses, right, shared);
}

/* ---- db += column sums of the gradient, which is 0 in pad columns: a warp takes every sixteenth row, then the warps
   in order. `begun`: db counts as 0 ---- */

template <typename T>
__global__ void column_sums_kernel(float *db, const T *gradient, int64_t rows, int64_t stride, int64_t n, bool begun)
{
    CUDA_SHARED(float, sums, [SUM_WARPS][COLUMNS]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t column = (int64_t)blockIdx.x * COLUMNS + lane * 8;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int64_t r = warp; r < rows && column < n; r += SUM_WARPS * SUM_ROWS) {
        float v[SUM_ROWS][8] = {};
        CUDA_UNROLL for (int u = 0; u < SUM_ROWS; u++)
        {
            int64_t row = r + u * SUM_WARPS;
            if (row < rows) load8(gradient + row * stride + column, v[u]);
        }
        CUDA_UNROLL for (int u = 0; u < SUM_ROWS; u++) for (int i = 0; i < 8; i++) sum[i] += v[u][i];
    }
    CUDA_UNROLL for (int i = 0; i < 8; i++) sums[warp][lane * 8 + i] = sum[i];
    __syncthreads();
    column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= n) return;
    float all = 0;
    for (int w = 0; w < SUM_WARPS; w++) all += sums[w][threadIdx.x];
    db[column] = (begun ? 0.0f : db[column]) + all;
}

/* ---- the op ---- */

struct MlmXentScratch {
    float *logits;    // (chunk, n): each row then its gradient
    uint8_t *correct; // (rows)
    void *workspace;
    size_t bytes;
};

struct MlmXentChunk {
    const OpCall *call;
    MlmXentScratch scratch;
    int64_t rows, first, m; /* of the bucket; this chunk's */
    int64_t most;           /* of the largest bucket's chunks */
    Dtype in;
};

static MlmXentScratch mlm_xent_scratch(const OpCall *call, int64_t rows)
{
    unsigned char *base = cuda_workspace(call);
    int64_t chunk = rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
    size_t workspace = product_workspace(), logits = cuda_align((size_t)(chunk * call->attr.loss.n) * sizeof(float));
    return {reinterpret_cast<float *>(base + workspace), base + workspace + logits, base,
            256 + workspace + logits + (size_t)rows};
}

/* Rows of the first chunk of n. No product is left with a few rows. */
static int64_t chunk_of(int64_t n)
{
    int64_t chunks = (n + CHUNK_ROWS - 1) / CHUNK_ROWS;
    int64_t even = chunks ? ((n + chunks - 1) / chunks + 63) / 64 * 64 : 0;
    return even < n ? even : n;
}

static MlmXentChunk first_chunk(const OpCall *call, const RowCounts *rows)
{
    const Operand *h = IN(call, MLM_XENT, h);
    int64_t n = rows_in(h->rows, rows);
    int64_t most = call->largest ? chunk_of(rows_in(h->rows, call->largest)) : 0;
    return {call, mlm_xent_scratch(call, n), n, 0, chunk_of(n), most, h->dtype};
}

static void next_chunk(MlmXentChunk *c)
{
    c->first += c->m;
    if (c->rows - c->first < c->m) c->m = c->rows - c->first;
}

/* The products of a chunk. A gradient's row is as far from the next one as the logits' were. */

static int64_t gradient_stride(const MlmXentChunk &c)
{
    return c.call->attr.loss.n * (int64_t)(sizeof(float) / dtype_size(c.in));
}

/* The chunk's rows of h or dh. */
static void *chunk_rows(const Operand *o, const MlmXentChunk &c)
{
    return o->data ? cuda_data<unsigned char>(o) + (size_t)(c.first * o->cols) * dtype_size(o->dtype) : NULL;
}

/* The first chunk begins what the call begins. */
static bool begins(const MlmXentChunk &c) { return c.first == 0; }

/* A product whose `a` is the chunk's gradient. */
static Product gradient_product(const MlmXentChunk &c, int64_t m, int64_t n, int64_t k, Dtype out)
{
    Product p = {};
    p.shape.m = m, p.shape.n = n, p.shape.k = k;
    p.shape.lda = gradient_stride(c), p.shape.ldb = p.shape.ldc = c.call->attr.loss.k;
    p.shape.in = c.in, p.shape.out = out;
    p.most = c.most;
    p.a = c.scratch.logits;
    p.workspace = c.scratch.workspace;
    return p;
}

static Product logits_product(const MlmXentChunk &c)
{
    Product p = gradient_product(c, c.m, c.call->attr.loss.n, c.call->attr.loss.k, F32);
    p.shape.lda = p.shape.ldb, p.shape.ldc = p.shape.n;
    p.shape.b_transposed = true;
    p.shape.bias = BIAS_F32;
    p.a = chunk_rows(IN(c.call, MLM_XENT, h), c), p.b = IN(c.call, MLM_XENT, w)->data, p.c = c.scratch.logits;
    p.bias = IN(c.call, MLM_XENT, bias)->data;
    return p;
}

static Product dh_product(const MlmXentChunk &c)
{
    Product p = gradient_product(c, c.m, c.call->attr.loss.k, c.call->attr.loss.n, c.in);
    p.b = IN(c.call, MLM_XENT, w)->data, p.c = chunk_rows(OUT(c.call, MLM_XENT, dh), c);
    return p;
}

static Product dw_product(const MlmXentChunk &c)
{
    Product p = gradient_product(c, c.call->attr.loss.n, c.call->attr.loss.k, c.m, F32);
    p.shape.a_transposed = p.shape.accumulate = true;
    p.begins = begins(c) && BEGINS(c.call, MLM_XENT, dw);
    p.b = chunk_rows(IN(c.call, MLM_XENT, h), c), p.c = OUT(c.call, MLM_XENT, dw)->data;
    return p;
}

static Status prepare_chunk(const MlmXentChunk &c)
{
    Product logits = logits_product(c), dh = dh_product(c), dw = dw_product(c);
    TRY(product_prepare(&logits));
    if (operand_present(OUT(c.call, MLM_XENT, dh))) TRY(product_prepare(&dh));
    return operand_present(OUT(c.call, MLM_XENT, dw)) ? product_prepare(&dw) : OK;
}

Status cuda_mlm_xent_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    for (int i = n_buckets - 1; i >= 0; i--) {
        MlmXentChunk c = first_chunk(call, &buckets[i]);
        for (int64_t last = 0; c.m > 0; next_chunk(&c)) {
            if (c.m != last) TRY(prepare_chunk(c));
            last = c.m;
        }
    }
    return OK;
}

template <typename T> static Status run_chunk(const MlmXentChunk &c, const LossRows &rows)
{
    const Operand *db = OUT(c.call, MLM_XENT, db);
    bool training = operand_present(OUT(c.call, MLM_XENT, dh));
    Product logits = logits_product(c), dh = dh_product(c), dw = dw_product(c);
    TRY(product_run(&logits));
    TRY(CUDA_LAUNCH((softmax_kernel<T>), (unsigned)c.m, SOFTMAX_THREADS, 0, rows, (int32_t)c.first, training));
    if (!training) return OK;
    TRY(product_run(&dh));
    if (operand_present(db))
        TRY(CUDA_LAUNCH((column_sums_kernel<T>), cuda_blocks(rows.n, COLUMNS), SUM_THREADS, 0, cuda_data<float>(db),
                        reinterpret_cast<const T *>(rows.logits), c.m, gradient_stride(c), rows.n,
                        begins(c) && BEGINS(c.call, MLM_XENT, db)));
    return operand_present(OUT(c.call, MLM_XENT, dw)) ? product_run(&dw) : OK;
}

size_t cuda_mlm_xent_scratch(const OpCall *call, const RowCounts *rows)
{
    return first_chunk(call, rows).scratch.bytes;
}

Status cuda_mlm_xent(const OpCall *call, const RowCounts *rows)
{
    MlmXentChunk c = first_chunk(call, rows);
    LossRows loss = {c.scratch.logits,
                     cuda_data<const int32_t>(IN(call, MLM_XENT, labels)),
                     op_ctl(call),
                     cuda_data<const LossScaling>(IN(call, MLM_XENT, scaling)),
                     cuda_data<float>(OUT(call, MLM_XENT, loss)),
                     c.scratch.correct,
                     call->attr.loss.n,
                     call->attr.loss.classes};
    (void)cuda_scratch(call, c.scratch.bytes);
    CHECK(loss.classes >= 1 && loss.classes <= loss.n && loss.n % 8 == 0 && loss.n <= INT32_MAX - SOFTMAX_TILE,
          "mlm_xent: %d words in a padded vocabulary of %lld; expected a multiple of 8", loss.classes,
          (long long)loss.n);
    CHECK(c.rows <= INT32_MAX && (c.rows > 0 || !call->begun), "mlm_xent: %lld rows", (long long)c.rows);
    for (; c.m > 0; next_chunk(&c)) CUDA_BY_TYPE(c.in, T, TRY(run_chunk<T>(c, loss)));
    return CUDA_LAUNCH((add_losses_kernel), 1, STATS_THREADS, 0, cuda_data<Stats>(OUT(call, MLM_XENT, stats)),
                       call->attr.loss.slot, loss.loss, loss.correct, (int32_t)c.rows);
}
