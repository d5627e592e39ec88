/* POOL and POOL_BWD: a block per sequence. Its warps take the rows in turn and are then added in order, so a result
   depends on the sequence's rows alone. A span or an index that names no row gives NaN in POOL, which stops the update.
   Bytes per element of x in bf16: 2 each. */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sums.cuh"

#include "kernels/cuda/cuda.h"

enum { WARPS = 8, THREADS = WARPS * CUDA_WARP, TILE = CUDA_WARP * GROUP /* columns: one a thread */ };
static const double SHORTEST = 1e-12; /* a vector's length counts as this at least */

struct PoolCall {
    const int32_t *spans, *first; // (S, 2) or (S), the other NULL
    const Ctl *ctl;
    int64_t rows, cols; /* of x */
    bool normalize, wide;
};

struct PooledRows {
    int64_t first, n;
};

/* The rows of x that sequence s is made from; n is 0 where they are not there. */
__device__ static inline PooledRows pooled_rows(const PoolCall &c, int64_t s)
{
    int64_t first = c.first ? c.first[s] : c.spans[2 * s], end = c.first ? first + 1 : c.spans[2 * s + 1];
    if (first < 0 || first >= end || end > c.rows) return {0, 0};
    return {first, end - first};
}

template <typename T>
__global__ void __launch_bounds__(THREADS) pool_kernel(PoolCall c, const T *x, float *y, float *inverse)
{
    CUDA_SHARED(float, sums, [WARPS][TILE]);
    CUDA_SHARED(double, shared, [32]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t s = blockIdx.x, own = s * c.cols;
    bool real = s < c.ctl->n_seqs;
    PooledRows of = real ? pooled_rows(c, s) : PooledRows{0, 0};
    double squares = 0, length = 1;
    for (int64_t tile = 0; tile < c.cols; tile += TILE) {
        int64_t j = tile + lane * GROUP, column = tile + threadIdx.x;
        float sum[GROUP] = {};
        CUDA_UNROLL for (int64_t i = warp; i < of.n; i += WARPS)
        {
            float v[GROUP] = {};
            if (j < c.cols) load_group(x + (of.first + i) * c.cols + j, c.cols - j, c.wide, v);
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) sum[k] += v[k];
        }
        __syncthreads();
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) sums[warp][lane * GROUP + k] = sum[k];
        __syncthreads();
        if (column >= c.cols) continue;
        float all = 0;
        CUDA_UNROLL for (int w = 0; w < WARPS; w++) all += sums[w][threadIdx.x];
        all = real ? all / (float)of.n : 0.0f;
        y[own + column] = all;
        squares += (double)all * (double)all;
    }
    if (c.normalize) length = sqrt(block_sum_double(squares, shared));
    if (length < SHORTEST) length = SHORTEST;
    float factor = (float)(1 / length);
    for (int64_t column = threadIdx.x; c.normalize && column < c.cols; column += THREADS) y[own + column] *= factor;
    if (threadIdx.x == 0) inverse[s] = real ? factor : 0.0f;
}

Status cuda_pool(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, POOL, x), *y = OUT(call, POOL, y);
    PoolCall c = {cuda_data<const int32_t>(IN(call, POOL, spans)),
                  cuda_data<const int32_t>(IN(call, POOL, first)),
                  op_ctl(call),
                  rows_in(x->rows, rows),
                  x->cols,
                  call->attr.pool.normalize,
                  x->cols % GROUP == 0 && on_16(x->data)};
    CUDA_BY_TYPE(x->dtype, T,
                 return CUDA_LAUNCH((pool_kernel<T>), (unsigned)rows_in(y->rows, rows), THREADS, 0, c,
                                    cuda_data<const T>(x), cuda_data<float>(y),
                                    cuda_data<float>(OUT(call, POOL, inverse))));
}

/* The block of a sequence also clears the rows behind it, up to the next sequence or the end; that of the first one
   those before it, and, where there is no sequence, all rows. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    pool_bwd_kernel(PoolCall c, const float *dy, const float *y, const float *inverse, T *dx)
{
    CUDA_SHARED(double, shared, [32]);
    int64_t s = blockIdx.x, n = c.ctl->n_seqs;
    if (s > 0 && s >= n) return;
    PooledRows of = s < n ? pooled_rows(c, s) : PooledRows{0, 0};
    int64_t from = s > 0 ? of.first : 0, next = s + 1 < n ? pooled_rows(c, s + 1).first : c.rows;
    double along = 0;
    dy += s * c.cols, y += s * c.cols;
    for (int64_t j = threadIdx.x; c.normalize && j < c.cols; j += THREADS) along += (double)dy[j] * (double)y[j];
    if (c.normalize) along = block_sum_double(along, shared);
    float dot = (float)along, factor = of.n > 0 ? inverse[s] / (float)of.n : 0.0f;
    for (int64_t j = threadIdx.x % CUDA_WARP * GROUP; j < c.cols; j += TILE) {
        float g[GROUP], v[GROUP];
        load_group(dy + j, c.cols - j, c.wide, g);
        load_group(y + j, c.cols - j, c.wide, v);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) g[k] = (c.normalize ? g[k] - v[k] * dot : g[k]) * factor;
        for (int64_t r = from + threadIdx.x / CUDA_WARP; r < next; r += WARPS) {
            bool in = r >= of.first && r < of.first + of.n;
            CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = in ? g[k] : 0.0f;
            store_group(dx + r * c.cols + j, c.cols - j, c.wide, v);
        }
    }
}

Status cuda_pool_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, POOL_BWD, dy), *y = IN(call, POOL_BWD, y), *dx = OUT(call, POOL_BWD, dx);
    PoolCall c = {cuda_data<const int32_t>(IN(call, POOL_BWD, spans)),
                  cuda_data<const int32_t>(IN(call, POOL_BWD, first)),
                  op_ctl(call),
                  rows_in(dx->rows, rows),
                  dx->cols,
                  call->attr.pool.normalize,
                  dx->cols % GROUP == 0 && on_16(dy->data, y->data, dx->data)};
    CUDA_BY_TYPE(dx->dtype, T,
                 return CUDA_LAUNCH((pool_bwd_kernel<T>), (unsigned)rows_in(dy->rows, rows), THREADS, 0, c,
                                    cuda_data<const float>(dy), cuda_data<const float>(y),
                                    cuda_data<const float>(IN(call, POOL_BWD, inverse)), cuda_data<T>(dx)));
}
