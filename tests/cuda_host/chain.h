/* For the tests of the twins of products from shared memory, wgmma's and tcgen05's: a chain of products of small
   matrices, whose tiles lie in shared memory as the PTX ISA says, and its results by loops. */
#ifndef CAIRN_TESTS_CUDA_HOST_CHAIN_H
#define CAIRN_TESTS_CUDA_HOST_CHAIN_H

#include "cuda_host/testing_host.h"

#include "kernels/cuda/wgmma.cuh"

constexpr int side = 64;

template <typename T, int rows, int outputs> struct Chain {
    alignas(16) T a[rows][side], b[side][side], c[side][side];
    float out[outputs][rows][side];
};

template <typename T, int rows, int outputs> static void chain_fill(Chain<T, rows, outputs> *m)
{
    uint64_t seed = 7;
    for (T *x = &m->a[0][0]; x < reinterpret_cast<T *>(m->out); x++) *x = from_float<T>(testing_value(&seed));
}

/* The tiles of a (rows), b and c in shared memory, by all threads of the block; nothing is published yet. */
template <int rows, typename T> __device__ static inline void chain_copy(T *tiles, const T *a, const T *b, const T *c)
{
    /* Where the 16-byte chunks of a 128-byte row are, for the eight rows of the pattern (PTX ISA, "128B swizzling"). */
    static const int place_of_chunk[8][8] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
        {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0},
    };
    for (int i = static_cast<int>(threadIdx.x); i < (rows + 2 * side) * 8; i += static_cast<int>(blockDim.x)) {
        int row = i / 8, chunk = place_of_chunk[row % 8][i % 8];
        const T *from = row < rows          ? a + i * 8
                        : row < rows + side ? b + i * 8 - rows * side
                                            : c + i * 8 - (rows + side) * side;
        copy_async(tiles + row * side + chunk * 8, from);
    }
    copy_async_commit();
    copy_async_wait<0>();
}

/* Whether d (rows, 64) is Σ left(i, k)·right(k, j), added in the order of k, as the twins do. */
template <typename Left, typename Right>
static bool chain_is_product(const float (*d)[side], int rows, Left left, Right right)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < side; j++) {
            float sum = 0;
            for (int k = 0; k < side; k++) sum += left(i, k) * right(k, j);
            if (memcmp(&sum, &d[i][j], sizeof sum) != 0) return false;
        }
    return true;
}

__global__ static void chain_descriptor_kernel(uint64_t (*describe)(const void *), uint64_t *descriptor,
                                               uint32_t *address)
{
    CUDA_SHARED_DYNAMIC(__half, shared);
    __half *tile = wgmma_align(shared) + 8192 / sizeof(__half);
    *address = wgmma_shared_address(tile);
    *descriptor = describe(tile);
}

/* A tile's descriptor, whose addresses and offsets are right: those bits that both generations have. */
static inline uint64_t chain_descriptor(uint64_t (*describe)(const void *), unsigned leading)
{
    uint64_t d;
    uint32_t address;
    assert_ok(CUDA_LAUNCH((chain_descriptor_kernel), 1, 1, 20000, describe, &d, &address));
    assert_int_equal(address % 1024, 0);
    assert_int_equal(d & 0x3fff, address / 16);
    assert_int_equal(d >> 16 & 0x3fff, leading);   /* leading dimension's byte offset, in 16 bytes */
    assert_int_equal(d >> 32 & 0x3fff, 1024 / 16); /* stride dimension's: from eight rows to the next eight */
    assert_int_equal(d >> 49 & 7, 0);              /* base offset */
    assert_int_equal(d & (3ull << 14 | 3ull << 30), 0);
    return d;
}

#endif
