/* DIGEST: a warp a row. Integer sums have no order. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"

extern "C" {
#include "kernels/word_mix.h"
}

#define THREADS 256
#define ROWS    (THREADS / CUDA_WARP) /* of a block */

/* WHOLE: rows are whole words, hence aligned; else words are assembled from bytes. */
template <bool WHOLE> __global__ void digest_kernel(uint64_t *sums, const unsigned char *x, int64_t rows, int64_t bytes)
{
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / CUDA_WARP, words = row_words(bytes);
    if (row >= rows) return;
    const unsigned char *from = x + row * bytes;
    uint64_t sum = 0;
    for (int64_t i = threadIdx.x % CUDA_WARP; i < words; i += CUDA_WARP) {
        uint64_t word = 0;
        if (WHOLE)
            word = reinterpret_cast<const uint64_t *>(from)[i];
        else
            for (int64_t b = 0; b < 8 && 8 * i + b < bytes; b++) word |= (uint64_t)from[8 * i + b] << 8 * b;
        sum += word_mix(word, (uint64_t)(row * words + i));
    }
    sum = warp_sum(sum);
    if (threadIdx.x % CUDA_WARP == 0) sums[row] = sum;
}

Status cuda_digest(const OpCall *call, const RowCounts *rows)
{
    const Operand *x = IN(call, DIGEST, x);
    uint64_t *sums = cuda_data<uint64_t>(OUT(call, DIGEST, sums));
    const unsigned char *from = cuda_data<const unsigned char>(x);
    int64_t n = rows_in(x->rows, rows), bytes = x->cols * (int64_t)dtype_size(x->dtype);
    unsigned blocks = cuda_blocks(n, ROWS);
    if (bytes % 8 == 0) return CUDA_LAUNCH((digest_kernel<true>), blocks, THREADS, 0, sums, from, n, bytes);
    return CUDA_LAUNCH((digest_kernel<false>), blocks, THREADS, 0, sums, from, n, bytes);
}
