/* ADDNORM, its backward, AFFINE. Bytes per element in bf16: forward 6 (d, x, y; 8 where xhat is kept), backward 8
   (kept, dy, dd, dx), AFFINE 4; γ, β and a row's scalars come from caches.

   In the backward a warp (or block, see rows.cuh) takes rows at a fixed stride and sums its columns for γ, β and the
   bias in shared memory. A block leaves one part, and a second kernel adds the parts. The number of parts, and so the
   order of the sums, depends on the number of rows alone.

   Forward has a row's loads all under way, in 95 registers, so 20 warps a multiprocessor run; by counting, 13 hide a
   row's 3.4 µs at 4 TB/s. A bound of 24 warps spills. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

/* ---- forward ---- */

template <typename T> struct AddNorm {
    const T *d, *x;            // (T, H); x may be absent
    const float *gamma, *beta; // (H)
    const int32_t *pos, *seq;  // (T)
    const Ctl *ctl;
    T *y, *xhat; // (T, H); y may lie in d's memory, xhat may be absent
    float *rstd; // (T)
    int64_t rows, cols;
    float eps;
    RowDropout dropout;
    bool from_xhat;
};

template <typename T, typename S> __global__ void __launch_bounds__(S::threads) addnorm_kernel(AddNorm<T> a)
{
    CUDA_SHARED(float, sums, [S::warps]);
    int64_t n = a.cols, r = (int64_t)blockIdx.x * S::rows + S::row();
    if (r >= a.rows) return;
    Dropout dropout = dropout_now(a.dropout, a.ctl);
    int32_t position = a.pos[r], sequence = a.seq[r];
    float s[S::groups][GROUP], x[S::groups][GROUP];
    const T *residual = a.x ? a.x : a.d; /* no branch stands between the loads, so all are under way at once */
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        S::load(a.d + r * n, i, n, s[i]);
        S::load(residual + r * n, i, n, x[i]);
    }
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        if (S::column(i) < n) drop_group(s[i], dropout, S::column(i), position, sequence);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] += a.x ? x[i][k] : 0.0f;
    }
    float rstd = row_normalise<S>(s, n, a.eps, sums);
    if (S::lane() == 0) a.rstd[r] = rstd;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float gamma[GROUP] = {}, beta[GROUP] = {};
        S::load_constant(a.gamma, i, n, gamma);
        S::load_constant(a.beta, i, n, beta);
        if (a.from_xhat) {
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] = rounded<T>(s[i][k]);
            if (a.xhat) S::store(a.xhat + r * n, i, n, s[i]);
        }
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] = gamma[k] * s[i][k] + beta[k];
        S::store(a.y + r * n, i, n, s[i]);
    }
}

template <typename T> static Status addnorm(const OpCall *call, const RowCounts *rows)
{
    const Operand *d = IN(call, ADDNORM, d);
    AddNorm<T> a = {};
    a.d = cuda_data<const T>(d), a.x = cuda_data<const T>(IN(call, ADDNORM, x));
    a.gamma = cuda_data<const float>(IN(call, ADDNORM, gamma)),
    a.beta = cuda_data<const float>(IN(call, ADDNORM, beta));
    a.pos = cuda_data<const int32_t>(IN(call, ADDNORM, pos)), a.seq = cuda_data<const int32_t>(IN(call, ADDNORM, seq));
    a.ctl = op_ctl(call);
    a.y = cuda_data<T>(OUT(call, ADDNORM, y)), a.xhat = cuda_data<T>(OUT(call, ADDNORM, xhat));
    a.rstd = cuda_data<float>(OUT(call, ADDNORM, rstd));
    a.rows = rows_in(d->rows, rows), a.cols = d->cols;
    a.eps = call->attr.norm.eps;
    a.dropout = row_dropout(call->attr.norm.dropout, call->attr.norm.site);
    a.from_xhat = call->attr.norm.form == NORM_FORM_XHAT;
    bool whole = a.cols % GROUP == 0 && on_16(a.d, a.x, a.gamma, a.beta, a.y, a.xhat);
    ROWS_BY_SHAPE(a.cols, whole, S,
                  return CUDA_LAUNCH((addnorm_kernel<T, S>), cuda_blocks(a.rows, S::rows), S::threads, 0, a));
}

