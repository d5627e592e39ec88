/* The real device layer on a runtime that fails: every fault gives a message with a remedy; nothing hangs, and
   nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "cuda_host/cudart.h"

#include "kernels/cuda/device.cu"
#include "kernels/cuda/device_memory.cu"

extern "C" {
#include "testing.h"
}

/* There is no NVML. */
extern "C" {
Status nvml_open(const char *) { return E_FAIL; }
Status nvml_sample(DeviceSample *) { return E_FAIL; }
void nvml_close(void) {}
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CAIRN_CUDA_SYNC");
    fake_reset();
    return 0;
}

static void open_fails(int rank, const char *said)
{
    assert_status(device_open(rank), E_USAGE);
    assert_message(said);
    assert_int_equal(fake.live, 0);
    fake_reset();
    assert_ok(device_open(0)); /* a second attempt succeeds */
    device_close();
    assert_int_equal(fake.live, 0);
}

static void fails(const char *call, int after, cudaError_t error, bool for_good)
{
    fake.fails = call;
    fake.after = after;
    fake.error = error;
    fake.for_good = for_good;
}

static void test_driver(void **state)
{
    (void)state;
    fake.driver = 0;
    open_fails(0, "this machine has no NVIDIA driver (libcuda.so.1)");
    fake.driver = 11080;
    open_fails(0, "the NVIDIA driver is too old: it supports CUDA 11.8");
}

static void test_gpus(void **state)
{
    (void)state;
    fake.gpus = 0;
    fake.count_error = cudaErrorNoDevice;
    open_fails(0, "no GPU is visible (CUDA_VISIBLE_DEVICES is not set). Use --backend cpu");
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    fake.gpus = 0;
    open_fails(0, "no GPU is visible (CUDA_VISIBLE_DEVICES is '7')");
    fake.count_error = cudaErrorUnknown;
    open_fails(0, "the driver reports no GPU: words of the runtime");
    fake.gpus = 2;
    open_fails(2, "local rank 2 needs GPU 2, but 2 are visible. Start at most 2 ranks here");
    assert_ok(device_open(3)); /* the only one that its launcher left visible */
    assert_int_equal(the_device.gpu, 0);
    device_close();
    unsetenv("CUDA_VISIBLE_DEVICES");
    open_fails(1, "local rank 1 needs GPU 1, but 1 is visible. Start at most 1 rank here");
    setenv("CAIRN_SHARED_GPU", "1", 1);
    assert_ok(device_open(3));
    assert_string_equal(device_info()->unit, "GPU-00000000000000000000000000000000 at 00000000:00:00.0");
    device_close();
    unsetenv("CAIRN_SHARED_GPU");
    fake.major = 7;
    fake.minor = 5;
    assert_ok(device_open(0));
    device_close();
    fake.minor = 0;
    open_fails(0, "Fake has compute capability 7.0; 7.5 (Turing) or newer is needed. Use --backend cpu");
    fails("cudaGetDeviceProperties", 0, cudaErrorECCUncorrectable, false);
    open_fails(0, "its memory is damaged; use another GPU");
    fails("cudaStreamCreateWithFlags", 1, cudaErrorDevicesUnavailable, false);
    open_fails(0, "another process has it exclusively");
}

static void test_no_code_for_it(void **state)
{
    (void)state;
    static const int kernel = 0;
    assert_true(cuda_list_kernel(&kernel));
    fails("cudaFuncGetAttributes", 0, cudaErrorNoKernelImageForDevice, false);
    open_fails(0, "this build has no code for this GPU; build with CAIRN_CUDA_ARCHITECTURES");
}

/* A call that may fail leaves its error, which is none of the first launch. */
static void test_error_before_launches(void **state)
{
    (void)state;
    fails("cudaInitDevice", 0, cudaErrorUnknown, false);
    assert_ok(device_open(0));
    assert_ok(cuda_launched("kernel.cu", 1));
    device_close();
}

static void test_no_pinned_memory(void **state)
{
    (void)state;
    fails("cudaMallocHost", 2, cudaErrorMemoryAllocation, false);
    assert_status(device_open(0), E_MEMORY);
    assert_message("pinned host memory");
    assert_int_equal(fake.live, 0);
}

/* Another process holds most of the memory: the message has the bytes wanted and free, and a smaller allocation
   succeeds. */
static void test_memory_is_taken(void **state)
{
    (void)state;
    void *p, *q;
    fake.free = 100000;
    assert_ok(device_open(0));
    device_measure_memory(nullptr);
    assert_int_equal(device_info()->free, 100000);
    assert_status(device_alloc(nullptr, 1 << 20, &p), E_MEMORY);
    assert_null(p);
    assert_message("1048576 bytes are wanted, 100000 of 67108864 are free");
    assert_status(device_alloc(nullptr, SIZE_MAX - 100, &p), E_MEMORY);
    assert_ok(device_alloc(nullptr, 5000, &q));
    assert_int_equal(reinterpret_cast<uintptr_t>(q) % 4096, 0);
    fails("cudaHostAlloc", 0, cudaErrorMemoryAllocation, false);
    assert_status(device_pin(nullptr, 4096, &p), E_MEMORY);
    assert_message("no 4096 bytes of memory that can be pinned");
    device_release(nullptr, q, 5000);
    device_close();
    assert_int_equal(fake.live, 0);
}

