/* Shared by the kernels of rows: a row of a (rows, cols) tensor held in the registers of one warp or one block, sums
   over it, and dropout of eight neighbouring columns.

   Columns are taken in groups of eight: 16 bytes of bf16 or fp16. Group i of a row's lane l begins at column
   8·(i·lanes + l). A sum over a row adds a lane's groups in their order, then the tree of a warp, then the warps from
   first to last: an order that the number of columns alone decides. If the number of columns is not a
   multiple of 8, or an operand does not begin on 16 bytes, columns are read one by one (WHOLE false); plans make
   neither. */
#pragma once

#include "kernels/cuda/columns.cuh"

static const int GROUP = 8;
static const int64_t ROW_COLS = 8192; /* longest row */

/* ---- groups ---- */

/* Up to eight values, zeros behind the last of `left`; `wide`: on 16 bytes. */
template <typename T> __device__ static inline void load_group(const T *from, int64_t left, bool wide, float v[GROUP])
{
    if (wide && left >= GROUP) {
        load8(from, v);
    } else {
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = k < left ? to_float(from[k]) : 0.0f;
    }
}
template <typename T> __device__ static inline void store_group(T *to, int64_t left, bool wide, const float v[GROUP])
{
    if (wide && left >= GROUP) {
        store8(to, v);
    } else {
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) if (k < left) to[k] = from_float<T>(v[k]);
    }
}