Status cuda_addnorm(const OpCall *call, const RowCounts *rows)
{
    TRY(rows_check(call, IN(call, ADDNORM, d)->cols));
    CUDA_BY_TYPE(IN(call, ADDNORM, d)->dtype, T, return addnorm<T>(call, rows));
}

/* ---- backward ---- */

template <typename T> struct AddNormBwd {
    const T *kept, *dy;        // (T, H)
    const float *rstd;         // (T)
    const float *gamma, *beta; // (H)
    const int32_t *pos, *seq;  // (T)
    const Ctl *ctl;
    T *dd, *dx;   // (T, H); dx may lie in dy's memory, or be absent
    float *parts; // (blocks, sums, H): of γ, β and, where it is wanted, of db
    int sums;
    int64_t rows, cols;
    RowDropout dropout;
    bool from_y;
};

/* Blocks of the backward: at most as many as run at once on 132 multiprocessors, each with enough rows to be worth its
   part. */
template <typename S> static inline int64_t backward_blocks(int64_t rows)
{
    int64_t most = S::warps == 1 ? 528 : 264, all = (rows + 4 * S::rows - 1) / (4 * S::rows);
    return all < most ? all : most;
}

/* The sums in shared memory: (sums, rows, groups, 2, lanes) of four floats. Each thread has its own, so that none waits
   for another until the end; half a group at a time, so that lanes have no bank conflicts. */
template <typename S> struct NormSums {
    static constexpr size_t bytes = (size_t)S::rows * S::cols * sizeof(float); /* of each sum */
    /* 1/γ, once for a block's rows; the widest rows leave no room for it on each GPU */
    static constexpr size_t inverse_bytes = S::warps == 1 ? S::cols * sizeof(float) : 0;

    __device__ static inline float4 *place(float4 *sums, int row, int which, int i)
    {
        return sums + (((which * S::rows + row) * S::groups + i) * 2) * S::lanes + S::lane();
    }
    __device__ static inline void load(const float4 *from, float v[GROUP])
    {
        float4 a = from[0], b = from[S::lanes];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
    __device__ static inline void store(float4 *to, const float v[GROUP])
    {
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        to[S::lanes] = make_float4(v[4], v[5], v[6], v[7]);
    }
    __device__ static inline void add(float4 *to, const float v[GROUP])
    {
        float sum[GROUP];
        load(to, sum);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) sum[k] += v[k];
        store(to, sum);
    }
};

