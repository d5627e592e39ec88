/* The backend's table: opening and closing, types, row buckets, memory, and the ops of cuda.h. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sdpa.h"

#include <stdio.h>
#include <stdlib.h>

extern "C" Status CAIRN_CUDA_ENTRY(Backend *b);

const uint64_t cairn_module_abi = BACKEND_ABI;

static int opened; /* how often */

static Status open_libraries(const BackendOptions *options)
{
    bool cudnn = options->attention == ATTENTION_CUDNN;
    const DeviceInfo *d = device_info();
    if (opened > 0 && cudnn != sdpa_is_open())
        return fail(E_USAGE, "backend '%s': it is open with attention made in another way; close it first",
                    CAIRN_CUDA_NAME);
    TRY(product_open(options->tf32));
    Status status = cudnn ? sdpa_open(d->major, d->minor) : OK;
    if (status != OK && opened == 0) product_close();
    return status;
}

static Status cuda_open(Backend *b, const BackendOptions *options)
{
    TRY(device_open(options->local_rank));
    Status status = open_libraries(options);
    if (status != OK) {
        device_close();
        return status;
    }
    if (opened++ == 0) device_settle();
    const DeviceInfo *d = device_info();
    b->threads = 1;
    b->tf32 = options->tf32;
    b->cudnn = sdpa_is_open();
    const char *names = getenv("CAIRN_NVTX");
    b->ranges = names && *names && strcmp(names, "0") != 0;
    char *text = mem_printf("%s (sm_%d%d), driver %d.%d, CUDA %d.%d, %s, attention %s", d->name, d->major, d->minor,
                            d->driver / 1000, d->driver % 1000 / 10, d->runtime / 1000, d->runtime % 1000 / 10,
                            product_describe(), b->cudnn ? sdpa_describe() : "own");
    snprintf(b->describe, sizeof b->describe, "%.159s", text);
    free(text);
    snprintf(b->unit, sizeof b->unit, "%s", d->unit);
    if (options->attention == ATTENTION_AUTO)
        log_debug("attention: our own kernels; cuDNN's, which no GPU has run yet, are for --attention cudnn alone");
    return OK;
}

static void cuda_close(Backend *b)
{
    if (b->cudnn) sdpa_close();
    if (--opened == 0) {
        product_close();
        nvml_close();
    }
    device_close();
}

static bool cuda_supports(const Backend *b, Dtype compute, char *why_not, size_t size)
{
    if (compute == BF16 || compute == F16 || (compute == F32 && !b->cudnn)) return true;
    snprintf(why_not, size,
             compute == F32 ? "--attention cudnn computes in bf16 and fp16, not %s"
                            : "the cuda backend computes in f32, bf16 and f16, not %s",
             dtype_name(compute));
    return false;
}

static Dtype cuda_best_compute(const Backend *b)
{
    (void)b;
    return BF16;
}

/* Eight buckets from each power of two to the next, so that at most an eighth of the rows are for nothing. */
#define SMALLEST 64

static int64_t cuda_bucket(int64_t n, int64_t capacity)
{
    int64_t step = SMALLEST;
    if (n > SMALLEST)
        for (step = SMALLEST / 8; step * 16 < n; step *= 2) continue;
    int64_t rows = n < 1 ? step : (n + step - 1) / step * step;
    return rows < capacity ? rows : capacity;
}

/* One copy, as the weight lies: the forward product and DGRAD both read it. */
static size_t cuda_copy_bytes(Dtype compute, int64_t n, int64_t k, bool transposed)
{
    return transposed ? 0 : (size_t)n * (size_t)k * dtype_size(compute);
}

static void cuda_memory(size_t *total, size_t *available, size_t *context)
{
    const DeviceInfo *d = device_info();
    *total = d->memory;
    *available = d->free;
    *context = d->context;
}

static Status cuda_sample(DeviceSample *s)
{
    TRY(nvml_open(device_info()->bus));
    return nvml_sample(s);
}

static void cuda_release(void *p, size_t bytes)
{
    (void)bytes;
    device_free(p);
}

static void cuda_unpin(void *p, size_t bytes)
{
    (void)bytes;
    device_unpin(p);
}

Status cairn_cuda_fill(Backend *b)
{
    *b = {};
    b->name = CAIRN_CUDA_NAME;
    b->open = cuda_open;
    b->close = cuda_close;
    b->supports = cuda_supports;
    b->best_compute = cuda_best_compute;
    b->bucket = cuda_bucket;
    b->copy_bytes = cuda_copy_bytes;
    b->imagine = product_imagine;
    b->alloc = device_alloc;
    b->release = cuda_release;
    b->upload = device_upload;
    b->download = device_download;
    b->wait = device_wait;
    b->capture_begin = device_capture_begin;
    b->capture_end = device_capture_end;
    b->graph_launch = device_graph_launch;
    b->graph_free = device_graph_free;
    b->mark = device_mark;
    b->mark_times = device_mark_times;
    b->sample = cuda_sample;
    b->range_begin = cuda_range_begin;
    b->range_end = cuda_range_end;
#ifdef CAIRN_CUDA_HOST
    const char *as_device = getenv("CAIRN_TEST_CUDA_HOST_DEVICE"); /* tests: 1, or MiB of memory of its own */
    b->device = as_device != NULL;
    bool own = as_device && atoi(as_device) > 1;
#else
    b->device = true;
    bool own = true;
#endif
    if (b->device) { /* whoever plays no device is read without being waited for */
        b->lane = device_lane;
        b->event_record = device_event_record;
        b->event_wait = device_event_wait;
        b->pin = device_pin;
        b->unpin = cuda_unpin;
        b->stream = cuda_stream;
        b->event_done = device_event_done;
        b->settle = device_settle;
    }
    if (own) {
        b->memory = cuda_memory;
        b->used = device_used;
    }
#define X(id, run, scratch, prepare) b->op[OP_##id] = {run, scratch, prepare};
    CUDA_OP_LIST(X)
#undef X
    return OK;
}

Status CAIRN_CUDA_ENTRY(Backend *b) { return cairn_cuda_fill(b); }
