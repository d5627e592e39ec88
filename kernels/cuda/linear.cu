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

template <typename T> __global__ void linear_parts_kernel(const T *x, float *parts, int64_t rows, int64_t n)
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
__global__ void linear_db_kernel(const float *parts, float *to, int64_t n_parts, int64_t n)
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
    dim3 grid(cuda_blocks(n, COLUMNS), (unsigned)n_parts);
    CUDA_BY_TYPE(
        x->dtype, T,
        TRY(CUDA_LAUNCH((linear_parts_kernel<T>), grid, WARPS * CUDA_WARP, 0, cuda_data<const T>(x), parts, rows, n)));
    return CUDA_LAUNCH((linear_db_kernel), cuda_blocks(n, CUDA_WARP), WARPS * CUDA_WARP, 0, parts, to, n_parts, n);
}

/* ---- the ops ---- */

static Product linear_product(const OpCall *call, const RowCounts *rows)
{
    const Operand *in = &call->in[0], *out = &call->out[0]; /* of each: the rows, and the result */
    int64_t n_rows = rows_in(in->rows, rows), k = call->attr.linear.k, n = call->attr.linear.n;
    Product p = {};
    p.workspace = reinterpret_cast<void *>(cuda_align(reinterpret_cast<uintptr_t>(call->scratch)));
    p.shape.in = in->dtype;
    p.shape.out = out->dtype;
    p.c = out->data;
    if (call->op == OP_LINEAR) { /* y = x·wᵀ + bias */
        const Operand *bias = IN(call, LINEAR, bias);
        p.shape.m = n_rows, p.shape.n = n, p.shape.k = k;
        p.shape.lda = k, p.shape.ldb = k, p.shape.ldc = n;
        p.shape.b_transposed = true;
        p.shape.bias = operand_present(bias) ? BIAS_ADDED : BIAS_NONE;
        p.a = IN(call, LINEAR, x)->data, p.b = IN(call, LINEAR, w)->data;
        p.bias = cuda_data<const float>(bias);
    } else if (call->op == OP_LINEAR_DGRAD) { /* dx = dy·w (+ dx) */
        p.shape.m = n_rows, p.shape.n = k, p.shape.k = n;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.accumulate = operand_present(IN(call, LINEAR_DGRAD, add));
        p.a = IN(call, LINEAR_DGRAD, dy)->data, p.b = IN(call, LINEAR_DGRAD, w)->data;
    } else { /* dw += dyᵀ·x */
        p.shape.m = n, p.shape.n = k, p.shape.k = n_rows;
        p.shape.lda = n, p.shape.ldb = k, p.shape.ldc = k;
        p.shape.a_transposed = p.shape.accumulate = true;
        p.a = IN(call, LINEAR_WGRAD, dy)->data, p.b = IN(call, LINEAR_WGRAD, x)->data;
    }
    return p;
}

static bool with_db(const OpCall *call)
{
    return call->op == OP_LINEAR_WGRAD && operand_present(OUT(call, LINEAR_WGRAD, db));
}

/* A workspace on 256 bytes, where scratch starts on 64; behind it the parts of db. */
size_t cuda_linear_scratch(const OpCall *call, const RowCounts *rows)
{
    int64_t parts = with_db(call) ? parts_of(rows_in(call->in[0].rows, rows)) * call->attr.linear.n : 0;
    return 256 + product_workspace() + (size_t)parts * sizeof(float);
}

Status cuda_linear_prepare(const OpCall *call, const RowCounts *buckets, int n_buckets)
{
    for (int i = 0; i < n_buckets; i++) {
        Product p = linear_product(call, &buckets[i]);
        p.most_rows = i == n_buckets - 1;
        TRY(product_prepare(&p));
    }
    return OK;
}

Status cuda_linear(const OpCall *call, const RowCounts *rows)
{
    Product p = linear_product(call, rows);
    (void)cuda_scratch(call, cuda_linear_scratch(call, rows));
    if (with_db(call))
        TRY(add_column_sums(IN(call, LINEAR_WGRAD, dy), cuda_data<float>(OUT(call, LINEAR_WGRAD, db)),
                            rows_in(call->in[0].rows, rows), call->attr.linear.n,
                            reinterpret_cast<float *>(static_cast<char *>(p.workspace) + product_workspace())));
    return product_run(&p);
}