template <typename T, typename S>
__global__ void __launch_bounds__(S::threads, S::warps == 1 ? 4 : 1) addnorm_bwd_kernel(AddNormBwd<T> a)
{
    CUDA_SHARED(float, shared, [S::warps]);
    CUDA_SHARED_DYNAMIC(float4, sums);
    int64_t n = a.cols, step = (int64_t)gridDim.x * S::rows;
    Dropout dropout = dropout_now(a.dropout, a.ctl);
    for (int which = 0; which < a.sums; which++) CUDA_UNROLL
    for (int i = 0; i < S::groups; i++) {
        const float zeros[GROUP] = {};
        NormSums<S>::store(NormSums<S>::place(sums, S::row(), which, i), zeros);
    }
    float4 *inverse = sums + a.sums * (int)(NormSums<S>::bytes / sizeof *sums);
    if (NormSums<S>::inverse_bytes) {
        for (int i = S::row(); i < S::groups; i += S::rows) {
            float gamma[GROUP] = {};
            S::load(a.gamma, i, n, gamma);
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) gamma[k] = 1.0f / gamma[k];
            NormSums<S>::store(NormSums<S>::place(inverse, 0, 0, i), gamma);
        }
        __syncthreads();
    }
    for (int64_t r = (int64_t)blockIdx.x * S::rows + S::row(); r < a.rows; r += step) {
        float xhat[S::groups][GROUP], ds[S::groups][GROUP];
        CUDA_UNROLL for (int i = 0; i < S::groups; i++)
        {
            S::load(a.kept + r * n, i, n, xhat[i]);
            S::load(a.dy + r * n, i, n, ds[i]);
        }
        CUDA_UNROLL for (int i = 0; i < S::groups; i++)
        {
            float gamma[GROUP] = {}, beta[GROUP] = {}, product[GROUP];
            S::load(a.gamma, i, n, gamma);
            if (a.from_y) {
                float scale[GROUP];
                S::load(a.beta, i, n, beta);
                if (NormSums<S>::inverse_bytes)
                    NormSums<S>::load(NormSums<S>::place(inverse, 0, 0, i), scale);
                else
                    CUDA_UNROLL for (int k = 0; k < GROUP; k++) scale[k] = __fdividef(1.0f, gamma[k]);
                CUDA_UNROLL for (int k = 0; k < GROUP; k++) xhat[i][k] =
                    S::has(i, k, n) ? (xhat[i][k] - beta[k]) * scale[k] : 0.0f;
            }
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) product[k] = ds[i][k] * xhat[i][k];
            NormSums<S>::add(NormSums<S>::place(sums, S::row(), 0, i), product);
            NormSums<S>::add(NormSums<S>::place(sums, S::row(), 1, i), ds[i]);
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) ds[i][k] *= gamma[k];
            __syncwarp(); /* groups one after the other: all at once would need too many registers */
        }
        row_normalise_bwd<S>(ds, xhat, a.rstd[r], n, shared);
        int32_t position = a.pos[r], sequence = a.seq[r];
        CUDA_UNROLL for (int i = 0; i < S::groups; i++)
        {
            if (a.dx) S::store(a.dx + r * n, i, n, ds[i]);
            if (S::column(i) < n) drop_group(ds[i], dropout, S::column(i), position, sequence);
            S::store(a.dd + r * n, i, n, ds[i]);
            if (a.sums > 2) {
                CUDA_UNROLL for (int k = 0; k < GROUP; k++) ds[i][k] = rounded<T>(ds[i][k]);
                NormSums<S>::add(NormSums<S>::place(sums, S::row(), 2, i), ds[i]);
            }
            __syncwarp();
        }
    }
    __syncthreads();
    for (int i = S::row(); i < a.sums * S::groups; i += S::rows) { /* the block's rows in their order */
        int which = i / S::groups, group = i % S::groups;
        float all[GROUP] = {};
        CUDA_UNROLL for (int row = 0; row < S::rows; row++)
        {
            float v[GROUP];
            NormSums<S>::load(NormSums<S>::place(sums, row, which, group), v);
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) all[k] += v[k];
        }
        S::store(a.parts + ((int64_t)blockIdx.x * a.sums + which) * n, group, n, all);
    }
}

static bool whole_cols(int64_t cols) { return cols % GROUP == 0; }

static int norm_sums(const OpCall *call) { return operand_present(OUT(call, ADDNORM_BWD, db)) ? 3 : 2; }

size_t cuda_addnorm_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, ADDNORM_BWD, dy);
    int64_t n = rows_in(dy->rows, rows), most = 0;  /* the larger of both shapes; the operands' alignment decides */
    if (rows_check(call, dy->cols) != OK) return 0; /* the call reports it */
    ROWS_BY_SHAPE(dy->cols, whole_cols(dy->cols), S, most = backward_blocks<S>(n));
    ROWS_BY_SHAPE(dy->cols, false, S, most = most > backward_blocks<S>(n) ? most : backward_blocks<S>(n));
    return (size_t)(most * norm_sums(call) * dy->cols) * sizeof(float);
}

