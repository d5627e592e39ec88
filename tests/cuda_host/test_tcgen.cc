/* The twins of kernels/cuda/tcgen.cuh: products of tiles that lie in shared memory as the PTX ISA says, and of tensor
   memory, against loops; and the faults of those who break the rules. */
#include "cuda_host/chain.h"

#include "kernels/cuda/tcgen.cuh"

constexpr int rows = 128;

/* ---- the descriptors, bit by bit ---- */

static uint64_t two_tiles(const void *tile) { return tcgen_tiles(tile, 16384); }

static void test_descriptors(void **state)
{
    (void)state;
    for (int two = 0; two < 2; two++) {
        uint64_t d = two ? chain_descriptor(two_tiles, 16384 / 16) : chain_descriptor(tcgen_tile, 1); /* 1: not used */
        assert_int_equal(d >> 46 & 7, 1);                                                             /* fixed */
        assert_int_equal(d >> 52 & 0x1ff, 0); /* relative offsets; fixed */
        assert_int_equal(d >> 61, 2);         /* 128-byte swizzle */
    }
    for (int i = 0; i < 8; i++) {
        bool bf16 = i & 1, a_turned = i & 2, b_turned = i & 4;
        uint32_t x =
            bf16 ? tcgen_instruction<__nv_bfloat16>(a_turned, b_turned) : tcgen_instruction<__half>(a_turned, b_turned);
        assert_int_equal(x & 0xf, 0);        /* dense, no saturation */
        assert_int_equal(x >> 4 & 3, 1);     /* d: fp32 */
        assert_int_equal(x >> 7 & 7, bf16);  /* a */
        assert_int_equal(x >> 10 & 7, bf16); /* b */
        assert_int_equal(x >> 13 & 3, 0);    /* signs */
        assert_int_equal(x >> 15 & 1, a_turned);
        assert_int_equal(x >> 16 & 1, b_turned);
        assert_int_equal(x >> 17 & 0x3f, 64 / 8); /* n */
        assert_int_equal(x >> 24 & 0x1f, 128 / 16);
        assert_int_equal(x & (1u << 6 | 1u << 23 | 7u << 29), 0);
    }
}

/* ---- products ---- */

enum {
    QUIET,
    NO_PUBLISH,
    NO_BARRIER,
    NO_COMMIT,
    NO_WAIT,
    NO_AFTER,
    NO_STORED,
    NO_BEFORE,
    NO_AFTER_STORE,
    TOO_SOON,
    OTHER_LANES,
    OTHER_COLUMNS,
    NOT_FREED,
    FREED_BY_ANOTHER,
    NOT_WAITED_FOR,
    MISPLACED,
    OVERWRITTEN,
    PUBLISHED_BY_ANOTHER
};

/* x (128, 64) = a·bᵀ, then y = round(x)·c, as attention does it; and, as its backward does, z = (b, c)ᵀ·a, of 64 rows
   of a, in the place of x. */
enum { X, Y, Z, OUTPUTS };
template <typename T> __global__ static void chain_kernel(const T *a, const T *b, const T *c, float *out, int wrong)
{
    CUDA_SHARED_DYNAMIC(T, shared);
    CUDA_SHARED(uint64_t, barrier, [1]);
    CUDA_SHARED(uint32_t, tensor, [1]);
    T *left = wgmma_align(shared) + (wrong == MISPLACED ? 512 / sizeof(T) : 0), *right = left + rows * side,
      *values = right + side * side;
    int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    chain_copy<rows>(left, a, b, c);
    if (wrong != NO_PUBLISH) tcgen_publish();
    if (warp == 1) tcgen_alloc(tensor, 128);
    if (thread == 0 && wrong != NO_BARRIER) tcgen_barrier_init(barrier);
    tcgen_before_sync();
    __syncthreads();
    tcgen_after_sync();
    if (wrong == PUBLISHED_BY_ANOTHER) {
        if (thread == 64) right[0] = from_float<T>(100); /* b[0][0] */
        if (thread == 0) tcgen_publish();
        __syncthreads();
    }

    uint32_t x = *tensor, y = x + side, own = tcgen_own(x, wrong == OTHER_LANES ? warp + 1 : warp);
    if (thread == 64) {
        uint64_t da = tcgen_tile(left), db = tcgen_tile(right);
        for (int k = 0; k < 4; k++) tcgen_128x64x16<T>(x, da + k * WGMMA_RIGHT, db + k * WGMMA_RIGHT, k > 0);
        if (wrong != NO_COMMIT) tcgen_commit(barrier);
        if (wrong == OVERWRITTEN) right[0] = from_float<T>(100); /* b[0][0] */
        if (wrong == TOO_SOON) tcgen_128x64x16_turned<T>(y, x, tcgen_tile(values), false);
    }
    if (wrong != NO_WAIT || thread == 0) tcgen_wait(barrier, 0);
    if (wrong != NO_AFTER) tcgen_after_sync();
    float sums[64];
    tcgen_load64(sums, own + (wrong == OTHER_COLUMNS ? 96u : 0u));
    float *x_out = out + thread * side, *y_out = x_out + rows * side, *z_out = y_out + rows * side;
    for (int i = 0; i < side; i++) x_out[i] = sums[i];
    for (int t = 0; t < 4; t++) {
        uint32_t pairs[8];
        for (int j = 0; j < 8; j++) pairs[j] = mma_pair<T>(sums[16 * t + 2 * j], sums[16 * t + 2 * j + 1]);
        tcgen_store8(own + static_cast<uint32_t>(8 * t), pairs);
    }
    if (wrong != NO_STORED) tcgen_stored();
    if (wrong != NO_BEFORE) tcgen_before_sync();
    __syncthreads();
    if (thread == 64) {
        if (wrong != NO_AFTER_STORE) tcgen_after_sync();
        for (int t = 0; t < 4; t++)
            tcgen_128x64x16_turned<T>(y, x + static_cast<uint32_t>(8 * t), tcgen_tile(values) + t * WGMMA_BELOW, t > 0);
        if (wrong != NOT_WAITED_FOR) tcgen_commit(barrier);
    }
    if (wrong != NOT_WAITED_FOR) {
        tcgen_wait(barrier, 1);
        tcgen_after_sync();
        for (unsigned j = 0; j < side; j += 16) tcgen_load16(y_out + j, own + side + j);
        tcgen_before_sync();
        __syncthreads();
        if (thread == 64) {
            tcgen_after_sync();
            for (int k = 0; k < 4; k++)
                tcgen_128x64x16_both_turned<T>(x, tcgen_tiles(right, side * side * sizeof(T)) + k * WGMMA_BELOW,
                                               tcgen_tile(left) + k * WGMMA_BELOW, k > 0);
            tcgen_commit(barrier);
        }
        tcgen_wait(barrier, 0);
        tcgen_after_sync();
        for (unsigned j = 0; j < side; j += 16) tcgen_load16(z_out + j, own + j);
    }
    tcgen_before_sync();
    __syncthreads();
    tcgen_after_sync();
    if (warp == (wrong == FREED_BY_ANOTHER ? 2 : 1) && wrong != NOT_FREED) tcgen_free(x, 128);
}

