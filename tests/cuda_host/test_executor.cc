/* The host executor runs kernels as CUDA would: indices, shared memory, barriers, shuffles, votes, graphs. An order
   that CUDA leaves open differs from launch to launch, so that a missing barrier shows. */
#include "cuda_host/testing_host.h"

#include <set>
#include <vector>

constexpr int launches = 20; /* each in another order */

/* ---- indices, arguments ---- */

__global__ static void count_kernel(int *count, short add, int64_t n)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int64_t i = static_cast<int64_t>(block) * (blockDim.x * blockDim.y * blockDim.z) + thread;
    if (i >= n) return;
    atomicAdd(&count[i], static_cast<int>(add));
}

static void test_indices(void **state)
{
    (void)state;
    constexpr int n = 5 * 3 * 2 * (7 * 4 * 3);
    std::vector<int> count(n + 1, 0);
    assert_ok(CUDA_LAUNCH((count_kernel), dim3(5, 3, 2), dim3(7, 4, 3), 0, count.data(), 2, n));
    for (int i = 0; i < n; i++) assert_int_equal(count[static_cast<size_t>(i)], 2);
    assert_int_equal(count[n], 0);
    assert_ok(CUDA_LAUNCH((count_kernel), 0, 32, 0, count.data(), 2, n));
    assert_ok(CUDA_LAUNCH((count_kernel), 1, 1024, 0, count.data(), 1, 1));
    assert_int_equal(count[0], 3);
}

/* ---- LayerNorm, of each type ---- */

template <typename T> __global__ static void norm_kernel(const T *x, T *y, int n)
{
    CUDA_SHARED(float, sums, [8]);
    const T *row = x + static_cast<int64_t>(blockIdx.x) * n;
    float mean = 0, variance = 0;
    for (int pass = 0; pass < 2; pass++) {
        float sum = 0;
        for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
            sum += pass ? (to_float(row[i]) - mean) * (to_float(row[i]) - mean) : to_float(row[i]);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++) sum += sums[w];
        __syncthreads();
        (pass ? variance : mean) = sum / static_cast<float>(n);
    }
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
        y[static_cast<int64_t>(blockIdx.x) * n + i] =
            from_float<T>((to_float(row[i]) - mean) * rsqrtf(variance + 1e-5f));
}

template <typename T> static void norm_is_right(double tolerance)
{
    constexpr int rows = 9, n = 200;
    uint64_t seed = 7;
    std::vector<T> x, y(rows * n), first;
    for (int i = 0; i < rows * n; i++) x.push_back(from_float<T>(testing_value(&seed)));
    for (int launch = 0; launch < launches; launch++) {
        assert_ok(CUDA_LAUNCH((norm_kernel<T>), rows, 128, 0, x.data(), y.data(), n));
        if (launch == 0) first = y;
        assert_memory_equal(y.data(), first.data(), y.size() * sizeof(T));
    }
    for (int r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < n; i++) mean += static_cast<double>(to_float(x[static_cast<size_t>(r * n + i)])) / n;
        for (int i = 0; i < n; i++) {
            double d = static_cast<double>(to_float(x[static_cast<size_t>(r * n + i)])) - mean;
            variance += d * d / n;
        }
        for (int i = 0; i < n; i++) {
            double expected =
                (static_cast<double>(to_float(x[static_cast<size_t>(r * n + i)])) - mean) / std::sqrt(variance + 1e-5);
            double found = static_cast<double>(to_float(y[static_cast<size_t>(r * n + i)]));
            assert_true(std::fabs(found - expected) <= tolerance * (1 + std::fabs(expected)));
        }
    }
}

static void test_layer_norm(void **state)
{
    (void)state;
    norm_is_right<float>(1e-6);
    norm_is_right<__nv_bfloat16>(0x1p-8);
    norm_is_right<__half>(0x1p-11);
}

/* ---- sums in two stages ---- */

