/* Column sums over rows: a pass over a matrix, and the sum of parts. */
#include "kernels/cuda/columns.cuh"

template <typename T>
__global__ void __launch_bounds__(COLUMNS_THREADS) columns_kernel(const T *x, float *parts, int64_t rows, int64_t cols)
{
    CUDA_SHARED(float, sums, [COLUMNS_WARPS * COLUMNS_BLOCK]);
    ColumnsPlace p = columns_place(rows);
    bool whole = cols % 8 == 0 && p.column + 8 <= cols && reinterpret_cast<uintptr_t>(x) % 16 == 0;
    float sum[8] = {};
    for (int64_t r = p.row; r < p.end; r += COLUMNS_WARPS) {
        float v[8];
        if (whole) {
            load8(x + r * cols + p.column, v);
            CUDA_UNROLL for (int i = 0; i < 8; i++) sum[i] += v[i];
        } else {
            CUDA_UNROLL for (int i = 0; i < 8; i++) if (p.column + i < cols) sum[i] +=
                to_float(x[r * cols + p.column + i]);
        }
    }
    columns_leave(sum, parts, cols, sums);
}

Status columns_add(const Operand *x, const RowCounts *rows, const Operand *db, bool begun, void *scratch)
{
    int64_t n = rows_in(x->rows, rows);
    float *parts = static_cast<float *>(scratch);
    CUDA_BY_TYPE(x->dtype, T,
                 TRY(CUDA_LAUNCH((columns_kernel<T>), columns_grid(n, x->cols), COLUMNS_THREADS, 0,
                                 cuda_data<const T>(x), parts, n, x->cols)));
    return columns_add_parts(parts, columns_parts(n), x->cols, {{cuda_data<float>(db)}, begun});
}

/* ---- the sum of parts: a block has 32 columns, a warp every sixteenth part ---- */

enum { PART_WARPS = 16, PART_THREADS = PART_WARPS * CUDA_WARP };

__global__ void __launch_bounds__(PART_THREADS)
    columns_add_parts_kernel(const float *parts, int64_t n, int64_t cols, int64_t all, ColumnsTo to)
{
    CUDA_SHARED(float, sums, [PART_WARPS][CUDA_WARP]);
    int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int64_t column = (int64_t)blockIdx.x * CUDA_WARP + lane; /* of all */
    float sum = 0;
    if (column < all) {
        CUDA_UNROLL for (int64_t i = warp; i < n; i += PART_WARPS) sum += parts[i * all + column];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= all) return;
    sum = 0;
    CUDA_UNROLL for (int w = 0; w < PART_WARPS; w++) sum += sums[w][lane];
    CUDA_UNROLL for (int i = 0; i < COLUMNS_SUMS; i++)
    {
        if (column / cols != i) continue;
        float *place = &to.to[i][column % cols];
        *place = (to.begun >> i & 1 ? 0.0f : *place) + sum;
    }
}

Status columns_add_parts(const float *parts, int64_t n, int64_t cols, ColumnsTo to)
{
    int64_t present = 0;
    while (present < COLUMNS_SUMS && to.to[present]) present++;
    return CUDA_LAUNCH((columns_add_parts_kernel), cuda_blocks(present * cols, CUDA_WARP), PART_THREADS, 0, parts, n,
                       cols, present * cols, to);
}