/* Memory of device_pin is copied as it is, in one piece; other memory through the halves of 8 MiB. */
static void test_pinned_copies(void **state)
{
    (void)state;
    enum : size_t { BYTES = size_t{20} << 20 };
    void *p, *q, *there;
    assert_ok(device_open(0));
    assert_ok(device_pin(nullptr, BYTES, &p));
    assert_ok(device_pin(nullptr, 4096, &q));
    assert_ok(device_alloc(nullptr, BYTES, &there));
    std::vector<char> own(BYTES, 7);
    char *pinned = static_cast<char *>(p);
    memset(pinned, 5, BYTES);
    fake.copies = 0;
    assert_ok(device_upload(nullptr, there, pinned, BYTES));
    assert_int_equal(fake.copies, 1);
    assert_ok(device_download(nullptr, own.data(), there, BYTES));
    assert_int_equal(fake.copies, 4);
    assert_memory_equal(own.data(), pinned, BYTES);
    memset(pinned, 0, BYTES);
    assert_ok(device_download(nullptr, pinned + 100, there, BYTES - 100));
    assert_int_equal(fake.copies, 5);
    assert_memory_equal(own.data(), pinned + 100, BYTES - 100);
    device_unpin(nullptr, p, BYTES);
    assert_ok(device_upload(nullptr, there, own.data(), BYTES)); /* may lie where it was */
    assert_int_equal(fake.copies, 8);
    fails("cudaStreamSynchronize", 0, cudaErrorIllegalAddress, true);
    assert_status(device_download(nullptr, q, there, 4096), E_FAIL);
    assert_message("a copy from the device failed");
    device_unpin(nullptr, q, 4096);
    device_release(nullptr, there, BYTES);
    device_close();
    assert_int_equal(fake.live, 0);
}

/* The GPU is lost in a step: the next call reports it and so does every later one; none waits forever. */
static void test_gone(void **state)
{
    (void)state;
    static const char *const calls[] = {"cudaStreamSynchronize", "cudaMemcpyAsync", "cudaEventRecord",
                                        "cudaGraphLaunch", "cudaEventSynchronize"};
    for (const char *call : calls) {
        char data[64] = "before", back[64];
        void *p, *graph;
        fake_reset();
        assert_ok(device_open(0));
        assert_ok(device_alloc(nullptr, sizeof data, &p));
        assert_ok(device_capture_begin(nullptr));
        assert_ok(device_capture_end(nullptr, &graph));
        assert_ok(device_upload(nullptr, p, data, sizeof data));
        assert_ok(device_download(nullptr, back, p, sizeof back));
        assert_memory_equal(back, data, sizeof back);
        assert_ok(cuda_launched("some.cu", 7));
        fails(call, 0, cudaErrorIllegalAddress, true);
        Status first = OK;
        if (first == OK) first = device_graph_launch(nullptr, graph);
        if (first == OK) first = device_upload(nullptr, p, data, sizeof data);
        if (first == OK) first = device_event_record(nullptr, 0);
        if (first == OK) first = device_download(nullptr, back, p, sizeof back);
        if (first == OK) first = device_wait(nullptr);
        assert_status(first, E_FAIL);
        assert_message("GPU Fake");
        assert_message("after the launch at some.cu:7 (the fault is there or before; CAIRN_CUDA_SYNC=1 names it)");
        assert_message("words of the runtime (cudaErrorIllegalAddress)");
        assert_status(device_upload(nullptr, p, data, sizeof data), E_FAIL);
        assert_status(device_download(nullptr, back, p, sizeof back), E_FAIL);
        assert_status(cuda_copy(p, data, sizeof data), E_FAIL);
        assert_status(device_event_record(nullptr, 1), E_FAIL);
        assert_status(device_graph_launch(nullptr, graph), E_FAIL);
        assert_status(device_capture_begin(nullptr), E_FAIL);
        assert_status(cuda_launched("other.cu", 9), E_FAIL);
        assert_status(device_wait(nullptr), E_FAIL);
        device_graph_free(nullptr, graph);
        device_release(nullptr, p, sizeof data);
        device_close();
        assert_int_equal(fake.live, 0);
    }
}

/* device_event_done never waits, and reports a GPU that failed. */
static void test_event_done(void **state)
{
    (void)state;
    bool done = true;
    assert_ok(device_open(0));
    assert_ok(device_event_record(nullptr, 4));
    fails("cudaEventQuery", 0, cudaErrorNotReady, false);
    assert_ok(device_event_done(nullptr, 4, &done));
    assert_false(done);
    fake.fails = nullptr;
    assert_ok(device_event_done(nullptr, 4, &done));
    assert_true(done);
    fails("cudaEventQuery", 0, cudaErrorIllegalAddress, true);
    assert_status(device_event_done(nullptr, 4, &done), E_FAIL);
    assert_message("the device failed");
    device_close();
    assert_int_equal(fake.live, 0);
}

/* With CAIRN_CUDA_SYNC the host waits for every launch, and the message names the one that failed. */
static void test_sync_names_the_launch(void **state)
{
    (void)state;
    setenv("CAIRN_CUDA_SYNC", "1", 1);
    assert_ok(device_open(0));
    assert_ok(cuda_launched("good.cu", 1));
    fails("cudaStreamSynchronize", 0, cudaErrorIllegalAddress, true);
    assert_status(cuda_launched("bad.cu", 2), E_FAIL);
    assert_message("a launch failed, after the launch at bad.cu:2: words of the runtime");
    device_close();
    assert_int_equal(fake.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_driver, set_up),
        cmocka_unit_test_setup(test_gpus, set_up),
        cmocka_unit_test_setup(test_no_code_for_it, set_up),
        cmocka_unit_test_setup(test_error_before_launches, set_up),
        cmocka_unit_test_setup(test_no_pinned_memory, set_up),
        cmocka_unit_test_setup(test_pinned_copies, set_up),
        cmocka_unit_test_setup(test_memory_is_taken, set_up),
        cmocka_unit_test_setup(test_gone, set_up),
        cmocka_unit_test_setup(test_event_done, set_up),
        cmocka_unit_test_setup(test_sync_names_the_launch, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
