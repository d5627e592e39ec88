/* The twins of kernels/cuda/wgmma.cuh: products of tiles that lie in shared memory as the PTX ISA says, against loops;
   results that are there after their wait and not before; and the faults of those who break the rules. */
#include "cuda_host/chain.h"

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
