/* A fault in a kernel gives a message with its place, and the next launch succeeds. */
#include "cuda_host/testing_host.h"

#include <vector>

/* The launch fails, and its message contains each of these. */
#define assert_fault(launch, ...)                                                                                      \
    do {                                                                                                               \
        assert_status(launch, E_FAIL);                                                                                 \
        for (const char *part : {__VA_ARGS__}) assert_message(part);                                                   \
        healthy();                                                                                                     \
    } while (0)

__global__ static void healthy_kernel(int *sum)
{
    CUDA_SHARED(int, held, [64]);
    held[threadIdx.x] = static_cast<int>(threadIdx.x);
    __syncthreads();
    int mine = held[63 - threadIdx.x];
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(CUDA_FULL, mine, step);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

static void healthy(void)
{
    int sum = 0;
    assert_ok(CUDA_LAUNCH((healthy_kernel), 2, 64, 0, &sum));
    assert_int_equal(sum, 2 * 63 * 64 / 2);
}

/* ---- barriers ---- */

__global__ static void ended_kernel(int n)
{
    if (static_cast<int>(threadIdx.x) >= n) return;
    __syncthreads();
}

__global__ static void two_barriers_kernel()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

__global__ static void barrier_and_shuffle_kernel()
{
    if (threadIdx.x == 7)
        __syncthreads();
    else
        __syncwarp();
}

static void test_barriers(void **state)
{
    (void)state;
    assert_ok(CUDA_LAUNCH((ended_kernel), 1, 64, 0, 64));
    assert_ok(CUDA_LAUNCH((ended_kernel), 1, 64, 0, 0));
    assert_fault(CUDA_LAUNCH((ended_kernel), 3, 64, 0, 63), "kernel ended_kernel", "test_faults.cc:", "of 64 threads",
                 "was reached by 63 of the block's 64 threads", "thread (63,0,0) has ended", "CAIRN_TEST_FIBER_SEED=");
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, dim3(8, 4, 2), 0, 1), "was reached by 8 of",
                 "thread (1,0,0) has ended");
    assert_fault(CUDA_LAUNCH((two_barriers_kernel), 1, 64, 0), "the block waits at two barriers");
    assert_fault(CUDA_LAUNCH((barrier_and_shuffle_kernel), 1, 32, 0), "waits in __syncwarp", "with mask 0xffffffff",
                 "for lane 7, which waits in __syncthreads");
}

/* ---- collectives ---- */

__global__ static void early_kernel(int *out)
{
    if (threadIdx.x == 13) return;
    *out = __shfl_sync(CUDA_FULL, 1, 0);
}

__global__ static void part_kernel(int *out) { *out = __any_sync(CUDA_FULL, 1); }

__global__ static void different_kernel(int *out)
{
    if (threadIdx.x < 16)
        *out = __shfl_sync(CUDA_FULL, 1, 0);
    else
        *out = __all_sync(CUDA_FULL, 1);
}

__global__ static void elsewhere_kernel(int *out)
{
    if (threadIdx.x < 16)
        *out = __shfl_sync(CUDA_FULL, 1, 0);
    else
        *out = __shfl_sync(CUDA_FULL, 2, 0);
}

__global__ static void mask_kernel(int *out, unsigned low, unsigned high, int from, int width)
{
    *out = __shfl_sync(threadIdx.x < 16 ? low : high, 1, from, width);
}

static void test_collectives(void **state)
{
    (void)state;
    int out = 0;
    assert_fault(CUDA_LAUNCH((early_kernel), 1, 32, 0, &out), "waits in __shfl_sync", "for lane 13, which has ended");
    assert_ok(CUDA_LAUNCH((part_kernel), 1, 64, 0, &out));
    assert_fault(CUDA_LAUNCH((part_kernel), 1, 40, 0, &out), "waits in __any_sync",
                 "for lane 8, which does not exist: the block has 40 threads");
    assert_fault(CUDA_LAUNCH((different_kernel), 1, 32, 0, &out), "have met two collectives", "__shfl_sync with mask",
                 "__all_sync with mask");
    assert_fault(CUDA_LAUNCH((elsewhere_kernel), 1, 32, 0, &out), "have met two collectives");
    assert_ok(CUDA_LAUNCH((mask_kernel), 1, 32, 0, &out, CUDA_FULL, CUDA_FULL, 31, 32));
    assert_fault(CUDA_LAUNCH((mask_kernel), 1, 32, 0, &out, CUDA_FULL, 0xffff0000u, 31, 32), "have met two collectives",
                 "mask 0xffff0000", "mask 0xffffffff");
    assert_fault(CUDA_LAUNCH((mask_kernel), 1, 32, 0, &out, 0xffffu, 0xffff0000u, 3, 32),
                 "reads lane 3, which is not in the shuffle's mask 0xffff0000");
    assert_fault(CUDA_LAUNCH((mask_kernel), 1, 32, 0, &out, 0xffffu, 0xfffe0000u, 4, 16),
                 "mask 0xfffe0000 is without the caller, lane 16");
}

