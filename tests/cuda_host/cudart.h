/* A CUDA runtime with one or more GPUs in the host's memory, for tests of kernels/cuda/device.cu: `fake` has its driver
   and GPUs; any call can be made to fail, once or from then on (as after a GPU fell off the bus). Copies are done at
   once. Prototypes are those of cuda_runtime_api.h. Included once, by the test. */
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

struct FakeGpu {
    int driver, gpus, major, minor;
    size_t total, free;
    cudaError_t count_error;
    const char *fails;  /* the call that fails; NULL: none */
    int after;          /* calls of it that succeed first */
    cudaError_t error;  /* with this */
    bool for_good;      /* every later call fails too */
    cudaError_t sticky; /* the error that all calls return by now */
    cudaError_t last;   /* of the last call that failed, until it is asked for */
    int copies;         /* cudaMemcpyAsync */
    int live;           /* streams, events and allocations that were not released */
};
static FakeGpu fake;

static void fake_reset()
{
    fake = {};
    fake.driver = CUDART_VERSION;
    fake.gpus = 1;
    fake.major = 9;
    fake.total = size_t{64} << 20;
    fake.free = size_t{60} << 20;
}

static cudaError_t fake_call(const char *name)
{
    if (fake.sticky != cudaSuccess) return fake.sticky;
    if (!fake.fails || strcmp(fake.fails, name) != 0 || fake.after-- > 0) return cudaSuccess;
    if (fake.for_good) fake.sticky = fake.error;
    fake.after = 0;
    fake.last = fake.error;
    return fake.error;
}

template <typename T> static cudaError_t fake_make(const char *name, T *made, size_t bytes = 1)
{
    cudaError_t error = fake_call(name);
    if (error != cudaSuccess) return error;
    *made = static_cast<T>(calloc(1, bytes));
    fake.live++;
    return cudaSuccess;
}

/* Releasing works on a lost GPU too, on the host's side. */
static cudaError_t fake_end(void *p)
{
    if (p) fake.live--;
    free(p);
    return fake.sticky;
}

extern "C" {
const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorIllegalAddress       ? "cudaErrorIllegalAddress"
           : error == cudaErrorECCUncorrectable   ? "cudaErrorECCUncorrectable"
           : error == cudaErrorDevicesUnavailable ? "cudaErrorDevicesUnavailable"
                                                  : "cudaErrorOther";
}
const char *cudaGetErrorString(cudaError_t) { return "words of the runtime"; }
cudaError_t cudaGetLastError()
{
    cudaError_t error = fake.last;
    fake.last = cudaSuccess;
    return fake.sticky != cudaSuccess ? fake.sticky : error;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake.driver;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = fake.gpus;
    return fake.count_error;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = {};
    strcpy(p->name, "Fake");
    p->major = fake.major;
    p->minor = fake.minor;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = fake.total;
    return fake_call("cudaGetDeviceProperties");
}
cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int)
{
    strncpy(bus, "00000000:00:00.0", static_cast<size_t>(size));
    return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) { return fake_call("cudaInitDevice"); }
cudaError_t cudaSetDevice(int) { return fake_call("cudaSetDevice"); }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *) { return fake_call("cudaFuncGetAttributes"); }
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return fake_call("cudaFuncSetAttribute"); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    void *made = nullptr;
    cudaError_t error = fake_make("cudaStreamCreateWithFlags", &made);
    *s = static_cast<cudaStream_t>(made);
    return error;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return fake_end(s); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return fake_call("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return fake_call("cudaStreamWaitEvent"); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return fake_call("cudaStreamBeginCapture"); }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph)
{
    *graph = nullptr;
    return fake_call("cudaStreamEndCapture");
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graph, cudaGraph_t, unsigned long long)
{
    void *made = nullptr;
    cudaError_t error = fake_make("cudaGraphInstantiate", &made);
    *graph = static_cast<cudaGraphExec_t>(made);
    return error;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return fake_call("cudaGraphUpload"); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return fake_call("cudaGraphLaunch"); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return fake_end(graph); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    void *made = nullptr;
    cudaError_t error = fake_make("cudaEventCreateWithFlags", &made);
    *e = static_cast<cudaEvent_t>(made);
    return error;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return fake_end(e); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return fake_call("cudaEventRecord"); }
cudaError_t cudaEventQuery(cudaEvent_t) { return fake_call("cudaEventQuery"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return fake_call("cudaEventSynchronize"); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 1;
    return fake_call("cudaEventElapsedTime");
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = fake.free;
    *total = fake.total;
    return fake_call("cudaMemGetInfo");
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    return bytes > fake.free ? cudaErrorMemoryAllocation : fake_make("cudaMalloc", p, bytes);
}
cudaError_t cudaFree(void *p) { return fake_end(p); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return fake_make("cudaMallocHost", p, bytes); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) { return fake_make("cudaHostAlloc", p, bytes); }
cudaError_t cudaFreeHost(void *p) { return fake_end(p); }
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t)
{
    cudaError_t error = fake_call("cudaMemsetAsync");
    if (error == cudaSuccess) memset(p, value, bytes);
    return error;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    cudaError_t error = fake_call("cudaMemcpyAsync");
    fake.copies++;
    if (error == cudaSuccess) memcpy(to, from, bytes);
    return error;
}
}