__global__ static void partial_kernel(const float *x, float *partial, int64_t n)
{
    CUDA_SHARED_DYNAMIC(float, sums);
    int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    sums[threadIdx.x] = i < n ? x[i] : 0;
    for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

static void test_sums_keep_their_bits(void **state)
{
    (void)state;
    constexpr int64_t n = 5000;
    constexpr unsigned blocks = 79, threads = 64;
    std::vector<float> x(n), partial(blocks), sum(1);
    uint64_t seed = 11;
    double expected = 0;
    float first = 0;
    for (float &value : x) expected += static_cast<double>(value = testing_value(&seed));
    for (int launch = 0; launch < launches; launch++) {
        assert_ok(CUDA_LAUNCH((partial_kernel), blocks, threads, threads * sizeof(float), x.data(), partial.data(), n));
        assert_ok(CUDA_LAUNCH((partial_kernel), 1, 128, 128 * sizeof(float), partial.data(), sum.data(), blocks));
        if (launch == 0) first = sum[0];
        assert_memory_equal(&first, sum.data(), sizeof first);
    }
    assert_true(std::fabs(static_cast<double>(first) - expected) < 1e-4);
}

/* ---- shuffles and votes ---- */

__global__ static void shuffle_kernel(int *found) // (64, 9)
{
    int thread = static_cast<int>(threadIdx.x), lane = thread % 32, *to = found + thread * 9;
    to[0] = __shfl_sync(CUDA_FULL, thread, 5);
    to[1] = __shfl_sync(CUDA_FULL, thread, lane + 1, 8);
    to[2] = __shfl_up_sync(CUDA_FULL, thread, 3);
    to[3] = __shfl_down_sync(CUDA_FULL, thread, 3, 16);
    to[4] = static_cast<int>(__shfl_xor_sync(CUDA_FULL, static_cast<double>(thread), 21));
    to[5] = __shfl_xor_sync(CUDA_FULL, thread, 16, 16);
    unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    to[6] = static_cast<int>(__ballot_sync(mask, thread % 3 == 0));
    to[7] = __any_sync(mask, lane == 20);
    to[8] = __all_sync(mask, lane < 20);
}

static void test_shuffles_and_votes(void **state)
{
    (void)state;
    int found[64][9];
    for (int launch = 0; launch < launches; launch++) {
        assert_ok(CUDA_LAUNCH((shuffle_kernel), 1, 64, 0, &found[0][0]));
        for (int t = 0; t < 64; t++) {
            int lane = t % 32, first = t - lane;
            unsigned ballot = 0;
            for (int i = lane / 16 * 16; i < lane / 16 * 16 + 16; i++)
                if ((first + i) % 3 == 0) ballot |= 1u << i;
            assert_int_equal(found[t][0], first + 5);
            assert_int_equal(found[t][1], t / 8 * 8 + (t + 1) % 8);
            assert_int_equal(found[t][2], lane < 3 ? t : t - 3);
            assert_int_equal(found[t][3], t % 16 + 3 < 16 ? t + 3 : t);
            assert_int_equal(found[t][4], first + (lane ^ 21));
            assert_int_equal(found[t][5], lane < 16 ? t : t - 16);
            assert_int_equal(found[t][6], static_cast<int>(ballot));
            assert_int_equal(found[t][7], lane >= 16);
            assert_int_equal(found[t][8], lane < 16);
        }
    }
}

/* ---- orders that CUDA leaves open ---- */

enum Missing { NOTHING, BLOCK_BARRIER, WARP_BARRIER, LAST_BARRIER };

/* Reverses 64 numbers within the block, then 32 within the warp, by shared memory. */
template <Missing missing> __global__ static void reverse_kernel(int *x)
{
    CUDA_SHARED(int, held, [64]);
    unsigned t = threadIdx.x;
    held[t] = x[t];
    if (missing != BLOCK_BARRIER) __syncthreads();
    int mine = held[63 - t];
    if (missing != LAST_BARRIER) __syncthreads();
    held[t] = mine;
    if (missing != WARP_BARRIER) __syncwarp();
    x[t] = held[t ^ 31];
}

/* The number of launches with the right result. */
template <Missing missing> static int times_right()
{
    int right = 0;
    for (int launch = 0; launch < launches; launch++) {
        int x[64], same = 0;
        for (int i = 0; i < 64; i++) x[i] = i;
        assert_ok(CUDA_LAUNCH((reverse_kernel<missing>), 1, 64, 0, x));
        for (int i = 0; i < 64; i++) same += x[i] == 63 - (i ^ 31);
        right += same == 64;
    }
    return right;
}

static void test_a_missing_barrier_shows(void **state)
{
    (void)state;
    assert_int_equal(times_right<NOTHING>(), launches);
    assert_int_equal(times_right<BLOCK_BARRIER>(), 0);
    assert_int_equal(times_right<WARP_BARRIER>(), 0);
    assert_int_equal(times_right<LAST_BARRIER>(), 0);
}

/* Two sums over a block of 4 warps through the same shared memory. */
template <bool guarded> __global__ static void two_sums_kernel(int *found) // (2, 128)
{
    CUDA_SHARED(int, sums, [4]);
    for (int pass = 0; pass < 2; pass++) {
        int mine = pass ? 1 : 2;
        for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(CUDA_FULL, mine, step);
        if (guarded) __syncthreads();
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
        __syncthreads();
        found[pass * 128 + static_cast<int>(threadIdx.x)] = sums[0] + sums[1] + sums[2] + sums[3];
    }
}

template <bool guarded> static int two_sums_right()
{
    int right = 0;
    for (int launch = 0; launch < launches; launch++) {
        int found[2][128], same = 0;
        assert_ok(CUDA_LAUNCH((two_sums_kernel<guarded>), 1, 128, 0, &found[0][0]));
        for (int i = 0; i < 128; i++) same += (found[0][i] == 256) + (found[1][i] == 128);
        right += same == 256;
    }
    return right;
}

/* Only a warp that finishes the second sum before another has read the first shows this: one launch in two. */
static void test_a_warp_may_be_far_ahead(void **state)
{
    (void)state;
    assert_int_equal(two_sums_right<true>(), launches);
    assert_true(two_sums_right<false>() < launches);
}

__global__ static void ticket_kernel(int *next, int *ticket)
{
    if (threadIdx.x == 0) ticket[blockIdx.x] = atomicAdd(next, 1);
}

static void test_blocks_run_in_any_order(void **state)
{
    (void)state;
    constexpr int blocks = 50;
    int in_order = 0;
    for (int launch = 0; launch < launches; launch++) {
        int next = 0, ticket[blocks], taken[blocks] = {0}, ascending = 0;
        assert_ok(CUDA_LAUNCH((ticket_kernel), blocks, 32, 0, &next, ticket));
        for (int i = 0; i < blocks; i++) taken[ticket[i]]++;
        for (int i = 0; i < blocks; i++) assert_int_equal(taken[i], 1);
        for (int i = 0; i < blocks; i++) ascending += ticket[i] == i;
        in_order += ascending == blocks;
    }
    assert_true(in_order < launches / 2);
}

__global__ static void unset_kernel(int *unset)
{
    CUDA_SHARED(int, fixed, [32]);
    CUDA_SHARED(float, one);
    CUDA_SHARED_DYNAMIC(int, dynamic);
    int found = (fixed[threadIdx.x] == -1) + (dynamic[threadIdx.x] == -1) + std::isnan(one);
    __syncthreads();
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;
    if (threadIdx.x == 0) one = 0;
    atomicAdd(unset, found);
}

static void test_shared_memory_is_unset(void **state)
{
    (void)state;
    int unset = 0;
    assert_ok(CUDA_LAUNCH((unset_kernel), 10, 32, 32 * sizeof(int), &unset));
    assert_int_equal(unset, 10 * 32 * 3);
}

/* ---- graphs ---- */

__global__ static void add_kernel(int *to, int x) { atomicAdd(to, x); }

static void test_graphs(void **state)
{
    (void)state;
    int sum = 0, x = 5;
    CudaHostGraph *graph = nullptr;
    assert_status(cuda_host_capture_end(&graph), E_FAIL);
    assert_ok(cuda_host_capture_begin());
    assert_status(cuda_host_capture_begin(), E_FAIL);
    assert_ok(CUDA_LAUNCH((add_kernel), 2, 4, 0, &sum, x));
    x = 100;
    assert_ok(cuda_host_submit([&sum] {
        sum *= 3;
        return OK;
    }));
    assert_ok(cuda_host_capture_end(&graph));
    assert_int_equal(sum, 0);
    assert_ok(cuda_host_graph_launch(graph));
    assert_int_equal(sum, 2 * 4 * 5 * 3);
    assert_ok(cuda_host_graph_launch(graph));
    assert_int_equal(sum, (2 * 4 * 5 * 3 + 2 * 4 * 5) * 3);
    cuda_host_graph_free(graph);
    cuda_host_graph_free(nullptr);
    assert_ok(CUDA_LAUNCH((add_kernel), 1, 1, 0, &sum, -sum));
    assert_int_equal(sum, 0);
}

/* ---- lanes ---- */

static void submit_step(std::vector<int> *log, int step)
{
    assert_ok(cuda_host_submit([=] {
        log->push_back(step);
        return OK;
    }));
}

/* Two lanes: 0 1 2 3 here, 10 11 12 there; with events, 11 follows 1 and 3 follows 11. */
static void submit_lanes(std::vector<int> *log, bool events)
{
    assert_ok(cuda_host_lane_choose(0));
    submit_step(log, 0);
    submit_step(log, 1);
    if (events) assert_ok(cuda_host_event_record(0));
    assert_ok(cuda_host_lane_choose(1));
    if (events) assert_ok(cuda_host_event_wait(0));
    for (int step = 10; step < 13; step++) submit_step(log, step);
    if (events) assert_ok(cuda_host_event_record(1));
    assert_ok(cuda_host_lane_choose(0));
    submit_step(log, 2);
    if (events) assert_ok(cuda_host_event_wait(1));
    submit_step(log, 3);
}

static size_t place(const std::vector<int> &log, int step)
{
    return static_cast<size_t>(std::find(log.begin(), log.end(), step) - log.begin());
}

/* Every lane keeps its order and obeys events; all other orders occur. */
static void test_lanes(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) { /* without events, with them, as a graph */
        std::set<std::vector<int>> orders;
        std::vector<int> log;
        CudaHostGraph *graph = nullptr;
        if (way == 2) {
            assert_ok(cuda_host_capture_begin());
            submit_lanes(&log, true);
            assert_ok(cuda_host_capture_end(&graph));
        }
        for (int i = 0; i < 1000; i++) {
            log.clear();
            if (way == 2)
                assert_ok(cuda_host_graph_launch(graph));
            else
                submit_lanes(&log, way == 1);
            if (way < 2) assert_int_equal(log.size(), 0);
            assert_ok(cuda_host_wait());
            assert_int_equal(log.size(), 7);
            for (int step = 0; step < 3; step++) assert_true(place(log, step) < place(log, step + 1));
            for (int step = 10; step < 12; step++) assert_true(place(log, step) < place(log, step + 1));
            if (way) assert_true(place(log, 1) < place(log, 10) && place(log, 12) < place(log, 3));
            orders.insert(log);
        }
        assert_int_equal(orders.size(), way ? 4 : 35); /* where 2 goes among 10 11 12; 7 over 3 */
        cuda_host_graph_free(graph);
    }
    assert_status(cuda_host_event_wait(7), E_FAIL);
}

