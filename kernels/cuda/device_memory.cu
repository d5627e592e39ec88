/* The device's memory: allocations, pinned host memory, copies. */
#include "kernels/cuda/device_internal.h"

#include <iterator>

#define STAGING ((size_t)8 << 20) /* bytes of each half of a Staging */
#define PAGE    ((size_t)4096)

Status device_alloc(Device *, size_t bytes, void **p)
{
    void *base = NULL, *given = NULL;
    *p = NULL;
    cudaError_t error = bytes > SIZE_MAX - 2 * PAGE ? cudaErrorMemoryAllocation
                                                    : cudaMalloc(&base, bytes + PAGE); /* which aligns less */
    if (error == cudaSuccess) {
        given = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(base) + PAGE - 1) / PAGE * PAGE);
        error = cudaMemsetAsync(given, 0, bytes, the_device.compute);
        if (error != cudaSuccess) (void)cudaFree(base);
    }
    if (error == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        return fail(E_MEMORY, "GPU %s: %zu bytes are wanted, %zu of %zu are free", the_device.info.name, bytes,
                    available, total);
    }
    TRY(device_check(error, "an allocation failed"));
    the_device.blocks[given] = base;
    *p = given;
    return OK;
}

void device_release(Device *, void *p, size_t)
{
    auto block = the_device.blocks.find(p);
    if (block == the_device.blocks.end()) return;
    (void)device_lanes_wait();
    (void)cudaFree(block->second);
    the_device.blocks.erase(block);
}

Status device_pin(Device *, size_t bytes, void **p)
{
    *p = NULL;
    cudaError_t error = cudaHostAlloc(p, bytes ? bytes : 1, cudaHostAllocDefault); /* whole pages */
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail(E_MEMORY, "the machine has no %zu bytes of memory that can be pinned for GPU %s", bytes,
                    the_device.info.name);
    }
    TRY(device_check(error, "an allocation of pinned host memory failed"));
    memset(*p, 0, bytes);
    the_device.pinned[static_cast<const char *>(*p)] = bytes;
    return OK;
}

void device_unpin(Device *, void *p, size_t)
{
    if (!p) return;
    (void)device_lanes_wait();
    the_device.pinned.erase(static_cast<const char *>(p));
    (void)cudaFreeHost(p);
}

/* ---- on the chosen lane ---- */

Status cuda_copy(void *to, const void *from, size_t bytes)
{
    return device_queued(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, the_device.now),
                         "a copy of the device's memory failed");
}

Status device_copy(Device *, void *to, const void *from, size_t bytes) { return cuda_copy(to, from, bytes); }

Status cuda_clear(void *p, size_t bytes)
{
    return bytes == 0 ? OK : device_queued(cudaMemsetAsync(p, 0, bytes, the_device.now), "clearing memory failed");
}

/* ---- copies of memory of device_pin: at once, and waited for ---- */

static bool is_pinned(const void *p, size_t bytes)
{
    const char *at = static_cast<const char *>(p);
    auto next = the_device.pinned.upper_bound(at);
    if (next == the_device.pinned.begin()) return false;
    auto block = std::prev(next);
    return at + bytes <= block->first + block->second;
}

static cudaError_t copy_pinned(void *to, const void *from, size_t bytes, cudaMemcpyKind way)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, way, the_device.compute);
    return error == cudaSuccess ? cudaStreamSynchronize(the_device.compute) : error;
}

/* ---- copies of the host's own memory: through pinned memory, so that the host need not wait for earlier work ---- */

Status staging_open(Staging *s)
{
    for (int i = 0; i < 2; i++) {
        cudaError_t error = cudaMallocHost(reinterpret_cast<void **>(&s->half[i]), STAGING);
        if (error == cudaSuccess) /* a thread that waits sleeps */
            error = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming | cudaEventBlockingSync);
        if (error != cudaSuccess) return device_fail(E_MEMORY, error, "an allocation of pinned host memory failed");
    }
    return OK;
}

void staging_close(Staging *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->done[i]) (void)cudaEventDestroy(s->done[i]);
        if (s->half[i]) (void)cudaFreeHost(s->half[i]);
    }
    *s = {};
}

/* Up to `want` bytes of pinned memory that no copy uses. */
static cudaError_t staging_take(Staging *s, size_t want, char **at, size_t *got)
{
    if (s->used == STAGING) {
        cudaError_t error = cudaEventRecord(s->done[s->current], the_device.compute);
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
    if (is_pinned(from, bytes))
        return device_check(copy_pinned(to, from, bytes, cudaMemcpyHostToDevice), "a copy to the device failed");
    while (bytes > 0) {
        char *at = NULL;
        size_t n = 0;
        cudaError_t error = staging_take(&the_device.up, bytes, &at, &n);
        if (error == cudaSuccess) {
            memcpy(at, source, n);
            error = cudaMemcpyAsync(target, at, n, cudaMemcpyHostToDevice, the_device.compute);
        }
        TRY(device_check(error, "a copy to the device failed"));
        source += n;
        target += n;
        bytes -= n;
    }
    return OK;
}

/* While one piece is copied out of pinned memory the device writes the next into the other half. */
Status device_download(Device *, void *to, const void *from, size_t bytes)
{
    if (is_pinned(to, bytes))
        return device_check(copy_pinned(to, from, bytes, cudaMemcpyDeviceToHost), "a copy from the device failed");
    Staging *s = &the_device.down;
    const char *source = static_cast<const char *>(from);
    char *target = static_cast<char *>(to);
    cudaError_t error = cudaSuccess;
    for (size_t start = 0, before = 0, n_before = 0; error == cudaSuccess && (start < bytes || n_before > 0);) {
        int now = s->current;
        size_t n = bytes - start < STAGING ? bytes - start : STAGING;
        if (n > 0) error = cudaMemcpyAsync(s->half[now], source + start, n, cudaMemcpyDeviceToHost, the_device.compute);
        if (n > 0 && error == cudaSuccess) error = cudaEventRecord(s->done[now], the_device.compute);
        if (n_before > 0 && error == cudaSuccess) error = cudaEventSynchronize(s->done[!now]);
        if (n_before > 0 && error == cudaSuccess) memcpy(target + before, s->half[!now], n_before);
        before = start;
        n_before = n;
        start += n;
        s->current = !now;
    }
    return device_check(error, "a copy from the device failed");
}
