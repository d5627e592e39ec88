/* One GPU through the CUDA runtime, which is linked statically and finds the driver by itself: without one the module
   loads all the same, and device_open says what is missing. Plain C++ without kernels: tests/cuda_host/test_device.cc
   compiles it against a runtime of its own. */
#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "kernels/cuda/device.h"
#include "kernels/cuda/nvml.h"
}

#define STAGING ((size_t)8 << 20) /* bytes of each of the two pinned buffers of either direction */
#define PAGE    ((size_t)4096)
#define KERNELS 1024

typedef struct {
    char *half[2]; /* pinned */
    cudaEvent_t done[2];
    int current;
    size_t used; /* of the current half */
} Staging;

typedef struct {
    void *given, *base;
} Block;

static struct {
    int opened;    /* how often */
    int rank, gpu; /* the local rank it was opened for; its number among those that are visible */
    DeviceInfo info;
    size_t used_before;                            /* bytes of the device that were in use, for info.context */
    cudaStream_t lane[DEVICE_LANES], compute, now; /* compute: the first; now: the lane that was chosen */
    cudaEvent_t *events;                           /* (n_events) by slot */
    int n_events, cap_events;
    Staging up, down;
    Block *blocks;
    int n_blocks, cap_blocks;
    bool sync, capturing;
    const char *file; /* of the last launch */
    int line;
} device;

static struct {
    const void *kernel[KERNELS];
    int n;
} listed;

bool cuda_list_kernel(const void *kernel)
{
    CHECK(listed.n < KERNELS, "more than %d kernels", KERNELS);
    listed.kernel[listed.n++] = kernel;
    return true;
}

const DeviceInfo *device_info(void) { return &device.info; }
void *cuda_stream(void) { return device.now; }

/* ---- errors ---- */

/* What to say beside CUDA's own words. */
static const struct {
    cudaError_t error;
    const char *advice;
} advices[] = {
    {cudaErrorECCUncorrectable, "its memory is damaged; use another GPU (CUDA_VISIBLE_DEVICES) or reset this one"},
    {cudaErrorDevicesUnavailable, "another process has it for itself; wait, or use another GPU (CUDA_VISIBLE_DEVICES)"},
    {cudaErrorMemoryAllocation, "use less memory (--memory-budget), or end what else runs on this GPU"},
    {cudaErrorIllegalAddress, "a fault of the program: please report it with the output under CAIRN_CUDA_SYNC=1"},
    {cudaErrorMisalignedAddress, "a fault of the program: please report it with the output under CAIRN_CUDA_SYNC=1"},
    {cudaErrorNoKernelImageForDevice, "this build has no code for this GPU; build with CAIRN_CUDA_ARCHITECTURES"},
};

static Status failed(Status status, cudaError_t error, const char *what)
{
    const char *advice = NULL;
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (advices[i].error == error) advice = advices[i].advice;
    return fail(status, "GPU %s: %s: %s (%s)%s%s", device.info.name, what, cudaGetErrorString(error),
                cudaGetErrorName(error), advice ? "; " : "", advice ? advice : "");
}

/* The device works behind our back: an error shows at some later call, and every call after it fails too. */
static Status failed_later(cudaError_t error, const char *what)
{
    if (!device.file) return failed(E_FAIL, error, what);
    char *where = mem_printf("%s, after the launch at %s:%d%s", what, device.file, device.line,
                             device.sync ? "" : " (the fault is there or before; CAIRN_CUDA_SYNC=1 names it)");
    Status status = failed(E_FAIL, error, where);
    free(where);
    return status;
}

Status cuda_launched(const char *file, int line)
{
    device.file = file;
    device.line = line;
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess && device.sync && !device.capturing) error = cudaStreamSynchronize(device.now);
    return error == cudaSuccess ? OK : failed_later(error, "a launch failed");
}

#define PLAIN_SHARED ((size_t)48 << 10) /* more dynamic shared memory must be asked for */

