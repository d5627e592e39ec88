/* The twins of kernels/cuda/mma.cuh: products of tiles against loops, matrices from shared memory in the places that
   the header gives for A and B, copies that are there after their wait and not before. */
#include "cuda_host/testing_host.h"

#include <vector>

constexpr int launches = 5;

/* ---- one product, fragments filled as in the header ---- */

/* turing: by what Turing has. */
template <typename T, bool turing>
__global__ static void product_kernel(const T *a, const T *b, const float *c, float *d) // (16, 16), (16, 8), (16, 8)
{
    int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    uint32_t fa[4], fb[2];
    float fc[4];
    for (int r = 0; r < 4; r++) {
        const T *from = a + (g + r % 2 * 8) * 16 + 2 * t + r / 2 * 8;
        fa[r] = mma_pair<T>(to_float(from[0]), to_float(from[1]));
    }
    for (int r = 0; r < 2; r++) {
        const T *from = b + (2 * t + r * 8) * 8 + g;
        fb[r] = mma_pair<T>(to_float(from[0]), to_float(from[8]));
    }
    for (int j = 0; j < 4; j++) fc[j] = c[(g + j / 2 * 8) * 8 + 2 * t + j % 2];
    if (turing)
        mma_by_halves(fc, fa, fb, fc,
                      [](float *to, const uint32_t *x, uint32_t y, const float *z) { mma_f16_16x8x8(to, x, y, z); });
    else
        mma_16x8x16<T>(fc, fa, fb, fc);
    for (int j = 0; j < 4; j++) d[(g + j / 2 * 8) * 8 + 2 * t + j % 2] = fc[j];
}

template <typename T, bool turing> static void products_are_right()
{
    uint64_t seed = 3;
    for (int launch = 0; launch < launches; launch++) {
        T a[16][16], b[16][8];
        float c[16][8], d[16][8];
        for (int i = 0; i < 16; i++) {
            for (int k = 0; k < 16; k++) a[i][k] = from_float<T>(testing_value(&seed));
            for (int j = 0; j < 8; j++) b[i][j] = from_float<T>(testing_value(&seed));
            for (int j = 0; j < 8; j++) c[i][j] = testing_value(&seed);
        }
        assert_ok(CUDA_LAUNCH((product_kernel<T, turing>), 1, 32, 0, &a[0][0], &b[0][0], &c[0][0], &d[0][0]));
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                float sum = c[i][j];
                for (int k = 0; k < 16; k++) sum += to_float(a[i][k]) * to_float(b[k][j]);
                assert_memory_equal(&sum, &d[i][j], sizeof sum);
            }
    }
}

static void test_products(void **state)
{
    (void)state;
    products_are_right<__nv_bfloat16, false>();
    products_are_right<__half, false>();
    products_are_right<__half, true>();
}

/* ---- o = round(q·kᵀ)·v for 16 queries and 16 keys of width 32, as attention does it ---- */

constexpr int width = 32, pitch = width + 8; /* values between rows in shared memory; rows on 16 bytes */

template <typename T, bool turing> __global__ static void chain_kernel(const T *q, const T *k, const T *v, float *o)
{
    CUDA_SHARED(__align__(16) T, tiles, [3][16][pitch]);
    int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const T *from[3] = {q, k, v};
    for (int tile = 0; tile < 3; tile++)
        for (int i = lane; i < 16 * width / 8; i += 32) {
            T *to = &tiles[tile][i / (width / 8)][i % (width / 8) * 8];
            if (turing)
                copy_by_registers(to, from[tile] + i * 8, true);
            else
                copy_async(to, from[tile] + i * 8);
        }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    float s[2][4] = {}, out[width / 8][4] = {};
    uint32_t a[4], b[2][2];
    for (int part = 0; part < width; part += 16) {
        mma_load4(a, &tiles[0][lane % 16][part + lane / 16 * 8]);
        mma_load4(b[0], &tiles[1][lane % 8 + lane / 16 * 8][part + lane / 8 % 2 * 8]);
        for (int i = 0; i < 2; i++) mma_16x8x16<T>(s[i], a, b[i], s[i]);
    }
    for (int r = 0; r < 4; r++) a[r] = mma_pair<T>(s[r / 2][r % 2 * 2], s[r / 2][r % 2 * 2 + 1]);
    for (int part = 0; part < width; part += 16) {
        mma_load4_transposed(b[0], &tiles[2][lane % 16][part + lane / 16 * 8]);
        for (int i = 0; i < 2; i++) mma_16x8x16<T>(out[part / 8 + i], a, b[i], out[part / 8 + i]);
    }
    for (int n = 0; n < width / 8; n++)
        for (int j = 0; j < 4; j++) o[(g + j / 2 * 8) * width + n * 8 + 2 * t + j % 2] = out[n][j];
}

