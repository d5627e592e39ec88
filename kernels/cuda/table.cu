/* The backend's table: opening and closing, types, row buckets, the device's functions, and the ops of cuda.h. */
#include "kernels/cuda/kernel.cuh"

#include "kernels/cuda/choices.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fused_gelu.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/sdpa.h"

#include <stdio.h>
#include <stdlib.h>

extern "C" Status CAIRN_CUDA_ENTRY(Backend *b);

const uint64_t cairn_module_abi = BACKEND_ABI;

static int opened; /* how often; the device and its libraries are open as long as it is not 0 */

static Status needs_ampere(const char *what, const char *instead)
{
    const DeviceInfo *d = device_info();
    if (d->major >= 8) return OK;
    return fail(E_USAGE, "%s needs compute capability 8.0 (Ampere), and %s has %d.%d; use %s", what, d->name, d->major,
                d->minor, instead);
}

static Status open_device(const BackendOptions *options)
{
    bool cudnn = options->attention == ATTENTION_CUDNN;
    if (opened > 0 && cudnn != sdpa_is_open())
        return fail(E_USAGE, "backend '%s': it is open with attention made in another way; close it first",
                    CAIRN_CUDA_NAME);
    TRY(device_open(options->local_rank));
    if (options->tf32) TRY(needs_ampere("--precision tf32", "--precision fp16 or fp32"));
    if (cudnn) TRY(needs_ampere("--attention cudnn", "--attention own"));
    TRY(attention_native_open());
    TRY(fused_gelu_open());
    TRY(product_open(options->tf32));
    return cudnn ? sdpa_open(device_info()->major, device_info()->minor) : OK;
}

static void close_device(void)
{
    sdpa_close();
    product_close();
    nvml_close();
    device_close();
}

static Status cuda_open(Backend *b, const BackendOptions *options)
{
    Status status = open_device(options);
    if (status != OK) {
        if (opened == 0) close_device();
        return status;
    }
    if (opened++ == 0) device_measure_memory(b->device);
    const DeviceInfo *d = device_info();
    b->threads = 1;
    b->tf32 = options->tf32;
    b->cudnn = sdpa_is_open();
    b->device->ranges = env_is_on("CAIRN_NVTX");
    const char *native = attention_native_products();
    char *text =
        mem_printf("%s (sm_%d%d), driver %d.%d, CUDA %d.%d, %s, attention %s%s%s%s%s", d->name, d->major, d->minor,
                   d->driver / 1000, d->driver % 1000 / 10, d->runtime / 1000, d->runtime % 1000 / 10,
                   product_describe(), b->cudnn ? sdpa_describe() : "own", native ? ", " : "", native ? native : "",
                   attention_in_two_passes() ? ", backward in two passes" : "", fused_gelu_describe());
    CHECK(strlen(text) + sizeof ", NCCL 2.28.9" <= sizeof b->describe, "no room for '%s'", text);
    strcpy(b->describe, text);
    free(text);
    snprintf(b->device->unit, sizeof b->device->unit, "%s", d->unit);
    if (options->attention == ATTENTION_AUTO)
        log_debug("attention: our own kernels; cuDNN's, which no GPU has run yet, need --attention cudnn");
    return OK;
}

static void cuda_close(Backend *)
{
    if (--opened == 0) close_device();
}

/* The open device; none is open where a plan is made for another one. */
static bool is_turing(void) { return opened > 0 && device_info()->major < 8; }

static bool cuda_supports(const Backend *b, Dtype compute, char *why_not, size_t size)
{
    if (compute == BF16 && is_turing() && needs_ampere("bf16", "--precision fp16 or fp32") != OK) {
        snprintf(why_not, size, "%s", status_message());
        return false;
    }
    if (compute == BF16 || compute == F16 || (compute == F32 && !b->cudnn)) return true;
    snprintf(why_not, size,
             compute == F32 ? "--attention cudnn computes in bf16 and fp16, not %s"
                            : "the cuda backend computes in f32, bf16 and f16, not %s",
             dtype_name(compute));
    return false;
}

static Dtype cuda_best_compute(const Backend *) { return is_turing() ? F32 : BF16; }

/* Eight buckets from each power of two to the next, so that at most an eighth of the rows are empty. */
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

Status device_sample(Device *, DeviceSample *s)
{
    TRY(nvml_open(device_info()->bus));
    return nvml_sample(s);
}

/* A product that fails does so again where a step needs it, and is reported there. */
static void cuda_measure_memory(Device *d)
{
    if (product_first() != OK) log_debug("memory is measured without a first product: %s", status_message());
    device_measure_memory(d);
}

/* One per process. */
static Device *cuda_device(void)
{
    static Device d;
#define X(result, name, arguments) d.name = device_##name;
    DEVICE_LIST(X)
#undef X
    d.measure_memory = cuda_measure_memory;
    const char *graphs = getenv("CAIRN_CUDA_GRAPHS");
    if (graphs && strcmp(graphs, "0") == 0) {
        d.capture_begin = NULL;
        d.capture_end = NULL;
        d.graph_launch = NULL;
        d.graph_free = NULL;
    }
    return &d;
}

static void cuda_imagine(int major)
{
    product_imagine(major);
    fused_gelu_imagine(major);
}

Status CAIRN_CUDA_ENTRY(Backend *b)
{
    *b = {};
    b->name = CAIRN_CUDA_NAME;
    b->open = cuda_open;
    b->close = cuda_close;
    b->supports = cuda_supports;
    b->best_compute = cuda_best_compute;
    b->bucket = cuda_bucket;
    b->copy_bytes = cuda_copy_bytes;
    b->device = cuda_device();
    b->give_choices = choices_give;
    b->take_choices = choices_take;
    b->imagine = cuda_imagine;
    b->fuses = fused_gelu_takes;
#define X(id, run, scratch, prepare) b->op[OP_##id] = {run, scratch, prepare};
    CUDA_OP_LIST(X)
#undef X
    return OK;
}