/* ---- launches ---- */

template <int n> __global__ static void large_kernel()
{
    CUDA_SHARED(unsigned char, a, [n / 2]);
    CUDA_SHARED(unsigned char, b, [n - n / 2]);
    a[0] = b[0] = 0;
}

static void test_launches(void **state)
{
    (void)state;
    constexpr size_t most = 227 << 10;
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, 1025, 0, 0), "a block of 1025x1x1 threads");
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, dim3(32, 32, 2), 0, 0), "a block of 32x32x2 threads");
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, dim3(1, 1, 65), 0, 0), "a block of 1x1x65 threads");
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, 0, 0, 0), "a block of 0x1x1 threads");
    assert_fault(CUDA_LAUNCH((ended_kernel), dim3(1, 65536), 32, 0, 0), "a grid of 1x65536x1 blocks");
    assert_ok(CUDA_LAUNCH((ended_kernel), 1, 32, most, 0));
    assert_fault(CUDA_LAUNCH((ended_kernel), 1, 32, most + 1, 0), "232449 bytes of dynamic shared memory");
    assert_ok(CUDA_LAUNCH((large_kernel<232448>), 1, 32, 0));
    assert_ok(CUDA_LAUNCH((large_kernel<1000>), 1, 32, most - 1000));
    assert_fault(CUDA_LAUNCH((large_kernel<1000>), 1, 32, most - 999), "shared memory for b", "232449 bytes");
}

/* ---- shared memory ---- */

template <bool dynamic> __global__ static void touch_kernel(int i, bool write, float *out)
{
    CUDA_SHARED(float, before, [8]);
    CUDA_SHARED(float, fixed, [32]);
    CUDA_SHARED(float, behind, [8]);
    CUDA_SHARED_DYNAMIC(float, given);
    before[0] = behind[0] = 1;
    float *array = dynamic ? given : fixed;
    if (threadIdx.x == 0 && write) array[i] = 1;
    __syncthreads();
    if (threadIdx.x == 0 && !write) *out = array[i];
}

struct Touch {
    bool dynamic, write;
    int i;
};

static int touch(void *arg)
{
    const Touch *t = static_cast<const Touch *>(arg);
    float out = 0;
    if (t->dynamic) return CUDA_LAUNCH((touch_kernel<true>), 1, 32, 128, t->i, t->write, &out);
    return CUDA_LAUNCH((touch_kernel<false>), 1, 32, 128, t->i, t->write, &out);
}

static void test_out_of_bounds(void **state)
{
    (void)state;
    for (int dynamic = 0; dynamic < 2; dynamic++)
        for (int write = 0; write < 2; write++)
            for (int i = 31; i <= 32; i++) {
                Touch t = {dynamic != 0, write != 0, i};
                Buf errors = {};
                int ended = testing_child(touch, &t, &errors);
                bool clean = WIFEXITED(ended) && WEXITSTATUS(ended) == OK;
                if (clean != (i == 31 || !(write || with_asan)))
                    fail_msg("dynamic %d, write %d, element %d of 32: ended with %d: %s", dynamic, write, i, ended,
                             errors.data ? errors.data : "");
                if (!clean && with_asan) assert_non_null(strstr(errors.data, "touch_kernel"));
                buf_free(&errors);
            }
    Touch beyond = {true, true, 33};
    if (with_asan) return;
    assert_fault(static_cast<Status>(touch(&beyond)),
                 "of the launch of 128 bytes was written beyond, 4 bytes from its end");
}

/* Global memory is the host's. */
static int touch_global(void *arg)
{
    std::vector<int> sum(8);
    int *last = sum.data() + *static_cast<int *>(arg);
    return CUDA_LAUNCH((healthy_kernel), 1, 64, 0, last);
}

static void test_global_out_of_bounds(void **state)
{
    (void)state;
    if (!with_asan) {
        print_message("skipped: this build has no AddressSanitizer\n");
        skip();
    }
    for (int i = 7; i <= 8; i++) {
        Buf errors = {};
        int ended = testing_child(touch_global, &i, &errors);
        assert_int_equal(WIFEXITED(ended) && WEXITSTATUS(ended) == OK, i == 7);
        if (i == 8) {
            assert_non_null(strstr(errors.data, "heap-buffer-overflow"));
            assert_non_null(strstr(errors.data, "healthy_kernel"));
        }
        buf_free(&errors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_out_of_bounds),
        cmocka_unit_test(test_global_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
