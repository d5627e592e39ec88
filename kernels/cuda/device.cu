/* One GPU through the CUDA runtime, which is linked statically and finds the driver by itself: without a driver the
   module loads, and device_open reports what is missing. Plain C++ without kernels: tests/cuda_host/test_device.cc
   compiles it against a runtime of its own. */
#include "kernels/cuda/device_internal.h"

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "kernels/cuda/nvml.h"
}

OpenDevice the_device;

static std::vector<const void *> &listed_kernels()
{
    static std::vector<const void *> list; /* made before the first kernel's static initialiser uses it */
    return list;
}

bool cuda_list_kernel(const void *kernel)
{
    listed_kernels().push_back(kernel);
    return true;
}

const DeviceInfo *device_info(void) { return &the_device.info; }
void *device_stream(Device *) { return the_device.now; }

/* ---- errors ---- */

/* Advice beside CUDA's own text. */
static const struct {
    cudaError_t error;
    const char *advice;
} advices[] = {
    {cudaErrorECCUncorrectable, "its memory is damaged; use another GPU (CUDA_VISIBLE_DEVICES) or reset this one"},
    {cudaErrorDevicesUnavailable,
     "another process has it exclusively; wait, or use another GPU (CUDA_VISIBLE_DEVICES)"},
    {cudaErrorMemoryAllocation, "use less memory (--memory-budget), or end the other processes on this GPU"},
    {cudaErrorIllegalAddress, "a bug in the program; please report it with the output under CAIRN_CUDA_SYNC=1"},
    {cudaErrorMisalignedAddress, "a bug in the program; please report it with the output under CAIRN_CUDA_SYNC=1"},
    {cudaErrorNoKernelImageForDevice, "this build has no code for this GPU; build with CAIRN_CUDA_ARCHITECTURES"},
};

Status device_fail(Status status, cudaError_t error, const char *what)
{
    const char *advice = NULL;
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].error == error) advice = advices[i].advice;
    return fail(status, "GPU %s: %s: %s (%s)%s%s", the_device.info.name, what, cudaGetErrorString(error),
                cudaGetErrorName(error), advice ? "; " : "", advice ? advice : "");
}

Status device_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return OK;
    if (!the_device.file) return device_fail(E_FAIL, error, what);
    char *where = mem_printf("%s, after the launch at %s:%d%s", what, the_device.file, the_device.line,
                             the_device.sync ? "" : " (the fault is there or before; CAIRN_CUDA_SYNC=1 names it)");
    Status status = device_fail(E_FAIL, error, where);
    free(where);
    return status;
}

Status device_queued(cudaError_t error, const char *what)
{
    if (error == cudaSuccess && the_device.sync && !the_device.capturing) error = cudaStreamSynchronize(the_device.now);
    return device_check(error, what);
}

/* ---- launches ---- */

Status cuda_launched(const char *file, int line)
{
    the_device.file = file;
    the_device.line = line;
    return device_queued(cudaGetLastError(), "a launch failed");
}

#define PLAIN_SHARED ((size_t)48 << 10) /* more dynamic shared memory must be asked for */

bool cuda_launchable(const void *kernel, unsigned x, unsigned y, unsigned z, size_t shared)
{
    /* where this is refused, so is the launch, and that is reported */
    if (shared > PLAIN_SHARED)
        (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return x && y && z;
}

/* ---- opening ---- */

/* Memory of the GPU in use by all processes, from NVML where the driver has it: it needs no context. 0: unknown. */
static size_t memory_in_use(int gpu)
{
    char *bus = the_device.info.bus;
    DeviceSample s = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof the_device.info.bus, gpu) != cudaSuccess || nvml_open(bus) != OK) return 0;
    bool known = nvml_sample(&s) == OK && s.memory_bytes > 0;
    nvml_close();
    return known ? static_cast<size_t>(s.memory_bytes) : 0;
}

static Status find_driver(DeviceInfo *info)
{
    (void)cudaRuntimeGetVersion(&info->runtime);
    (void)cudaDriverGetVersion(&info->driver);
    int runtime = info->runtime, driver = info->driver;
    if (driver == 0)
        return fail(E_USAGE,
                    "backend 'cuda': this machine has no NVIDIA driver (libcuda.so.1), and this build needs one for "
                    "CUDA %d. Install it, or use --backend cpu",
                    runtime / 1000);
    if (driver / 1000 < runtime / 1000)
        return fail(E_USAGE,
                    "backend 'cuda': the NVIDIA driver is too old: it supports CUDA %d.%d, and this build needs %d.0. "
                    "Install a newer driver, or use --backend cpu",
                    driver / 1000, driver % 1000 / 10, runtime / 1000);
    return OK;
}