static void test_lanes_of_a_graph(void **state)
{
    (void)state;
    CudaHostGraph *graph = nullptr;
    std::vector<int> log;
    assert_ok(cuda_host_event_record(0));
    assert_ok(cuda_host_capture_begin());
    assert_ok(cuda_host_lane_choose(1));
    assert_status(cuda_host_submit([] { return OK; }), E_FAIL); /* it has waited for nothing there */
    assert_message("without having waited");
    assert_status(cuda_host_event_wait(0), E_FAIL); /* recorded before */
    assert_ok(cuda_host_lane_choose(0));
    assert_ok(cuda_host_event_record(0));
    assert_ok(cuda_host_lane_choose(1));
    assert_ok(cuda_host_event_wait(0));
    submit_step(&log, 1);
    assert_status(cuda_host_capture_end(&graph), E_FAIL);
    assert_message("nothing waits for it");
    assert_null(graph);
    assert_ok(cuda_host_lane_choose(0));
    assert_ok(cuda_host_wait());
    submit_step(&log, 2);
    assert_int_equal(log.size(), 1);
    assert_ok(cuda_host_lane_choose(0));
    assert_ok(cuda_host_submit([] { return status_fail(E_FAIL, "late"); })); /* a failure shows at the wait */
    assert_status(cuda_host_wait(), E_FAIL);
    assert_message("late");
    assert_ok(cuda_host_wait());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_sums_keep_their_bits),
        cmocka_unit_test(test_shuffles_and_votes),
        cmocka_unit_test(test_a_missing_barrier_shows),
        cmocka_unit_test(test_a_warp_may_be_far_ahead),
        cmocka_unit_test(test_blocks_run_in_any_order),
        cmocka_unit_test(test_shared_memory_is_unset),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_lanes_of_a_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