bool cuda_launchable(const void *kernel, unsigned x, unsigned y, unsigned z, size_t shared)
{
    /* where this is refused, so is the launch, and that is reported */
    if (shared > PLAIN_SHARED)
        (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    return x && y && z;
}

/* ---- marks: events, by which a profile knows when a lane got somewhere ---- */

static struct {
    cudaEvent_t *event; /* (n) */
    int n, cap;
    double zero; /* event 0 by the host's clock */
} marks;

static void marks_free(void)
{
    for (int i = 0; i < marks.n; i++) (void)cudaEventDestroy(marks.event[i]);
    free(marks.event);
    marks = {};
}

static cudaError_t marks_grow(int n)
{
    if (n > marks.cap) {
        marks.cap = n > 2 * marks.cap ? n : 2 * marks.cap;
        marks.event = static_cast<cudaEvent_t *>(mem_resize(marks.event, (size_t)marks.cap, sizeof(cudaEvent_t)));
    }
    for (; marks.n < n; marks.n++) {
        cudaError_t error = cudaEventCreate(&marks.event[marks.n]);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

/* An idle lane gets to an event at once: between two looks at the host's clock, some microseconds apart. */
static cudaError_t marks_tie(void)
{
    cudaError_t error = cudaStreamSynchronize(device.compute);
    if (error != cudaSuccess) return error;
    double before = clock_monotonic();
    error = cudaEventRecord(marks.event[0], device.compute);
    if (error == cudaSuccess) do
            error = cudaEventQuery(marks.event[0]);
        while (error == cudaErrorNotReady);
    marks.zero = 0.5 * (before + clock_monotonic());
    return error;
}

Status device_mark(Device *, int lane, int slot)
{
    cudaError_t error = marks_grow(slot + 1);
    if (error == cudaSuccess) error = slot == 0 ? marks_tie() : cudaEventRecord(marks.event[slot], device.lane[lane]);
    return error == cudaSuccess ? OK : failed_later(error, "an event for a profile failed");
}

Status device_mark_times(Device *, double *seconds, int n)
{
    for (int i = 0; i < n; i++) {
        float ms = 0;
        cudaError_t error = cudaEventSynchronize(marks.event[i]);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, marks.event[0], marks.event[i]);
        if (error != cudaSuccess) return failed_later(error, "the events of a profile failed");
        seconds[i] = marks.zero + 1e-3 * (double)ms;
    }
    return OK;
}

/* ---- opening ---- */

/* Memory of the GPU in use by everyone, from NVML where the driver has it: it needs no context. 0: unknown. */
static size_t memory_in_use(int gpu)
{
    char *bus = device.info.bus;
    DeviceSample s = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof device.info.bus, gpu) != cudaSuccess || nvml_open(bus) != OK) return 0;
    bool told = nvml_sample(&s) == OK && s.memory_bytes > 0;
    nvml_close();
    return told ? static_cast<size_t>(s.memory_bytes) : 0;
}

static Status find_driver(DeviceInfo *info)
{
    int runtime = 0, driver = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    info->runtime = runtime;
    info->driver = driver;
    if (driver == 0)
        return fail(E_USAGE,
                    "backend 'cuda': this machine has no NVIDIA driver (libcuda.so.1), and this build needs one for "
                    "CUDA %d. Install it, or use --backend cpu",
                    runtime / 1000);
    if (driver / 1000 < runtime / 1000)
        return fail(E_USAGE,
                    "backend 'cuda': the NVIDIA driver is too old: it knows CUDA %d.%d, and this build needs %d.0. "
                    "Install a newer driver, or use --backend cpu",
                    driver / 1000, driver % 1000 / 10, runtime / 1000);
    return OK;
}

/* Launchers leave each rank a GPU of its own, or all of them to all. */
static Status find_gpu(int rank, int *gpu)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *shared = getenv("CAIRN_SHARED_GPU");
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0))
        return fail(E_USAGE, "backend 'cuda': no GPU is visible (CUDA_VISIBLE_DEVICES is %s%s%s). Use --backend cpu",
                    visible ? "'" : "", visible ? visible : "not set", visible ? "'" : "");
    if (error != cudaSuccess)
        return fail(E_USAGE, "backend 'cuda': the driver gives no GPU: %s (%s). Use --backend cpu",
                    cudaGetErrorString(error), cudaGetErrorName(error));
    *gpu = rank;
    if ((visible && n == 1) || (shared && *shared && strcmp(shared, "0") != 0)) *gpu = rank % n;
    if (*gpu >= n)
        return fail(E_USAGE,
                    "backend 'cuda': local rank %d wants GPU %d, but %d %s visible. Start at most %d rank%s here", rank,
                    rank, n, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    return OK;
}