/* A launcher leaves each rank a GPU of its own, or all of them to all ranks. */
static Status find_gpu(int rank, int *gpu)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0))
        return fail(E_USAGE, "backend 'cuda': no GPU is visible (CUDA_VISIBLE_DEVICES is %s%s%s). Use --backend cpu",
                    visible ? "'" : "", visible ? visible : "not set", visible ? "'" : "");
    if (error != cudaSuccess)
        return fail(E_USAGE, "backend 'cuda': the driver reports no GPU: %s (%s). Use --backend cpu",
                    cudaGetErrorString(error), cudaGetErrorName(error));
    bool any = (visible && n == 1) || env_is_on("CAIRN_SHARED_GPU");
    *gpu = any ? rank % n : rank;
    if (*gpu >= n)
        return fail(E_USAGE,
                    "backend 'cuda': local rank %d needs GPU %d, but %d %s visible. Start at most %d rank%s here", rank,
                    rank, n, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    return OK;
}

static Status describe_gpu(int gpu, DeviceInfo *info)
{
    cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, gpu);
    if (error != cudaSuccess) return device_fail(E_USAGE, error, "reading its properties failed");
    snprintf(info->name, sizeof info->name, "%.127s", p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->multiprocessors = p.multiProcessorCount;
    info->shared = p.sharedMemPerBlockOptin;
    info->memory = p.totalGlobalMem;
    snprintf(info->unit, sizeof info->unit, "GPU-");
    for (size_t i = 0; i < sizeof p.uuid.bytes; i++)
        snprintf(info->unit + 4 + 2 * i, 3, "%02x", (unsigned)(unsigned char)p.uuid.bytes[i]);
    if (p.major * 10 + p.minor < 75)
        return fail(
            E_USAGE,
            "backend 'cuda': %s has compute capability %d.%d; 7.5 (Turing) or newer is needed. Use --backend cpu",
            p.name, p.major, p.minor);
    return OK;
}

/* CUDA loads a kernel at its first use. Ours are loaded now, so that no step loads one; those of libraries are not:
   they hold far more kernels than are ever used. */
static Status load_kernels(void)
{
    for (const void *kernel : listed_kernels()) {
        cudaFuncAttributes attributes;
        cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
        if (error == cudaSuccess) continue;
        (void)cudaGetLastError();
        return device_fail(E_USAGE, error, "loading the kernels failed");
    }
    return OK;
}

/* A lane must not wait behind the work of another one that waits for a rank, so each has a queue of the GPU of its own:
   CUDA's default is 8, its most 32. */
