/* LINEAR, LINEAR_DGRAD, LINEAR_WGRAD: products of product.h; and the bias gradient's column sums. x is (rows, k),
   y (rows, n), the weight and its only copy (n, k). */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product.h"

/* ---- db += column sums of dy: sums over parts of the rows, then over the parts, each in a fixed order ---- */

#define PART_ROWS 128
#define WARPS     8   /* of a block; each takes every eighth row of the part */
#define COLUMNS   256 /* of a block: eight per lane */

static int64_t parts_of(int64_t rows) { return (rows + PART_ROWS - 1) / PART_ROWS; }

template <typename T> __global__ void part_sums_kernel(const T *x, float *parts, int64_t rows, int64_t n)
{
    CUDA_SHARED(float, sums, [WARPS][COLUMNS]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t first = (int64_t)blockIdx.y * PART_ROWS, end = first + PART_ROWS < rows ? first + PART_ROWS : rows;
    int64_t column = (int64_t)blockIdx.x * COLUMNS + lane * 8;
    bool whole = n % 8 == 0 && column + 8 <= n && reinterpret_cast<uintptr_t>(x) % 16 == 0;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int64_t r = first + warp; r < end; r += WARPS) {
        float v[8];
        if (whole) {
            load8(x + r * n + column, v);
            CUDA_UNROLL for (int i = 0; i < 8; i++) sum[i] += v[i];
        } else {
            CUDA_UNROLL for (int i = 0; i < 8; i++) if (column + i < n) sum[i] += to_float(x[r * n + column + i]);
        }
    }
    CUDA_UNROLL for (int i = 0; i < 8; i++) sums[warp][lane * 8 + i] = sum[i];
    __syncthreads();
    column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    if (column >= n) return;
    float all = 0;
    CUDA_UNROLL for (int w = 0; w < WARPS; w++) all += sums[w][threadIdx.x];
    parts[(int64_t)blockIdx.y * n + column] = all;
}

/* One block: 32 columns; eight rows of threads share the parts. */
__global__ void add_parts_kernel(const float *parts, float *to, int64_t n_parts, int64_t n)
{
    CUDA_SHARED(float, sums, [WARPS][CUDA_WARP]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t column = (int64_t)blockIdx.x * CUDA_WARP + lane;
    float sum = 0;
    for (int64_t p = warp; p < n_parts && column < n; p += WARPS) sum += parts[p * n + column];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= n) return;
    float all = 0;
    CUDA_UNROLL for (int w = 0; w < WARPS; w++) all += sums[w][lane];
    to[column] += all;
}

static Status add_column_sums(const Operand *x, float *to, int64_t rows, int64_t n, float *parts)
{
    if (rows == 0) return OK;
    int64_t n_parts = parts_of(rows);
    dim3 grid((unsigned)((n + COLUMNS - 1) / COLUMNS), (unsigned)n_parts);
    CUDA_BY_TYPE(
        x->dtype, T,
        TRY(CUDA_LAUNCH((part_sums_kernel<T>), grid, WARPS * CUDA_WARP, 0, cuda_data<const T>(x), parts, rows, n)));
    return CUDA_LAUNCH((add_parts_kernel), (unsigned)((n + CUDA_WARP - 1) / CUDA_WARP), WARPS * CUDA_WARP, 0, parts, to,
                       n_parts, n);
}

/* ---- the ops ---- */

typedef struct {
    ProductShape shape;
    ProductData data;
    size_t parts; /* bytes behind the workspace */
} LinearProduct;

static size_t workspace(void) { return (product_workspace() + 255) / 256 * 256; }

static LinearProduct product_of(const OpCall *call, const RowCounts *rows)
{
    const Operand *in = &call->in[0], *out = &call->out[0]; /* of each: the rows, and the result */
    int64_t n_rows = rows_in(in->rows, rows), k = call->attr.linear.k, n = call->attr.linear.n;
    LinearProduct p = {};
    /* scratch starts on 64 bytes */
    p.data.workspace = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(call->scratch) + 255) / 256 * 256);
    p.shape.in = in->dtype;
    p.shape.out = out->dtype;
    p.data.c = out->data;
    if (call->op == OP_LINEAR) { /* y = x·wᵀ + bias */
        const Operand *bias = IN(call, LINEAR, bias);
        p.shape.m = n_rows, p.shape.n = n, p.shape.k = k;
        p.shape.lda = k, p.shape.ldb = k, p.shape.ldc = n;
        p.shape.b_transposed = true;
        p.shape.bias = operand_present(bias) ? BIAS_ADDED : BIAS_NONE;
        p.data.a = IN(call, LINEAR, x)->data, p.data.b = IN(call, LINEAR, w)->data;
        p.data.bias = operand_present(bias) ? cuda_data<const float>(bias) : NULL;
    } else if (call->op == OP_LINEAR_DGRAD) { /* dx = dy·w (+ dx) */
        p.shape.m = n_rows, p.shape.n = k, p.shape.k = n;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.accumulate = operand_present(IN(call, LINEAR_DGRAD, add));
        p.data.a = IN(call, LINEAR_DGRAD, dy)->data, p.data.b = IN(call, LINEAR_DGRAD, w)->data;
    } else { /* dw += dyᵀ·x */
        p.shape.m = n, p.shape.n = k, p.shape.k = n_rows;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.a_transposed = p.shape.accumulate = true;
        p.data.a = IN(call, LINEAR_WGRAD, dy)->data, p.data.b = IN(call, LINEAR_WGRAD, x)->data;
        if (operand_present(OUT(call, LINEAR_WGRAD, db))) p.parts = (size_t)(parts_of(n_rows) * n) * sizeof(float);
    }
    return p;
}

size_t cuda_linear_scratch(const OpCall *call, const RowCounts *rows)
{
    return 256 + workspace() + product_of(call, rows).parts;
}

Status cuda_linear_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    for (int i = 0; i < n_buckets; i++) {
        LinearProduct p = product_of(call, &buckets[i]);
        TRY(p.data.c ? product_prepare_on(&p.shape, &p.data) : product_prepare(&p.shape));
    }
    return OK;
}

static Status linear_run(const LinearProduct *p)
{
    return product_run(&p->shape, p->data.a, p->data.b, p->data.c, p->data.bias, p->data.workspace);
}

Status cuda_linear(const OpCall *call, const RowCounts *rows)
{
    LinearProduct p = product_of(call, rows);
    return linear_run(&p);
}

Status cuda_linear_dgrad(const OpCall *call, const RowCounts *rows)
{
    LinearProduct p = product_of(call, rows);
    return linear_run(&p);
}

Status cuda_linear_wgrad(const OpCall *call, const RowCounts *rows)
{
    LinearProduct p = product_of(call, rows);
    const Operand *db = OUT(call, LINEAR_WGRAD, db), *dy = IN(call, LINEAR_WGRAD, dy);
    CHECK(call->scratch_bytes >= cuda_linear_scratch(call, rows),
          "linear_wgrad needs %zu bytes of scratch, was given %zu", cuda_linear_scratch(call, rows),
          call->scratch_bytes);
    if (operand_present(db))
        TRY(add_column_sums(dy, cuda_data<float>(db), rows_in(dy->rows, rows), call->attr.linear.n,
                            reinterpret_cast<float *>(static_cast<char *>(p.data.workspace) + workspace())));
    return linear_run(&p);
}