template <typename T> static Status addnorm_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, ADDNORM_BWD, dy);
    AddNormBwd<T> a = {};
    a.kept = cuda_data<const T>(IN(call, ADDNORM_BWD, kept)), a.dy = cuda_data<const T>(dy);
    a.rstd = cuda_data<const float>(IN(call, ADDNORM_BWD, rstd));
    a.gamma = cuda_data<const float>(IN(call, ADDNORM_BWD, gamma)),
    a.beta = cuda_data<const float>(IN(call, ADDNORM_BWD, beta));
    a.pos = cuda_data<const int32_t>(IN(call, ADDNORM_BWD, pos)),
    a.seq = cuda_data<const int32_t>(IN(call, ADDNORM_BWD, seq));
    a.ctl = op_ctl(call);
    a.dd = cuda_data<T>(OUT(call, ADDNORM_BWD, dd)), a.dx = cuda_data<T>(OUT(call, ADDNORM_BWD, dx));
    a.parts = static_cast<float *>(cuda_scratch(call, cuda_addnorm_bwd_scratch(call, rows)));
    a.rows = rows_in(dy->rows, rows), a.cols = dy->cols;
    a.sums = norm_sums(call);
    a.dropout = row_dropout(call->attr.norm.dropout, call->attr.norm.site);
    a.from_y = call->attr.norm.form == NORM_FORM_Y;
    bool whole = whole_cols(a.cols) && on_16(a.kept, a.dy, a.gamma, a.beta, a.dd, a.dx, a.parts);
    ROWS_BY_SHAPE(a.cols, whole, S, {
        int64_t blocks = backward_blocks<S>(a.rows);
        size_t shared = a.sums * NormSums<S>::bytes + NormSums<S>::inverse_bytes;
        size_t fixed = S::warps * sizeof(float); /* the kernel's own array */
        if (shared + fixed > device_info()->shared)
            return fail(E_USAGE, "ADDNORM_BWD: rows of %lld columns need %zu bytes of shared memory, and %s has %zu",
                        (long long)a.cols, shared + fixed, device_info()->name, device_info()->shared);
        TRY(CUDA_LAUNCH((addnorm_bwd_kernel<T, S>), (unsigned)blocks, S::threads, shared, a));
        return columns_add_parts(
            a.parts, blocks, a.cols,
            {{cuda_data<float>(OUT(call, ADDNORM_BWD, dgamma)), cuda_data<float>(OUT(call, ADDNORM_BWD, dbeta)),
              cuda_data<float>(OUT(call, ADDNORM_BWD, db))},
             call->begun >> ADDNORM_BWD_OUT_dgamma});
    });
}

Status cuda_addnorm_bwd(const OpCall *call, const RowCounts *rows)
{
    TRY(rows_check(call, IN(call, ADDNORM_BWD, dy)->cols));
    CUDA_BY_TYPE(IN(call, ADDNORM_BWD, dy)->dtype, T, return addnorm_bwd<T>(call, rows));
}

/* ---- AFFINE: the formula of ADDNORM in form XHAT, so the same bits ---- */

template <typename T, typename S>
__global__ void __launch_bounds__(S::threads)
    affine_kernel(const T *xhat, const float *gamma, const float *beta, T *y, int64_t rows, int64_t n)
{
    int64_t r = (int64_t)blockIdx.x * S::rows + S::row();
    if (r >= rows) return;
    float x[S::groups][GROUP];
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) S::load(xhat + r * n, i, n, x[i]);
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float scale[GROUP] = {}, shift[GROUP] = {};
        S::load_constant(gamma, i, n, scale);
        S::load_constant(beta, i, n, shift);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) x[i][k] = scale[k] * x[i][k] + shift[k];
        S::store(y + r * n, i, n, x[i]);
    }
}

Status cuda_affine(const OpCall *call, const RowCounts *rows)
{
    const Operand *xhat = IN(call, AFFINE, xhat), *y = OUT(call, AFFINE, y);
    const float *gamma = cuda_data<const float>(IN(call, AFFINE, gamma));
    const float *beta = cuda_data<const float>(IN(call, AFFINE, beta));
    int64_t n = rows_in(xhat->rows, rows);
    bool whole = whole_cols(xhat->cols) && on_16(xhat->data, gamma, beta, y->data);
    TRY(rows_check(call, xhat->cols));
    CUDA_BY_TYPE(
        xhat->dtype, T,
        ROWS_BY_SHAPE(xhat->cols, whole, S,
                      return CUDA_LAUNCH((affine_kernel<T, S>), cuda_blocks(n, S::rows), S::threads, 0,
                                         cuda_data<const T>(xhat), gamma, beta, cuda_data<T>(y), n, xhat->cols)));
}
