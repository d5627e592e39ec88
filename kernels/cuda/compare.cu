/* COMPARE: one block, because a step has few differences, or none, and sums are few. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"

#define THREADS 256

__global__ void compare_kernel(AuditFound *found, const int64_t *a, const int64_t *b, int64_t rows, int64_t tensor)
{
    CUDA_SHARED(int64_t, counts, [THREADS]);
    CUDA_SHARED(int64_t, firsts, [THREADS]);
    int64_t count = 0, first = rows;
    for (int64_t r = threadIdx.x; r < rows; r += THREADS)
        if (a[r] != b[r]) {
            if (count == 0) first = r;
            count++;
        }
    counts[threadIdx.x] = count;
    firsts[threadIdx.x] = first;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS; i++) {
        count += counts[i];
        if (firsts[i] < first) first = firsts[i];
    }
    if (count == 0) return;
    if (found->rows == 0) {
        found->tensor = tensor;
        found->row = first;
    }
    found->rows += count;
}

Status cuda_compare(const OpCall *call, const RowCounts *rows)
{
    const Operand *first = IN(call, COMPARE, first);
    return CUDA_LAUNCH((compare_kernel), 1, THREADS, 0, cuda_data<AuditFound>(OUT(call, COMPARE, audit)),
                       cuda_data<const int64_t>(first), cuda_data<const int64_t>(IN(call, COMPARE, again)),
                       rows_in(first->rows, rows), (int64_t)call->attr.compare.tensor);
}
