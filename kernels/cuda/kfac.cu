/* K-FAC's statistics, the inverses' use, and preconditioned gradients. Products are those of product.h. Nothing is a
   host value: without statistics to gather, or inverses to use, results are computed and left out. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/product.h"

enum { THREADS = 256, BLOCKS_MOST = 4096 };

/* Blocks of a kernel that goes over n elements in strides of its grid. */
static unsigned striding(int64_t n) { return min(cuda_blocks(n, THREADS), (unsigned)BLOCKS_MOST); }

/* ---- CURVATURE: the columns of the real rows are copied, because rows of the bucket beyond them need not be 0 ---- */

/* A thread has a group of a row. `wide`: each of them begins on 16 bytes. */
template <typename T>
__global__ void real_rows_kernel(T *to, const T *x, int64_t rows, int64_t cols, int64_t first, int64_t n, bool wide,
                                 const Ctl *ctl)
{
    int64_t groups = (n + GROUP - 1) / GROUP, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t row = i / groups, column = i % groups * GROUP;
    float v[GROUP] = {};
    if (row >= rows) return;
    if (row < ctl->n_tokens && ctl->kfac_tokens != 0) load_group(x + row * cols + first + column, n - column, wide, v);
    store_group(to + row * n + column, n - column, wide, v);
}

size_t cuda_curvature_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, CURVATURE, x);
    return 256 + product_workspace() + (size_t)(rows_in(x->rows, rows) * call->attr.curvature.n) * dtype_size(x->dtype);
}

Status cuda_curvature(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, CURVATURE, x);
    Product p = linear_product(call, rows);
    int64_t n = call->attr.curvature.n, first = call->attr.curvature.first;
    (void)cuda_scratch(call, cuda_curvature_scratch(call, rows));
    bool wide = n % GROUP == 0 && first % GROUP == 0 && x->cols % GROUP == 0;
    CUDA_BY_TYPE(x->dtype, T,
                 TRY(CUDA_LAUNCH((real_rows_kernel<T>), cuda_blocks(p.shape.k * ((n + GROUP - 1) / GROUP), THREADS),
                                 THREADS, 0, static_cast<T *>(const_cast<void *>(p.a)), cuda_data<const T>(x),
                                 p.shape.k, x->cols, first, n, wide, op_ctl(call))));
    return product_run(&p);
}

/* ---- ADOPT ---- */

__global__ void adopt_kernel(float *a_inv, float *b_inv, float *has, const float *a, const float *b, const float *ready,
                             int64_t k, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
    if (*ready == 0) return;
    for (int64_t i = first; i < k * k; i += stride) a_inv[i] = a[i];
    for (int64_t i = first; i < n * n; i += stride) b_inv[i] = b[i];
    if (first == 0) *has = 1;
}

Status cuda_adopt(const OpCall *call, const RowCounts *)
{
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    return CUDA_LAUNCH((adopt_kernel), striding(k > n ? k * k : n * n), THREADS, 0,
                       cuda_data<float>(OUT(call, ADOPT, a_inv)), cuda_data<float>(OUT(call, ADOPT, b_inv)),
                       cuda_data<float>(OUT(call, ADOPT, has)), cuda_data<const float>(IN(call, ADOPT, a)),
                       cuda_data<const float>(IN(call, ADOPT, b)), cuda_data<const float>(IN(call, ADOPT, ready)), k,
                       n);
}

/* ---- PRECONDITION ---- */

/* to (n) = b·db: a warp a row. */
__global__ void precondition_bias_kernel(float *to, const float *b, const float *db, int64_t n)
{
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / CUDA_WARP;
    if (row >= n) return;
    float sum = 0;
    for (int64_t i = threadIdx.x % CUDA_WARP; i < n; i += CUDA_WARP) sum = fmaf(b[row * n + i], db[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % CUDA_WARP == 0) to[row] = sum;
}

/* Where there are inverses: dw (n, k) = new_dw, db (n; absent: NULL) = new_db. */
__global__ void take_kernel(float *dw, float *db, const float *new_dw, const float *new_db, const float *has, int64_t n,
                            int64_t k)
{
    int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
    if (*has == 0) return;
    for (int64_t i = first; i < n * k; i += stride) dw[i] = new_dw[i];
    for (int64_t i = first; db && i < n; i += stride) db[i] = new_db[i];
}

struct PreconditionScratch {
    void *workspace;
    float *half, *dw; // (n, k): b_inv·dw, and that times a_inv
    float *db;        // (n)
    size_t bytes;
};

static PreconditionScratch precondition_scratch(const OpCall *call)
{
    unsigned char *base = cuda_workspace(call);
    int64_t n = call->attr.kfac.n;
    size_t workspace = product_workspace(), matrix = cuda_align((size_t)(n * call->attr.kfac.k) * sizeof(float));
    auto at = [&](size_t offset) { return reinterpret_cast<float *>(base + workspace + offset); };
    return {base, at(0), at(matrix), at(2 * matrix), 256 + workspace + 2 * matrix + (size_t)n * sizeof(float)};
}

size_t cuda_precondition_scratch(const OpCall *call, const RowCounts *) { return precondition_scratch(call).bytes; }

/* c (m, n) = a (m, k)·b (k, n), in fp32. */
static Product plain_product(const PreconditionScratch *s, int64_t m, int64_t n, int64_t k, const float *a,
                             const float *b, float *c)
{
    Product p = {};
    p.shape.in = p.shape.out = F32;
    p.shape.m = m, p.shape.n = n, p.shape.k = k;
    p.shape.lda = k, p.shape.ldb = n, p.shape.ldc = n;
    p.a = a, p.b = b, p.c = c;
    p.workspace = s->workspace;
    return p;
}

static Product left_product(const OpCall *call, const PreconditionScratch *s)
{
    return plain_product(s, call->attr.kfac.n, call->attr.kfac.k, call->attr.kfac.n,
                         cuda_data<const float>(IN(call, PRECONDITION, b_inv)),
                         cuda_data<const float>(OUT(call, PRECONDITION, dw)), s->half);
}

static Product right_product(const OpCall *call, const PreconditionScratch *s)
{
    return plain_product(s, call->attr.kfac.n, call->attr.kfac.k, call->attr.kfac.k, s->half,
                         cuda_data<const float>(IN(call, PRECONDITION, a_inv)), s->dw);
}

Status cuda_precondition_prepare(const OpCall *call, const RowCounts *, int)
{
    PreconditionScratch s = precondition_scratch(call);
    Product left = left_product(call, &s), right = right_product(call, &s);
    TRY(product_prepare(&left));
    return product_prepare(&right);
}

Status cuda_precondition(const OpCall *call, const RowCounts *)
{
    PreconditionScratch s = precondition_scratch(call);
    Product left = left_product(call, &s), right = right_product(call, &s);
    float *dw = cuda_data<float>(OUT(call, PRECONDITION, dw)), *db = cuda_data<float>(OUT(call, PRECONDITION, db));
    int64_t k = call->attr.kfac.k, n = call->attr.kfac.n;
    (void)cuda_scratch(call, s.bytes);
    TRY(product_run(&left));
    TRY(product_run(&right));
    if (db)
        TRY(CUDA_LAUNCH((precondition_bias_kernel), cuda_blocks(n, THREADS / CUDA_WARP), THREADS, 0, s.db,
                        cuda_data<const float>(IN(call, PRECONDITION, b_inv)), db, n));
    return CUDA_LAUNCH((take_kernel), striding(n * k), THREADS, 0, dw, db, s.dw, s.db,
                       cuda_data<const float>(IN(call, PRECONDITION, has)), n, k);
}