template <typename T> using Tall = Chain<T, rows, OUTPUTS>;

template <typename T> static Status run(Tall<T> *m, int wrong)
{
    chain_fill(m);
    return CUDA_LAUNCH((chain_kernel<T>), 1, rows, (rows + 2 * side) * side * sizeof(T) + 2048, &m->a[0][0],
                       &m->b[0][0], &m->c[0][0], &m->out[0][0][0], wrong);
}

template <typename T> static bool is_right(const Tall<T> *m)
{
    auto a = [&](int i, int k) { return to_float(m->a[i][k]); };
    auto b_turned = [&](int k, int j) { return to_float(m->b[j][k]); };
    auto c = [&](int k, int j) { return to_float(m->c[k][j]); };
    auto probs = [&](int i, int k) { return rounded<T>(m->out[X][i][k]); };
    auto both_turned = [&](int i, int k) { return to_float(i < side ? m->b[k][i] : m->c[k][i - side]); };
    return chain_is_product(m->out[X], rows, a, b_turned) && chain_is_product(m->out[Y], rows, probs, c) &&
           chain_is_product(m->out[Z], rows, both_turned, a);
}

template <typename T> static void products_are_right()
{
    static Tall<T> m;
    for (int launch = 0; launch < 4; launch++) { /* at other columns each time */
        assert_ok(run(&m, QUIET));
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
    static Tall<__half> m;
    static const struct {
        int wrong;
        const char *message, *or_else; /* whichever thread comes first */
    } faults[] = {
        {NO_PUBLISH, "were copied, but not published (tcgen_publish)", nullptr},
        {NO_BARRIER, "the barrier was not initialised", nullptr},
        {NO_COMMIT, "waits in tcgen_wait", nullptr},
        {NO_WAIT, "under way", "has not waited for the product with column"},
        {NO_AFTER, "or not called tcgen_after_sync since", nullptr},
        {NO_STORED, "has stored into tensor memory without tcgen_stored", nullptr},
        {NO_BEFORE, "without tcgen_before_sync since", nullptr},
        {NO_AFTER_STORE, "thread 64 has not called tcgen_after_sync since", nullptr},
        {TOO_SOON, "another product with these columns is under way", "without tcgen_before_sync"},
        {OTHER_LANES, "this warp has the lanes from", nullptr},
        {OTHER_COLUMNS, "of tensor memory are not allocated", nullptr},
        {NOT_FREED, "of tensor memory were not freed (tcgen_free)", nullptr},
        {FREED_BY_ANOTHER, "warp 1 allocated these columns", nullptr},
        {NOT_WAITED_FOR, "with these columns was not waited for", nullptr},
        {MISPLACED, "512 bytes behind a multiple of 1024", nullptr},
        {OVERWRITTEN, "were written, but not all threads published (tcgen_publish)", nullptr},
        {PUBLISHED_BY_ANOTHER, "were written, but not all threads published (tcgen_publish)", nullptr},
    };
    for (const auto &fault : faults) {
        assert_status(run(&m, fault.wrong), E_FAIL);
        const char *said = status_message();
        if (!strstr(said, fault.message) && !(fault.or_else && strstr(said, fault.or_else)))
            fail_msg("\"%s\" is not in \"%s\"", fault.message, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
