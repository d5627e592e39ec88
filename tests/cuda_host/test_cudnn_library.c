/* The real cuDNN on a machine without a GPU: it plans our graphs for the GPUs described here, compiles their kernels
   and reports their workspace. Only a GPU can run them. The driver is fake_libcuda.c (in LD_LIBRARY_PATH). */
#include <stdlib.h>

#include "kernels/backend.h"
#include "testing.h"

typedef struct {
    const char *name;
    int version, processors, shared; /* compute capability · 100 */
    bool backward;
} Gpu;

static const Gpu gpus[] = {
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, false},
    {"NVIDIA H200", 900, 132, 232448, true},
    {"NVIDIA B200", 1000, 148, 232448, false},
};

/* As cuDNN writes them (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
static char *properties(const Gpu *g)
{
    return mem_printf(
        "{\"cudaDeviceId\": 0, \"deviceName\": \"%s\", \"deviceVer\": %d, \"multiProcessorCount\": %d, "
        "\"maxSharedMemoryPerBlockOptin\": %d, \"maxSharedMemoryPerBlock\": 49152, \"reservedSharedMemoryPerBlock\": "
        "1024, "
        "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
        "\"maxRegistersPerSM\": 65536, \"warpSize\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
        "\"maxCtasPerSM\": 32, \"l2CacheSize\": 62914560, \"totalGlobalMem\": 80000000000, \"driverVer\": 13000, "
        "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, \"pciDeviceId\": 0, \"isTccDriver\": 0, "
        "\"supportCoopLaunch\": 1}",
        g->name, g->version, g->processors, g->shared);
}

static Backend *open_on(const Gpu *g)
{
    Backend *b = NULL;
    char *json = properties(g), *major = mem_printf("%d", g->version / 100);
    setenv("CAIRN_TEST_CUDNN_DEVICE", json, 1);
    setenv("CAIRN_TEST_CUDA_HOST_MAJOR", major, 1);
    Status status = backend_open("cuda_host", &(BackendOptions){.attention = ATTENTION_CUDNN}, &b);
    free(json);
    free(major);
    if (status != OK && strstr(status_message(), "is too old")) {
        print_message("skipped: %s\n", status_message());
        exit(77);
    }
    assert_int_equal(status, OK);
    print_message("%s, on paper: %s\n", g->name, b->describe);
    return b;
}

enum { SEQS = 5, ROWS = 512, LONGEST = 128 };

static Status plan(const Backend *b, Op op, Dtype dtype, int32_t heads, int32_t head_dim, size_t *scratch)
{
    OpCall call = {.op = op,
                   .attr = {.attention = {.heads = heads, .head_dim = head_dim, .scale = 0.125f, .longest = LONGEST}}};
    RowCounts rows = {.count = {[ROWS_TOKENS] = ROWS, [ROWS_SEQS] = SEQS}};
    *IN_EITHER(&call, ATTENTION, ATTENTION_BWD, qkv) =
        (Operand){NULL, dtype, {ROWS_TOKENS, 0}, 3 * (int64_t)heads * head_dim};
    *scratch = b->op[op].scratch(&call, &rows);
    return b->op[op].prepare(&call, &rows, 1);
}

static void test_plans(void **state)
{
    (void)state;
    static const struct {
        Dtype dtype;
        int32_t heads, head_dim;
    } shapes[] = {{BF16, 16, 64}, {F16, 2, 32}, {BF16, 1, 128}};
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        Backend *b = open_on(&gpus[g]);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            size_t forward, backward;
            int32_t heads = shapes[s].heads;
            assert_ok(plan(b, OP_ATTENTION, shapes[s].dtype, heads, shapes[s].head_dim, &forward));
            Status status = plan(b, OP_ATTENTION_BWD, shapes[s].dtype, heads, shapes[s].head_dim, &backward);
            if (!gpus[g].backward) {
                assert_int_equal(status, E_USAGE);
                continue;
            }
            assert_int_equal(status, OK);
            print_message("%d heads of %d: %zu and %zu bytes of scratch\n", heads, shapes[s].head_dim, forward,
                          backward);
            /* dS, and the sums that we keep for it */
            size_t least = (size_t)SEQS * (size_t)heads * LONGEST * LONGEST * 2 + (size_t)ROWS * (size_t)heads * 4;
            assert_in_range(backward, least, least + (1 << 20));
            assert_in_range(forward, 1, 1 << 20);
        }
        backend_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
