/* GATHER and SCATTER. An index that names no row gives a row of NaN in GATHER, which stops the update, and nothing in
   SCATTER. Bytes per element of the gathered side in bf16: GATHER 4; SCATTER 6 (dy, and dx read and written), and where
   nothing is added to, 2 per element of dx. */
#include <math.h>

#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

struct RowsOf {
    RowKind kind;
    int64_t all;
};

static RowsOf rows_of(const Operand *o, const RowCounts *rows) { return {o->rows.kind, rows_in(o->rows, rows)}; }

/* ---- GATHER: a warp per row ---- */

enum { GATHER_ROWS = 4 };

template <typename T>
__global__ void gather_kernel(const T *x, const int32_t *index, const Ctl *ctl, T *y, RowsOf rows, int64_t x_rows,
                              int64_t cols, bool wide)
{
    int64_t r = (int64_t)blockIdx.x * GATHER_ROWS + threadIdx.x / CUDA_WARP;
    if (r >= rows.all) return;
    bool real = r < real_rows(rows.kind, rows.all, ctl);
    int64_t from = real ? index[r] : -1;
    bool there = from >= 0 && from < x_rows;
    CUDA_UNROLL for (int64_t j = threadIdx.x % CUDA_WARP * GROUP; j < cols; j += CUDA_WARP * GROUP)
    {
        float v[GROUP];
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) v[k] = real ? NAN : 0.0f;
        if (there) load_group(x + from * cols + j, cols - j, wide, v);
        store_group(y + r * cols + j, cols - j, wide, v);
    }
}

Status cuda_gather(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, GATHER, x), *y = OUT(call, GATHER, y);
    const int32_t *index = cuda_data<const int32_t>(IN(call, GATHER, index));
    RowsOf of_y = rows_of(y, rows);
    bool wide = x->cols % GROUP == 0 && on_16(x->data, y->data);
    CUDA_BY_TYPE(x->dtype, T,
                 return CUDA_LAUNCH((gather_kernel<T>), cuda_blocks(of_y.all, GATHER_ROWS), GATHER_ROWS * CUDA_WARP, 0,
                                    cuda_data<const T>(x), index, op_ctl(call), cuda_data<T>(y), of_y,
                                    rows_in(x->rows, rows), x->cols, wide));
}

/* ---- SCATTER ---- */

/* A block has 32 rows of dx. It goes through the whole index, 256 at a time; of those that name one of its rows it
   makes a list in their order and adds row after row. A thread has the same columns of every row, so its own order is
   that of the sum: as in ref, rounded at each addition. */
enum { SCATTER_ROWS = 32, SCATTER_WARPS = 8, SCATTER_THREADS = SCATTER_WARPS * CUDA_WARP };

template <typename T>
__global__ void __launch_bounds__(SCATTER_THREADS)
    scatter_kernel(const T *dy, const int32_t *index, const Ctl *ctl, T *dx, RowsOf dy_rows, int64_t rows, int64_t cols,
                   bool add, bool wide)
{
    CUDA_SHARED(int32_t, list, [SCATTER_THREADS]);
    CUDA_SHARED(int32_t, counts, [SCATTER_WARPS]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t first = (int64_t)blockIdx.x * SCATTER_ROWS, own = (int64_t)threadIdx.x * GROUP;
    int64_t end = first + SCATTER_ROWS < rows ? first + SCATTER_ROWS : rows,
            n = real_rows(dy_rows.kind, dy_rows.all, ctl);
    const float zeros[GROUP] = {};
    for (int64_t r = add ? end : first; r < end; r++)
        for (int64_t j = own; j < cols; j += SCATTER_THREADS * GROUP)
            store_group(dx + r * cols + j, cols - j, wide, zeros);
    for (int64_t base = 0; base < n; base += SCATTER_THREADS) {
        int64_t i = base + threadIdx.x, to = i < n ? index[i] : -1;
        bool mine = to >= first && to < end;
        unsigned votes = __ballot_sync(CUDA_FULL, mine);
        if (lane == 0) counts[warp] = __popc(votes);
        __syncthreads();
        int before = __popc(votes & ((1u << lane) - 1)), found = 0;
        for (int w = 0; w < SCATTER_WARPS; w++) {
            if (w < warp) before += counts[w];
            found += counts[w];
        }
        if (mine) list[before] = (int32_t)i;
        __syncthreads();
        for (int f = 0; f < found; f++) {
            const T *from = dy + list[f] * cols;
            T *sum = dx + index[list[f]] * cols;
            for (int64_t j = own; j < cols; j += SCATTER_THREADS * GROUP) {
                float v[GROUP], s[GROUP];
                load_group(from + j, cols - j, wide, v);
                load_group(sum + j, cols - j, wide, s);
                CUDA_UNROLL for (int k = 0; k < GROUP; k++) s[k] += v[k];
                store_group(sum + j, cols - j, wide, s);
            }
        }
    }
}

Status cuda_scatter(const OpCall *call, const RowCounts *rows)
{
    const Operand *dy = IN(call, SCATTER, dy), *dx = OUT(call, SCATTER, dx);
    const int32_t *index = cuda_data<const int32_t>(IN(call, SCATTER, index));
    int64_t n = rows_in(dx->rows, rows);
    bool add = operand_present(IN(call, SCATTER, add)), wide = dx->cols % GROUP == 0 && on_16(dy->data, dx->data);
    CUDA_BY_TYPE(dy->dtype, T,
                 return CUDA_LAUNCH((scatter_kernel<T>), cuda_blocks(n, SCATTER_ROWS), SCATTER_THREADS, 0,
                                    cuda_data<const T>(dy), index, op_ctl(call), cuda_data<T>(dx), rows_of(dy, rows), n,
                                    dx->cols, add, wide));
}
