/* The twins of kernels/cuda/tcgen.cuh: products of tiles that lie in shared memory as the PTX ISA says, and of tensor
   memory, against loops; and the faults of those who break the rules. */
#include "cuda_host/testing_host.h"

#include "kernels/cuda/tcgen.cuh"

constexpr int rows = 128, side = 64;

/* ---- the descriptors, bit by bit ---- */

__global__ static void descriptor_kernel(uint64_t *descriptor, uint32_t *address, uint32_t instruction[4])
{
    CUDA_SHARED_DYNAMIC(__half, shared);
    __half *tile = wgmma_align(shared) + 8192 / sizeof(__half);
    *address = wgmma_shared_address(tile);
    *descriptor = tcgen_tile(tile);
    instruction[0] = tcgen_instruction<__half>(false);
    instruction[1] = tcgen_instruction<__nv_bfloat16>(false);
    instruction[2] = tcgen_instruction<__half>(true);
    instruction[3] = tcgen_instruction<__nv_bfloat16>(true);
}

static void test_descriptors(void **state)
{
    (void)state;
    uint64_t d;
    uint32_t address, instruction[4];
    assert_ok(CUDA_LAUNCH((descriptor_kernel), 1, 1, 20000, &d, &address, instruction));
    assert_int_equal(address % 1024, 0);
    assert_int_equal(d & 0x3fff, address / 16);
    assert_int_equal(d >> 16 & 0x3fff, 1);         /* leading dimension's byte offset: not used, 1 */
    assert_int_equal(d >> 32 & 0x3fff, 1024 / 16); /* stride dimension's: from eight rows to the next eight */
    assert_int_equal(d >> 46 & 7, 1);              /* fixed */
    assert_int_equal(d >> 49 & 7, 0);              /* base offset */
    assert_int_equal(d >> 52 & 0x1ff, 0);          /* relative offsets; fixed */
    assert_int_equal(d >> 61, 2);                  /* 128-byte swizzle */
    assert_int_equal(d & (3ull << 14 | 3ull << 30), 0);
    for (int i = 0; i < 4; i++) {
        uint32_t x = instruction[i], bf16 = i % 2, turned = i / 2;
        assert_int_equal(x & 0xf, 0);             /* dense, no saturation */
        assert_int_equal(x >> 4 & 3, 1);          /* d: fp32 */
        assert_int_equal(x >> 7 & 7, bf16);       /* a */
        assert_int_equal(x >> 10 & 7, bf16);      /* b */
        assert_int_equal(x >> 13 & 7, 0);         /* signs, a as it is stored */
        assert_int_equal(x >> 16 & 1, turned);    /* b */
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
    OVERWRITTEN
};

/* x (128, 64) = a·bᵀ, then y = round(x)·c, as attention does it; the second product's first half beforehand, so that
   the rest adds to it. */
template <typename T>
__global__ static void chain_kernel(const T *a, const T *b, const T *c, float *x_out, float *y_out, int wrong)
{
    CUDA_SHARED_DYNAMIC(T, shared);
    CUDA_SHARED(uint64_t, barrier, [1]);
    CUDA_SHARED(uint32_t, tensor, [1]);
    T *left = wgmma_align(shared) + (wrong == MISPLACED ? 512 / sizeof(T) : 0), *right = left + rows * side,
      *values = right + side * side;
    int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
    auto copy = [&](T *tile, const T *from, int n) {
        for (int i = thread; i < n * 8; i += rows) {
            int row = i / 8, chunk = i % 8 ^ row % 8; /* PTX ISA, "128B swizzling" */
            copy_async(tile + row * side + chunk * 8, from + i * 8);
        }
    };
    copy(left, a, rows);
    copy(right, b, side);
    copy(values, c, side);
    copy_async_commit();
    copy_async_wait<0>();
    if (wrong != NO_PUBLISH) tcgen_publish();
    if (warp == 1) tcgen_alloc<128>(tensor);
    if (thread == 0 && wrong != NO_BARRIER) tcgen_barrier_init(barrier);
    __syncthreads();
    tcgen_after_sync();

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
    for (int i = 0; i < side; i++) x_out[thread * side + i] = sums[i];
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
        for (unsigned j = 0; j < side; j += 16) tcgen_load16(y_out + thread * side + j, own + side + j);
    }
    tcgen_before_sync();
    __syncthreads();
    tcgen_after_sync();
    if (warp == (wrong == FREED_BY_ANOTHER ? 2 : 1) && wrong != NOT_FREED) tcgen_free<128>(x);
}

template <typename T> struct Chain {
    alignas(16) T a[rows][side], b[side][side], c[side][side];
    float x[rows][side], y[rows][side];
};

template <typename T> static Status run(Chain<T> *m, int wrong)
{
    uint64_t seed = 7;
    for (int i = 0; i < rows * side; i++) m->a[i / side][i % side] = from_float<T>(testing_value(&seed));
    for (int i = 0; i < side * side; i++) {
        m->b[i / side][i % side] = from_float<T>(testing_value(&seed));
        m->c[i / side][i % side] = from_float<T>(testing_value(&seed));
    }
    return CUDA_LAUNCH((chain_kernel<T>), 1, rows, (rows + 2 * side) * side * sizeof(T) + 2048, &m->a[0][0],
                       &m->b[0][0], &m->c[0][0], &m->x[0][0], &m->y[0][0], wrong);
}

/* Sums in the order of k, as the twin makes them. */
template <typename T> static bool is_right(const Chain<T> *m)
{
    for (int i = 0; i < rows; i++) {
        float probs[side];
        for (int j = 0; j < side; j++) {
            float sum = 0;
            for (int k = 0; k < side; k++) sum += to_float(m->a[i][k]) * to_float(m->b[j][k]);
            if (memcmp(&sum, &m->x[i][j], sizeof sum) != 0) return false;
            probs[j] = rounded<T>(sum);
        }
        for (int j = 0; j < side; j++) {
            float sum = 0;
            for (int k = 0; k < side; k++) sum += probs[k] * to_float(m->c[k][j]);
            if (memcmp(&sum, &m->y[i][j], sizeof sum) != 0) return false;
        }
    }
    return true;
}

template <typename T> static void products_are_right()
{
    static Chain<T> m;
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
    static Chain<__half> m;
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
    };
    for (const auto &fault : faults) {
        assert_status(run(&m, fault.wrong), E_FAIL);
        const char *said = status_message();
        if (!strstr(said, fault.message) && !(fault.or_else && strstr(said, fault.or_else)))
            fail_msg("\"%s\" is not in \"%s\"", fault.message, said);
    }
}

/* Not a fault, but a wrong result: products read their operands when a thread waits for them. */
static void test_too_early(void **state)
{
    (void)state;
    static Chain<__half> m;
    assert_ok(run(&m, OVERWRITTEN));
    assert_false(is_right(&m));
    assert_ok(run(&m, QUIET));
    assert_true(is_right(&m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
