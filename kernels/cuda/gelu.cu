/* GELU and its backward. Bytes per element in bf16: forward 4, backward 6, and 8 where g is written too. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

/* ---- kernels: a thread has PER groups of eight elements, a block's groups are neighbours; backward goes by rows ----
 */

enum { THREADS = 256, PER = 2, BLOCK = THREADS * PER * GROUP };

__device__ static inline int64_t first_of(int u)
{
    return (((int64_t)blockIdx.x * PER + u) * THREADS + threadIdx.x) * GROUP;
}

/* g may lie in pre's memory. */
template <typename T, GeluKind KIND>
__global__ void __launch_bounds__(THREADS) gelu_kernel(const T *pre, T *g, int64_t n, bool wide)
{
    float x[PER][GROUP];
    CUDA_UNROLL for (int u = 0; u < PER; u++) load_group(pre + first_of(u), n - first_of(u), wide, x[u]);
    CUDA_UNROLL for (int u = 0; u < PER; u++)
    {
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) x[u][k] = Gelu<T, KIND>::at(x[u][k]).g;
        store_group(g + first_of(u), n - first_of(u), wide, x[u]);
    }
}

/* dpre may lie in dg's memory, g in pre's; g may be absent. `parts`: of the column sums of dpre (columns.cuh); NULL:
   they are not wanted. */
template <typename T, GeluKind KIND>
__global__ void __launch_bounds__(COLUMNS_THREADS, 4)
    gelu_bwd_kernel(const T *pre, const T *dg, T *dpre, T *g, float *parts, int64_t rows, int64_t cols, bool wide)
{
    CUDA_SHARED(float, sums, [COLUMNS_WARPS * COLUMNS_BLOCK]);
    ColumnsPlace p = columns_place(rows);
    float sum[GROUP] = {};
    CUDA_ROLL
    for (int64_t r = p.row; r < p.end; r += COLUMNS_WARPS) {
        float x[GROUP], dx[GROUP];
        int64_t at = r * cols + p.column, left = cols - p.column;
        load_group(pre + at, left, wide, x);
        load_group(dg + at, left, wide, dx);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++)
        {
            GeluValue value = Gelu<T, KIND>::at(x[k]);
            x[k] = value.g;
            dx[k] = rounded<T>(dx[k] * value.slope);
            sum[k] += dx[k];
        }
        store_group(dpre + at, left, wide, dx);
        if (g) store_group(g + at, left, wide, x);
    }
    if (parts) columns_leave(sum, parts, cols, sums);
}

/* ---- the ops ---- */

template <typename T, GeluKind KIND> static Status gelu(const OpCall *call, int64_t n)
{
    const T *pre = cuda_data<const T>(IN(call, GELU, pre));
    T *g = cuda_data<T>(OUT(call, GELU, g));
    return CUDA_LAUNCH((gelu_kernel<T, KIND>), cuda_blocks(n, BLOCK), THREADS, 0, pre, g, n, on_16(pre, g));
}

size_t cuda_gelu_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU_BWD, pre);
    return operand_present(OUT(call, GELU_BWD, db)) ? columns_scratch(rows_in(pre->rows, rows), pre->cols) : 0;
}

template <typename T, GeluKind KIND> static Status gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    const T *pre = cuda_data<const T>(IN(call, GELU_BWD, pre)), *dg = cuda_data<const T>(IN(call, GELU_BWD, dg));
    T *dpre = cuda_data<T>(OUT(call, GELU_BWD, dpre)), *g = cuda_data<T>(OUT(call, GELU_BWD, g));
    const Operand *db = OUT(call, GELU_BWD, db);
    int64_t n = rows_in(call->in[0].rows, rows), cols = call->in[0].cols;
    bool wide = cols % GROUP == 0 && on_16(pre, dg, dpre, g);
    float *parts = static_cast<float *>(cuda_scratch(call, cuda_gelu_bwd_scratch(call, rows)));
    if (!operand_present(db)) parts = NULL;
    TRY(CUDA_LAUNCH((gelu_bwd_kernel<T, KIND>), columns_grid(n, cols), COLUMNS_THREADS, 0, pre, dg, dpre, g, parts, n,
                    cols, wide));
    return parts
               ? columns_add_parts(parts, columns_parts(n), cols, {{cuda_data<float>(db)}, BEGINS(call, GELU_BWD, db)})
               : OK;
}

Status cuda_gelu(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU, pre);
    int64_t n = rows_in(pre->rows, rows) * pre->cols;
    CUDA_BY_TYPE(pre->dtype, T,
                 return call->attr.gelu.kind == GELU_ERF ? gelu<T, GELU_ERF>(call, n) : gelu<T, GELU_TANH>(call, n));
}

Status cuda_gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    CUDA_BY_TYPE(IN(call, GELU_BWD, pre)->dtype, T,
                 return call->attr.gelu.kind == GELU_ERF ? gelu_bwd<T, GELU_ERF>(call, rows)
                                                         : gelu_bwd<T, GELU_TANH>(call, rows));
}