static Status describe(int gpu, DeviceInfo *info)
{
    cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, gpu);
    if (error != cudaSuccess) return failed(E_USAGE, error, "its properties");
    snprintf(info->name, sizeof info->name, "%.127s", p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->multiprocessors = p.multiProcessorCount;
    info->memory = p.totalGlobalMem;
    snprintf(info->unit, sizeof info->unit, "GPU-");
    for (size_t i = 0; i < sizeof p.uuid.bytes; i++)
        snprintf(info->unit + 4 + 2 * i, 3, "%02x", (unsigned)(unsigned char)p.uuid.bytes[i]);
    if (p.major < 8)
        return fail(E_USAGE, "backend 'cuda': %s has compute capability %d.%d; 8.0 (Ampere) or newer is needed", p.name,
                    p.major, p.minor);
    return OK;
}

/* Kernels are loaded when first touched. Ours are now, so that none is loaded in a step; those of libraries are not:
   they hold far more than is ever used. */
static Status load_kernels(void)
{
    for (int i = 0; i < listed.n; i++) {
        cudaFuncAttributes attributes;
        cudaError_t error = cudaFuncGetAttributes(&attributes, listed.kernel[i]);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            return failed(E_USAGE, error, "loading the kernels");
        }
    }
    return OK;
}

static Status staging_open(Staging *s)
{
    for (int i = 0; i < 2; i++) {
        cudaError_t error = cudaMallocHost(reinterpret_cast<void **>(&s->half[i]), STAGING);
        if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
        if (error != cudaSuccess) return failed(E_MEMORY, error, "pinned host memory");
    }
    s->current = 0;
    s->used = 0;
    return OK;
}

static void staging_close(Staging *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->done[i]) (void)cudaEventDestroy(s->done[i]);
        if (s->half[i]) (void)cudaFreeHost(s->half[i]);
    }
    *s = {};
}

static Status open_gpu(int local_rank)
{
    DeviceInfo *info = &device.info;
    int gpu = 0;
    TRY(find_driver(info));
    TRY(find_gpu(local_rank, &gpu));
    TRY(describe(gpu, info));
    device.gpu = gpu;
    device.used_before = memory_in_use(gpu);
    snprintf(info->unit + strlen(info->unit), sizeof info->unit - strlen(info->unit), " at %s", info->bus);
    /* the step's thread sleeps while it waits, and leaves its core to the loader */
    (void)cudaInitDevice(gpu, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    cudaError_t error = cudaSetDevice(gpu);
    for (int l = 0; l < DEVICE_LANES && error == cudaSuccess; l++)
        error = cudaStreamCreateWithFlags(&device.lane[l], cudaStreamNonBlocking);
    device.compute = device.now = device.lane[0];
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return failed(E_USAGE, error, "it cannot be used");
    }
    TRY(load_kernels());
    TRY(staging_open(&device.up));
    return staging_open(&device.down);
}

Status device_open(int local_rank)
{
    const char *sync = getenv("CAIRN_CUDA_SYNC");
    if (device.opened) {
        if (local_rank != device.rank)
            return fail(E_USAGE, "backend 'cuda': GPU %d is open, and a process has one GPU; asked for GPU %d",
                        device.rank, local_rank);
        device.opened++;
        return OK;
    }
    device.sync = sync && *sync && strcmp(sync, "0") != 0;
    device.rank = local_rank;
    device.opened = 1;
    Status status = open_gpu(local_rank);
    if (status != OK) device_close();
    return status;
}

void device_settle(Device *)
{
    size_t available = 0, total = 0, used = memory_in_use(device.gpu);
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return;
    device.info.free = available;
    /* without NVML: everything in use, also by others */
    device.info.context = used && used >= device.used_before ? used - device.used_before : total - available;
}

size_t device_used(Device *)
{
    size_t available = 0, total = 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
    return device.info.context + (device.info.free > available ? device.info.free - available : 0);
}

void device_close(void)
{
    if (device.opened == 0 || --device.opened > 0) return;
    marks_free();
    staging_close(&device.up);
    staging_close(&device.down);
    for (int i = 0; i < device.n_events; i++) (void)cudaEventDestroy(device.events[i]);
    for (int l = 0; l < DEVICE_LANES; l++)
        if (device.lane[l]) (void)cudaStreamDestroy(device.lane[l]);
    free(device.events);
    free(device.blocks);
    device = {};
}

/* ---- memory ---- */

