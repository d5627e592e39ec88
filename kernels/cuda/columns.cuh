/* Column sums over rows, for gradients of biases and LayerNorms: a kernel leaves sums of parts of the rows, and a
   second adds the parts. The order of each sum depends on the number of rows alone. */
#pragma once

#include "kernels/cuda/kernel.cuh"

/* A block sums 256 columns, eight a lane, of 128 rows, of which each of its eight warps takes every eighth. */
static const int COLUMNS_ROWS = 128, COLUMNS_WARPS = 8, COLUMNS_THREADS = COLUMNS_WARPS * CUDA_WARP;
static const int COLUMNS_BLOCK = 8 * CUDA_WARP;

static inline int64_t columns_parts(int64_t rows) { return (rows + COLUMNS_ROWS - 1) / COLUMNS_ROWS; }
static inline size_t columns_scratch(int64_t rows, int64_t cols)
{
    return (size_t)(columns_parts(rows) * cols) * sizeof(float);
}
static inline dim3 columns_grid(int64_t rows, int64_t cols)
{
    return dim3(cuda_blocks(cols, COLUMNS_BLOCK), (unsigned)columns_parts(rows));
}

/* The place of a thread: its first column, and the rows that it takes. */
struct ColumnsPlace {
    int64_t column, row, end;
};
__device__ static inline ColumnsPlace columns_place(int64_t rows)
{
    int64_t first = (int64_t)blockIdx.y * COLUMNS_ROWS, end = first + COLUMNS_ROWS;
    return {(int64_t)blockIdx.x * COLUMNS_BLOCK + threadIdx.x % CUDA_WARP * 8, first + threadIdx.x / CUDA_WARP,
            end < rows ? end : rows};
}
/* The threads' sums to parts (columns_parts, cols), by all threads of the block. `shared`: COLUMNS_BLOCK a warp. */
__device__ static inline void columns_leave(const float sum[8], float *parts, int64_t cols, float *shared)
{
    float *mine = shared + threadIdx.x / CUDA_WARP * COLUMNS_BLOCK + threadIdx.x % CUDA_WARP * 8;
    CUDA_UNROLL for (int i = 0; i < 8; i++) mine[i] = sum[i];
    __syncthreads();
    int64_t column = (int64_t)blockIdx.x * COLUMNS_BLOCK + threadIdx.x;
    if (column >= cols) return;
    float all = 0;
    CUDA_UNROLL for (int w = 0; w < COLUMNS_WARPS; w++) all += shared[w * COLUMNS_BLOCK + threadIdx.x];
    parts[blockIdx.y * cols + column] = all;
}

/* ---- columns.cu ---- */

enum { COLUMNS_SUMS = 3 }; /* at most, of one kernel */

/* Each of `to` (cols; NULL from the first that is absent) += the sums over n of its parts; parts (n, present, cols).
   Bit i of `begun`: to[i] counts as 0. */
struct ColumnsTo {
    float *to[COLUMNS_SUMS];
    int begun = 0;
};
Status columns_add_parts(const float *parts, int64_t n, int64_t cols, ColumnsTo to);

/* db += column sums of x (rows, cols), in a pass of its own; `begun`: db counts as 0. `scratch`: columns_scratch. */
Status columns_add(const Operand *x, const RowCounts *rows, const Operand *db, bool begun, void *scratch);