template <typename T, bool turing> static void chain_is_right()
{
    uint64_t seed = 5;
    alignas(16) T q[16][width], k[16][width], v[16][width];
    float o[16][width];
    T *tiles[3] = {&q[0][0], &k[0][0], &v[0][0]};
    for (T *tile : tiles)
        for (int i = 0; i < 16 * width; i++) tile[i] = from_float<T>(testing_value(&seed));
    assert_ok(CUDA_LAUNCH((chain_kernel<T, turing>), 1, 32, 0, &q[0][0], &k[0][0], &v[0][0], &o[0][0]));
    for (int i = 0; i < 16; i++) {
        float p[16];
        for (int j = 0; j < 16; j++) {
            float sum = 0;
            for (int d = 0; d < width; d++) sum += to_float(q[i][d]) * to_float(k[j][d]);
            p[j] = rounded<T>(sum);
        }
        for (int d = 0; d < width; d++) {
            float sum = 0;
            for (int j = 0; j < 16; j++) sum += p[j] * to_float(v[j][d]);
            assert_memory_equal(&sum, &o[i][d], sizeof sum);
        }
    }
}

static void test_products_of_products(void **state)
{
    (void)state;
    chain_is_right<__nv_bfloat16, false>();
    chain_is_right<__half, false>();
    chain_is_right<__half, true>();
}

/* ---- which draws are a lane's ---- */

static void test_dropout_draws(void **state)
{
    (void)state;
    static const int draw[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}}; /* of c0 and c1, as in the header */
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++) {
                int g = lane / 4, t = lane % 4;
                assert_int_equal(dropout_tile_query(g, draw[i][j]), g + j / 2 * 8);
                assert_int_equal(dropout_tile_key(t, draw[i][j]), i * 8 + 2 * t + j % 2);
            }
}

/* ---- copies ---- */

enum { BEFORE_ANY, AFTER_FIRST, NOT_COMMITTED, AFTER_ALL, NOT_THERE };

__global__ static void copy_kernel(const int *x, int *found) // (8), (5, 8)
{
    CUDA_SHARED(__align__(16) int, held, [3][4]);
    copy_async(held[0], x);
    copy_async_commit();
    copy_async(held[1], x + 4);
    copy_async_commit();
    for (int i = 0; i < 8; i++) found[BEFORE_ANY * 8 + i] = held[i / 4][i % 4];
    copy_async_wait<1>();
    for (int i = 0; i < 8; i++) found[AFTER_FIRST * 8 + i] = held[i / 4][i % 4];
    copy_async(held[2], x, false);
    copy_async_wait<0>();
    for (int i = 0; i < 8; i++) found[AFTER_ALL * 8 + i] = held[i / 4][i % 4];
    for (int i = 0; i < 4; i++) found[NOT_COMMITTED * 8 + i] = held[2][i];
    copy_async_commit();
    copy_async_wait<0>();
    for (int i = 0; i < 4; i++) found[NOT_THERE * 8 + i] = held[2][i];
}

static void test_copies(void **state)
{
    (void)state;
    alignas(16) int x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int found[5][8];
    bool early[2] = {false, false};
    for (int launch = 0; launch < launches; launch++) {
        assert_ok(CUDA_LAUNCH((copy_kernel), 2, 1, 0, x, &found[0][0]));
        for (int i = 0; i < 8; i++) {
            early[found[BEFORE_ANY][i] == x[i]] = true;
            if (found[BEFORE_ANY][i] != x[i]) assert_int_equal(found[BEFORE_ANY][i], -1);
            if (i < 4 || found[AFTER_FIRST][i] != -1) assert_int_equal(found[AFTER_FIRST][i], x[i]);
            assert_int_equal(found[AFTER_ALL][i], x[i]);
            if (i >= 4) continue;
            if (found[NOT_COMMITTED][i] != 0) assert_int_equal(found[NOT_COMMITTED][i], -1);
            assert_int_equal(found[NOT_THERE][i], 0);
        }
    }
    assert_true(early[false] && early[true]); /* mma_host.cc: by chance */
}

/* ---- faults ---- */

__global__ static void misplaced_kernel(const char *global, int from, int to, int row)
{
    CUDA_SHARED(__align__(16) unsigned char, held, [640]);
    uint32_t r[4];
    copy_async(held + to, global + from);
    mma_load4(r, row < 0 ? global : reinterpret_cast<const char *>(held) + row + threadIdx.x * 16);
}

__global__ static void part_of_warp_kernel(float *d)
{
    float c[4] = {0, 0, 0, 0};
    uint32_t a[4] = {0, 0, 0, 0};
    if (threadIdx.x != 9) mma_bf16_16x8x16(c, a, a, c);
    d[threadIdx.x] = c[0];
}

static void test_faults(void **state)
{
    (void)state;
    alignas(16) static char global[64];
    float d[32];
    assert_ok(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 16, 624, 128));
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 8, 0, 0), E_FAIL);
    assert_message("copy_async: the global address");
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 0, 8, 0), E_FAIL);
    assert_message("copy_async: the shared address");
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 0, 632, 0), E_FAIL);
    assert_message("are not in one shared array of this block");
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 0, 0, 4), E_FAIL);
    assert_message("ldmatrix: the shared address");
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 0, 0, 256), E_FAIL);
    assert_message("are not in one shared array of this block");
    assert_status(CUDA_LAUNCH((misplaced_kernel), 1, 32, 0, global, 0, 0, -1), E_FAIL);
    assert_message("are not in one shared array of this block");
    assert_status(CUDA_LAUNCH((part_of_warp_kernel), 1, 32, 0, d), E_FAIL);
    assert_message("waits in mma_bf16_16x8x16");
    assert_message("for lane 9, which has ended");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),      cmocka_unit_test(test_products_of_products),
        cmocka_unit_test(test_dropout_draws), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