static void ask_for_queues(void) { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

static Status open_gpu(int local_rank)
{
    DeviceInfo *info = &the_device.info;
    ask_for_queues();
    TRY(find_driver(info));
    TRY(find_gpu(local_rank, &the_device.gpu));
    TRY(describe_gpu(the_device.gpu, info));
    the_device.used_before = memory_in_use(the_device.gpu);
    snprintf(info->unit + strlen(info->unit), sizeof info->unit - strlen(info->unit), " at %s", info->bus);
    /* the step's thread sleeps while it waits, and leaves its core to the loader */
    (void)cudaInitDevice(the_device.gpu, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    cudaError_t error = cudaSetDevice(the_device.gpu);
    for (int l = 0; l < DEVICE_LANES && error == cudaSuccess; l++)
        error = cudaStreamCreateWithFlags(&the_device.lane[l], cudaStreamNonBlocking);
    the_device.compute = the_device.now = the_device.lane[0];
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return device_fail(E_USAGE, error, "it cannot be used");
    }
    TRY(load_kernels());
    TRY(staging_open(&the_device.up));
    TRY(staging_open(&the_device.down));
    (void)cudaGetLastError(); /* of a call whose failure does not matter, which the first launch would report */
    return OK;
}

Status device_open(int local_rank)
{
    if (the_device.opened && local_rank != the_device.rank)
        return fail(E_USAGE, "backend 'cuda': GPU %d is open, and a process has one GPU; asked for GPU %d",
                    the_device.rank, local_rank);
    if (the_device.opened) return OK;
    the_device.sync = env_is_on("CAIRN_CUDA_SYNC");
    the_device.rank = local_rank;
    the_device.opened = true;
    Status status = open_gpu(local_rank);
    if (status != OK) device_close();
    return status;
}

void device_close(void)
{
    if (!the_device.opened) return;
    staging_close(&the_device.up);
    staging_close(&the_device.down);
    for (cudaEvent_t event : the_device.events) (void)cudaEventDestroy(event);
    for (cudaEvent_t event : the_device.marks) (void)cudaEventDestroy(event);
    for (cudaStream_t lane : the_device.lane)
        if (lane) (void)cudaStreamDestroy(lane);
    the_device = {};
}

void device_measure_memory(Device *)
{
    size_t available = 0, total = 0, used = memory_in_use(the_device.gpu);
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return;
    the_device.info.free = available;
    /* without NVML: everything in use, also by others */
    the_device.info.context =
        used && used >= the_device.used_before ? used - the_device.used_before : total - available;
}

size_t device_used(Device *)
{
    size_t available = 0, total = 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
    return the_device.info.context + (the_device.info.free > available ? the_device.info.free - available : 0);
}

void device_memory(Device *, size_t *total, size_t *available, size_t *context)
{
    *total = the_device.info.memory;
    *available = the_device.info.free;
    *context = the_device.info.context;
}

/* ---- lanes ---- */

Status device_choose_lane(Device *, int lane)
{
    CHECK(lane >= 0 && lane < DEVICE_LANES, "lane %d", lane);
    the_device.now = the_device.lane[lane];
    return OK;
}

/* Events up to `slot`. */
static cudaError_t events_grow(std::vector<cudaEvent_t> *events, int slot, unsigned flags)
{
    while (events->size() <= static_cast<size_t>(slot)) {
        cudaEvent_t event;
        cudaError_t error = cudaEventCreateWithFlags(&event, flags);
        if (error != cudaSuccess) return error;
        events->push_back(event);
    }
    return cudaSuccess;
}

static cudaEvent_t recorded_event(int slot)
{
    CHECK(slot >= 0 && static_cast<size_t>(slot) < the_device.events.size(), "event %d was never recorded", slot);
    return the_device.events[static_cast<size_t>(slot)];
}

Status device_event_record(Device *, int slot)
{
    cudaError_t error = events_grow(&the_device.events, slot, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(recorded_event(slot), the_device.now);
    return device_check(error, "an event failed");
}

Status device_event_wait(Device *, int slot)
{
    return device_check(cudaStreamWaitEvent(the_device.now, recorded_event(slot), 0),
                        "a lane cannot wait for an event");
}

Status device_event_done(Device *, int slot, bool *done)
{
    cudaError_t error = cudaEventQuery(recorded_event(slot));
    *done = error == cudaSuccess;
    return error == cudaErrorNotReady ? OK : device_check(error, "the device failed");
}

cudaError_t device_lanes_wait(void)
{
    cudaError_t error = cudaSuccess;
    for (int l = 0; l < DEVICE_LANES && error == cudaSuccess; l++) error = cudaStreamSynchronize(the_device.lane[l]);
    return error;
}

Status device_wait(Device *) { return device_check(device_lanes_wait(), "the device failed"); }

/* ---- marks: events with times, for profiles ---- */

/* An idle lane reaches an event at once: between two readings of the host's clock, some microseconds apart. */
static cudaError_t marks_tie(void)
{
    cudaError_t error = cudaStreamSynchronize(the_device.compute);
    if (error != cudaSuccess) return error;
    double before = clock_monotonic();
    error = cudaEventRecord(the_device.marks[0], the_device.compute);
    if (error == cudaSuccess) do
            error = cudaEventQuery(the_device.marks[0]);
        while (error == cudaErrorNotReady);
    the_device.mark_zero = 0.5 * (before + clock_monotonic());
    return error;
}

Status device_mark(Device *, int lane, int slot)
{
    cudaError_t error = events_grow(&the_device.marks, slot, cudaEventDefault);
    if (error == cudaSuccess)
        error = slot == 0 ? marks_tie()
                          : cudaEventRecord(the_device.marks[static_cast<size_t>(slot)], the_device.lane[lane]);
    return device_check(error, "an event for a profile failed");
}

Status device_mark_times(Device *, double *seconds, int n)
{
    for (int i = 0; i < n; i++) {
        float ms = 0;
        cudaEvent_t mark = the_device.marks[static_cast<size_t>(i)];
        cudaError_t error = cudaEventSynchronize(mark);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, the_device.marks[0], mark);
        TRY(device_check(error, "the events of a profile failed"));
        seconds[i] = the_device.mark_zero + 1e-3 * (double)ms;
    }
    return OK;
}

/* ---- graphs ---- */

Status device_capture_begin(Device *)
{
    cudaError_t error = cudaStreamBeginCapture(the_device.compute, cudaStreamCaptureModeThreadLocal);
    the_device.capturing = error == cudaSuccess;
    return device_check(error, "a graph cannot be captured");
}

Status device_capture_end(Device *, void **graph)
{
    cudaGraph_t captured = NULL;
    cudaGraphExec_t made = NULL;
    *graph = NULL;
    the_device.capturing = false;
    cudaError_t error = cudaStreamEndCapture(the_device.compute, &captured);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, captured, 0);
    if (error == cudaSuccess) error = cudaGraphUpload(made, the_device.compute);
    if (captured) (void)cudaGraphDestroy(captured);
    if (error != cudaSuccess) {
        if (made) (void)cudaGraphExecDestroy(made);
        (void)cudaGetLastError(); /* a failed capture does not harm later calls */
        return device_check(error, "a graph was not captured");
    }
    *graph = made;
    return OK;
}

Status device_graph_launch(Device *, void *graph)
{
    cudaError_t error = cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), the_device.compute);
    if (error == cudaSuccess && the_device.sync) error = cudaStreamSynchronize(the_device.compute);
    return device_check(error, "a graph failed");
}

void device_graph_free(Device *, void *graph)
{
    if (graph) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}
