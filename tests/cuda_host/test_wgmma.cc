/* The twins of kernels/cuda/wgmma.cuh: products of tiles that lie in shared memory as the PTX ISA says, against loops;
   results that are there after their wait and not before; and the faults of those who break the rules. */
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

/* A tile's descriptor, whose addresses and offsets are right. */
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

/* ---- the descriptor, bit by bit ---- */

static void test_descriptor(void **state)
{
    (void)state;
    uint64_t d = chain_descriptor(wgmma_tile, 1);           /* the leading offset is not used */
    assert_int_equal(d >> 62, 1);                           /* 128-byte swizzle */
    assert_int_equal(d & (7ull << 46 | 0x3ffull << 52), 0); /* reserved */
}

/* ---- products ---- */

enum {
    QUIET,
    NO_FENCE,
    NO_PUBLISH,
    NO_COMMIT,
    TOUCHED,
    READ_EARLY,
    ONE_WARP_LESS,
    MISPLACED,
    OVERWRITTEN,
    PUBLISHED_BY_ANOTHER
};

/* x (64, 64) = a·bᵀ, then y = round(x)·c, by the warpgroup `which` of the block, as attention does it; and, as its
   backward does, z = aᵀ·c, and a·bᵀ once more in halves of 32 columns. */
enum { X, Y, Z, HALVES, OUTPUTS };
template <typename T>
__global__ static void chain_kernel(const T *a, const T *b, const T *c, float *out, int which, int wrong)
{
    CUDA_SHARED_DYNAMIC(T, shared);
    T *tiles = wgmma_align(shared) + (wrong == MISPLACED ? 512 / sizeof(T) : 0);
    int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    chain_copy<side>(tiles, a, b, c);
    if (wrong != NO_PUBLISH) wgmma_publish();
    __syncthreads();
    if (wrong == PUBLISHED_BY_ANOTHER) {
        if (thread == 64) tiles[side * side] = from_float<T>(100); /* b[0][0] */
        if (thread == 0) wgmma_publish();
        __syncthreads();
    }
    if (warp / 4 != which || (wrong == ONE_WARP_LESS && warp % 4 == 2)) return;

    float x[32], y[32] = {};
    uint32_t probs[4][4];
    uint64_t da = wgmma_tile(tiles), db = wgmma_tile(tiles + side * side), dc = wgmma_tile(tiles + 2 * side * side);
    if (wrong != NO_FENCE) wgmma_fence();
    wgmma_64xNx64<T, 64>(x, da, db);
    if (wrong != NO_COMMIT) wgmma_commit();
    if (wrong == TOUCHED) x[5] = 1;
    if (wrong == OVERWRITTEN && warp % 4 == 0 && lane == 0) tiles[side * side] = from_float<T>(100); /* b[0][0] */
    if (wrong != READ_EARLY) wgmma_wait<64>(x);
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++) probs[t][j] = mma_pair<T>(x[8 * t + 2 * j], x[8 * t + 2 * j + 1]);
    wgmma_fence<4>(y, probs[0]);
    wgmma_64x64_turned<T, 4>(y, probs, dc);
    wgmma_commit();
    wgmma_wait<64>(y);
    float z[32] = {}, halves[2][16];
    wgmma_fence<0>(z, nullptr);
    wgmma_64x64x64_both_turned<T>(z, da, dc);
    for (int h = 0; h < 2; h++) wgmma_64xNx64<T, 32>(halves[h], da, db + h * 2 * WGMMA_BELOW);
    wgmma_commit();
    wgmma_wait<64>(z);
    for (int i = 0; i < 32; i++) {
        int row = warp % 4 * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const float values[OUTPUTS] = {x[i], y[i], z[i], halves[i / 16][i % 16]};
        for (int j = 0; j < OUTPUTS; j++) out[(j * side + row) * side + column] = values[j];
    }
}

template <typename T> using Square = Chain<T, side, OUTPUTS>;

template <typename T> static Status run(Square<T> *m, int groups, int which, int wrong)
{
    chain_fill(m);
    return CUDA_LAUNCH((chain_kernel<T>), 1, static_cast<unsigned>(groups * WGMMA_THREADS), 3 * sizeof m->a + 2048,
                       &m->a[0][0], &m->b[0][0], &m->c[0][0], &m->out[0][0][0], which, wrong);
}

template <typename T> static bool is_right(const Square<T> *m)
{
    auto a = [&](int i, int k) { return to_float(m->a[i][k]); };
    auto a_turned = [&](int i, int k) { return to_float(m->a[k][i]); };
    auto b_turned = [&](int k, int j) { return to_float(m->b[j][k]); };
    auto c = [&](int k, int j) { return to_float(m->c[k][j]); };
    auto probs = [&](int i, int k) { return rounded<T>(m->out[X][i][k]); };
    return chain_is_product(m->out[X], side, a, b_turned) && chain_is_product(m->out[HALVES], side, a, b_turned) &&
           chain_is_product(m->out[Y], side, probs, c) && chain_is_product(m->out[Z], side, a_turned, c);
}

template <typename T> static void products_are_right()
{
    static Square<T> m;
    for (int launch = 0; launch < 3; launch++)
        for (int which = 0; which < 2; which++) {
            assert_ok(run(&m, 2, which, QUIET));
            assert_true(is_right(&m));
        }
}

static void test_products(void **state)
{
    (void)state;
    products_are_right<__nv_bfloat16>();
    products_are_right<__half>();
}

/* ---- rules ---- */

static void test_faults(void **state)
{
    (void)state;
    static Square<__half> m;
    static const struct {
        int wrong;
        const char *message;
    } faults[] = {
        {NO_FENCE, "has not called wgmma_fence"},
        {NO_PUBLISH, "were copied, but not published"},
        {NO_COMMIT, "wgmma_wait before wgmma_commit"},
        {TOUCHED, "changed its d before wgmma_wait"},
        {ONE_WARP_LESS, "for warp 2 of its warpgroup, which has ended"},
        {MISPLACED, "512 bytes behind a multiple of 1024"},
        {OVERWRITTEN, "were written, but not all threads published (wgmma_publish)"},
        {PUBLISHED_BY_ANOTHER, "were written, but not all threads published (wgmma_publish)"},
    };
    for (const auto &fault : faults) {
        assert_status(run(&m, 1, 0, fault.wrong), E_FAIL);
        assert_message(fault.message);
    }
}

/* Not a fault, but a wrong result. */
static void test_too_early(void **state)
{
    (void)state;
    static Square<__half> m;
    assert_ok(run(&m, 1, 0, READ_EARLY));
    assert_true(std::isnan(m.out[Y][3][3]));
    assert_ok(run(&m, 1, 0, QUIET));
    assert_true(is_right(&m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