Status device_alloc(Device *, size_t bytes, void **p)
{
    size_t available = 0, total = 0;
    Block block = {NULL, NULL};
    *p = NULL;
    cudaError_t error = bytes > SIZE_MAX - 2 * PAGE ? cudaErrorMemoryAllocation
                                                    : cudaMalloc(&block.base, bytes + PAGE); /* which aligns less */
    if (error == cudaSuccess) {
        block.given = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(block.base) + PAGE - 1) / PAGE * PAGE);
        error = cudaMemsetAsync(block.given, 0, bytes, device.compute);
        if (error != cudaSuccess) (void)cudaFree(block.base);
    }
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        return fail(E_MEMORY, "GPU %s: %zu bytes are wanted, %zu of %zu are free", device.info.name, bytes, available,
                    total);
    }
    if (error != cudaSuccess) return failed_later(error, "an allocation failed");
    if (device.n_blocks == device.cap_blocks) {
        device.cap_blocks = device.cap_blocks ? 2 * device.cap_blocks : 16;
        device.blocks = static_cast<Block *>(mem_resize(device.blocks, (size_t)device.cap_blocks, sizeof(Block)));
    }
    device.blocks[device.n_blocks++] = block;
    *p = block.given;
    return OK;
}

static cudaError_t lanes_wait(void)
{
    cudaError_t error = cudaSuccess;
    for (int l = 0; l < DEVICE_LANES && error == cudaSuccess; l++) error = cudaStreamSynchronize(device.lane[l]);
    return error;
}

void device_release(Device *, void *p, size_t)
{
    for (int i = 0; p && i < device.n_blocks; i++)
        if (device.blocks[i].given == p) {
            (void)lanes_wait();
            (void)cudaFree(device.blocks[i].base);
            device.blocks[i] = device.blocks[--device.n_blocks];
            return;
        }
}

/* ---- lanes ---- */

Status device_lane(Device *, int lane)
{
    CHECK(lane >= 0 && lane < DEVICE_LANES, "lane %d", lane);
    device.now = device.lane[lane];
    return OK;
}

static cudaError_t events_grow(int n)
{
    if (n > device.cap_events) {
        device.cap_events = n > 2 * device.cap_events ? n : 2 * device.cap_events;
        device.events =
            static_cast<cudaEvent_t *>(mem_resize(device.events, (size_t)device.cap_events, sizeof(cudaEvent_t)));
    }
    for (; device.n_events < n; device.n_events++) {
        cudaError_t error = cudaEventCreateWithFlags(&device.events[device.n_events], cudaEventDisableTiming);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

Status device_event_record(Device *, int slot)
{
    cudaError_t error = events_grow(slot + 1);
    if (error == cudaSuccess) error = cudaEventRecord(device.events[slot], device.now);
    return error == cudaSuccess ? OK : failed_later(error, "an event failed");
}

Status device_event_wait(Device *, int slot)
{
    CHECK(slot >= 0 && slot < device.n_events, "event %d was never recorded", slot);
    cudaError_t error = cudaStreamWaitEvent(device.now, device.events[slot], 0);
    return error == cudaSuccess ? OK : failed_later(error, "a lane cannot wait for an event");
}

Status device_event_done(Device *, int slot, bool *done)
{
    CHECK(slot >= 0 && slot < device.n_events, "event %d was never recorded", slot);
    cudaError_t error = cudaEventQuery(device.events[slot]);
    *done = error == cudaSuccess;
    return error == cudaSuccess || error == cudaErrorNotReady ? OK : failed_later(error, "the device failed");
}

Status cuda_copy(void *to, const void *from, size_t bytes)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device.now);
    if (error == cudaSuccess && device.sync && !device.capturing) error = cudaStreamSynchronize(device.now);
    return error == cudaSuccess ? OK : failed_later(error, "a copy between device and host failed");
}

Status device_pin(Device *, size_t bytes, void **p)
{
    *p = NULL;
    cudaError_t error = cudaHostAlloc(p, bytes ? bytes : 1, cudaHostAllocDefault); /* whole pages */
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail(E_MEMORY, "the machine has no %zu bytes of memory that can be pinned for GPU %s", bytes,
                    device.info.name);
    }
    if (error != cudaSuccess) return failed_later(error, "pinned host memory");
    memset(*p, 0, bytes);
    return OK;
}

void device_unpin(Device *, void *p, size_t)
{
    if (!p) return;
    (void)lanes_wait();
    (void)cudaFreeHost(p);
}

/* ---- copies of the host's own memory: through pinned memory, so that the host need not wait for what was launched
 * before ---- */