/* load8 from memory that no running kernel writes: the compiler may move it before any store. */
__device__ static inline void load8_constant(const float *from, float v[GROUP])
{
    const float4 *p = reinterpret_cast<const float4 *>(from);
    float4 a = __ldg(p), b = __ldg(p + 1);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ static inline float group_sum(const float v[GROUP])
{
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

/* ---- a row in registers ---- */

/* WARPS warps hold a row of up to 256·WARPS·GROUPS columns, GROUPS groups a thread. A block has four rows of one warp
   each, or one row. */
template <int WARPS, int GROUPS, bool WHOLE> struct RowShape {
    static constexpr int warps = WARPS, groups = GROUPS, lanes = WARPS * CUDA_WARP;
    static constexpr int rows = WARPS == 1 ? 4 : 1, threads = lanes * rows;
    static constexpr int cols = lanes * GROUPS * GROUP; /* at most */
    static constexpr bool whole = WHOLE;

    __device__ static inline int lane() { return (int)threadIdx.x % lanes; }
    __device__ static inline int row() { return (int)threadIdx.x / lanes; } /* of the block */
    __device__ static inline int64_t column(int i) { return (int64_t)(i * lanes + lane()) * GROUP; }
    __device__ static inline bool has(int i, int k, int64_t n) { return column(i) + (WHOLE ? 0 : k) < n; }

    /* Group i of a row of n columns; zeros behind the last. */
    template <typename T> __device__ static inline void load(const T *row, int i, int64_t n, float v[GROUP])
    {
        if (!WHOLE) return load_group(row + column(i), n - column(i), false, v);
        if (column(i) < n) return load8(row + column(i), v);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = 0;
    }
    /* load, for γ and β. */
    __device__ static inline void load_constant(const float *row, int i, int64_t n, float v[GROUP])
    {
        if (!WHOLE) return load_group(row + column(i), n - column(i), false, v);
        if (column(i) < n) load8_constant(row + column(i), v);
    }
    template <typename T> __device__ static inline void store(T *row, int i, int64_t n, const float v[GROUP])
    {
        if (!WHOLE)
            store_group(row + column(i), n - column(i), false, v);
        else if (column(i) < n)
            store8(row + column(i), v);
    }
    template <typename T> __device__ static inline void fill(T *row, int64_t n, float value)
    {
        float v[GROUP];
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = value;
        CUDA_UNROLL for (int i = 0; i < GROUPS; i++) store(row, i, n, v);
    }

    /* The sum over the row, in all its threads; all must call. `shared` is (warps), and may hold those of an earlier
     * call. */
    __device__ static inline float sum(float x, float *shared)
    {
        x = warp_sum(x);
        if constexpr (WARPS > 1) {
            __syncthreads();
            if (threadIdx.x % CUDA_WARP == 0) shared[threadIdx.x / CUDA_WARP] = x;
            __syncthreads();
            x = 0;
            CUDA_UNROLL for (int w = 0; w < WARPS; w++) x += shared[w];
        }
        return x;
    }
};

#define ROWS_SHAPE(WARPS, GROUPS, WHOLE, S, ...)                                                                       \
    {                                                                                                                  \
        typedef RowShape<WARPS, GROUPS, WHOLE> S;                                                                      \
        __VA_ARGS__;                                                                                                   \
    }
#define ROWS_CASE(condition, WARPS, GROUPS, WHOLE, S, ...)                                                             \
    if (condition) ROWS_SHAPE(WARPS, GROUPS, WHOLE, S, __VA_ARGS__) else
/* Runs the statement(s) with S as the shape for rows of `cols_` columns. */
#define ROWS_BY_SHAPE(cols_, whole_, S, ...)                                                                           \
    do {                                                                                                               \
        ROWS_CASE(!(whole_) && (cols_) <= 256, 1, 1, false, S, __VA_ARGS__)                                            \
        ROWS_CASE(!(whole_), 8, 4, false, S, __VA_ARGS__)                                                              \
        ROWS_CASE((cols_) <= 256, 1, 1, true, S, __VA_ARGS__)                                                          \
        ROWS_CASE((cols_) <= 512, 1, 2, true, S, __VA_ARGS__)                                                          \
        ROWS_CASE((cols_) <= 768, 1, 3, true, S, __VA_ARGS__)                                                          \
        ROWS_CASE((cols_) <= 1024, 1, 4, true, S, __VA_ARGS__)                                                         \
        ROWS_CASE((cols_) <= 4096, 8, 2, true, S, __VA_ARGS__)                                                         \
        ROWS_SHAPE(8, 4, true, S, __VA_ARGS__)                                                                         \
    } while (0)

static inline Status rows_check(const OpCall *call, int64_t cols)
{
    if (cols >= 1 && cols <= ROW_COLS) return OK;
    return fail(E_USAGE, "%s: rows of %lld columns; the cuda backend takes 1 to %lld", op_info(call->op)->name,
                (long long)cols, (long long)ROW_COLS);
}

/* ---- dropout ---- */

/* Known when a kernel is launched; the rest is in ctl. */
struct RowDropout {
    uint32_t site, threshold;
    float scale;
};

static inline RowDropout row_dropout(float p, uint32_t site) { return {site, dropout_threshold(p), dropout_scale(p)}; }

__device__ static inline Dropout dropout_now(const RowDropout &d, const Ctl *ctl)
{
    return {ctl->dropout_key, dropout_c3(d.site, ctl->batch), d.threshold, d.scale};
}

/* Columns column … column + 7 of a row. */
__device__ static inline void drop_group(float v[GROUP], const Dropout &d, int64_t column, int32_t position,
                                         int32_t sequence)
{
    if (!d.threshold) return;
    Philox4 draws = dropout_row_call(&d, (uint32_t)(column / GROUP), (uint32_t)position, (uint32_t)sequence);
    CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] *= dropout_factor(&d, &draws, k);
}

/* ---- LayerNorm ---- */

/* s → xhat of one row of n columns; returns rstd. Biased variance, from the differences to the mean. `shared`: as for
   sum. */
template <typename S>
__device__ static inline float row_normalise(float (&s)[S::groups][GROUP], int64_t n, float eps, float *shared)
{
    float total = 0, squares = 0;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) total += group_sum(s[i]);
    float mean = S::sum(total, shared) / (float)n;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float square[GROUP];
        CUDA_UNROLL for (int k = 0; k < GROUP; k++)
        {
            s[i][k] = S::has(i, k, n) ? s[i][k] - mean : 0.0f;
            square[k] = s[i][k] * s[i][k];
        }
        squares += group_sum(square);
    }
    float rstd = 1.0f / sqrtf(S::sum(squares, shared) / (float)n + eps);
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[i][k] *= rstd;
    return rstd;
}

/* dxhat = γ·dy → gradient of the normalised sum, rstd·(dxhat − mean(dxhat) − xhat·mean(dxhat·xhat)). */
template <typename S>
__device__ static inline void row_normalise_bwd(float (&dxhat)[S::groups][GROUP], const float (&xhat)[S::groups][GROUP],
                                                float rstd, int64_t n, float *shared)
{
    float sum = 0, dot = 0;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++)
    {
        float product[GROUP];
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) product[k] = dxhat[i][k] * xhat[i][k];
        sum += group_sum(dxhat[i]);
        dot += group_sum(product);
    }
    float mean = S::sum(sum, shared) / (float)n, mean_dot = S::sum(dot, shared) / (float)n;
    CUDA_UNROLL for (int i = 0; i < S::groups; i++) CUDA_UNROLL for (int k = 0; k < GROUP; k++) dxhat[i][k] =
        rstd * (dxhat[i][k] - mean - xhat[i][k] * mean_dot);
}