/* Up to `want` bytes of pinned memory that no copy uses any more. */
static cudaError_t stage(Staging *s, size_t want, char **at, size_t *got)
{
    if (s->used == STAGING) {
        cudaError_t error = cudaEventRecord(s->done[s->current], device.compute);
        s->current = !s->current;
        s->used = 0;
        if (error == cudaSuccess) error = cudaEventSynchronize(s->done[s->current]); /* at once if never recorded */
        if (error != cudaSuccess) return error;
    }
    *got = want < STAGING - s->used ? want : STAGING - s->used;
    *at = s->half[s->current] + s->used;
    s->used += *got;
    return cudaSuccess;
}

Status device_upload(Device *, void *to, const void *from, size_t bytes)
{
    const char *source = static_cast<const char *>(from);
    char *target = static_cast<char *>(to);
    while (bytes > 0) {
        char *at = NULL;
        size_t n = 0;
        cudaError_t error = stage(&device.up, bytes, &at, &n);
        if (error == cudaSuccess) {
            memcpy(at, source, n);
            error = cudaMemcpyAsync(target, at, n, cudaMemcpyHostToDevice, device.compute);
        }
        if (error != cudaSuccess) return failed_later(error, "a copy to the device failed");
        source += n;
        target += n;
        bytes -= n;
    }
    return OK;
}

/* While one piece is copied out of pinned memory the device writes the next into the other half. */
Status device_download(Device *, void *to, const void *from, size_t bytes)
{
    Staging *s = &device.down;
    const char *source = static_cast<const char *>(from);
    char *target = static_cast<char *>(to);
    cudaError_t error = cudaSuccess;
    for (size_t start = 0, before = 0, n_before = 0; error == cudaSuccess && (start < bytes || n_before > 0);) {
        int now = s->current;
        size_t n = bytes - start < STAGING ? bytes - start : STAGING;
        if (n > 0) error = cudaMemcpyAsync(s->half[now], source + start, n, cudaMemcpyDeviceToHost, device.compute);
        if (n > 0 && error == cudaSuccess) error = cudaEventRecord(s->done[now], device.compute);
        if (n_before > 0 && error == cudaSuccess) error = cudaEventSynchronize(s->done[!now]);
        if (n_before > 0 && error == cudaSuccess) memcpy(target + before, s->half[!now], n_before);
        before = start;
        n_before = n;
        start += n;
        s->current = !now;
    }
    return error == cudaSuccess ? OK : failed_later(error, "a copy from the device failed");
}

Status cuda_wait(void)
{
    cudaError_t error = lanes_wait();
    return error == cudaSuccess ? OK : failed_later(error, "the device failed");
}

/* ---- graphs ---- */

Status device_capture_begin(Device *)
{
    cudaError_t error = cudaStreamBeginCapture(device.compute, cudaStreamCaptureModeThreadLocal);
    device.capturing = error == cudaSuccess;
    return error == cudaSuccess ? OK : failed_later(error, "a graph cannot be captured");
}

Status device_capture_end(Device *, void **graph)
{
    cudaGraph_t captured = NULL;
    cudaGraphExec_t made = NULL;
    *graph = NULL;
    device.capturing = false;
    cudaError_t error = cudaStreamEndCapture(device.compute, &captured);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, captured, 0);
    if (error == cudaSuccess) error = cudaGraphUpload(made, device.compute);
    if (captured) (void)cudaGraphDestroy(captured);
    if (error != cudaSuccess) {
        if (made) (void)cudaGraphExecDestroy(made);
        (void)cudaGetLastError(); /* a failed capture does not harm what comes after it */
        return failed_later(error, "a graph was not captured");
    }
    *graph = made;
    return OK;
}

Status device_graph_launch(Device *, void *graph)
{
    cudaError_t error = cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), device.compute);
    if (error == cudaSuccess && device.sync) error = cudaStreamSynchronize(device.compute);
    return error == cudaSuccess ? OK : failed_later(error, "a graph failed");
}

void device_graph_free(Device *, void *graph)
{
    if (graph) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

/* ---- for the table ---- */

void device_memory(Device *, size_t *total, size_t *available, size_t *context)
{
    *total = device.info.memory;
    *available = device.info.free;
    *context = device.info.context;
}

Status device_wait(Device *) { return cuda_wait(); }
void *device_stream(Device *) { return cuda_stream(); }
