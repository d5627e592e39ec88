/* The device under the CUDA backend: one GPU, its memory and its lanes (streams). kernels/cuda/device.cu is the real
   one; tests/cuda_host/device_host.cc its twin on the host, with the same meaning. One device per process, opened by
   the backend's open(); all calls from the step's thread. CAIRN_CUDA_SYNC=1 waits after every launch, so that errors
   name the launch that failed. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/device.h"

typedef struct {
    char name[128];   /* "NVIDIA H200" */
    int major, minor; /* compute capability */
    int multiprocessors;
    size_t shared;       /* bytes of shared memory that a block may have */
    size_t memory, free; /* bytes of the device, and free when it was opened */
    size_t context;      /* bytes that context and libraries took until device_measure_memory */
    int driver, runtime; /* versions as CUDA writes them: 13000 */
    char bus[32];        /* PCI bus "00000000:0A:00.0", NVML's name of the GPU */
    char unit[80];       /* "GPU-5d3f… at 00000000:0A:00.0", unique among all GPUs */
} DeviceInfo;

/* Chooses GPU local_rank (the only one where CUDA_VISIBLE_DEVICES leaves one; any where CAIRN_SHARED_GPU is set), makes
   context and streams, loads all kernels. E_USAGE with the reason and advice: no driver, no GPU, fewer GPUs
   than ranks, an architecture this build has no code for, a driver too old, another GPU open. Does nothing where this
   GPU is open. */
Status device_open(int local_rank);
void device_close(void); /* does nothing where none is open */
const DeviceInfo *device_info(void);

/* Functions of the Device (kernels/device.h); with one GPU per process they also take NULL for it, and those that free
   take NULL. device_alloc's E_MEMORY has the bytes wanted and free. device_sample is in table.cu, ranges in nvtx.cu.

   While a graph is captured a lane belongs to it from its first wait on, and compute must have waited for it at the
   end. Nothing may be allocated, uploaded, downloaded or waited for by the host in between. The twin's stream is a
   CudaHostStream. */
#define X(result, name, arguments) result device_##name arguments;
DEVICE_LIST(X)
#undef X

/* ---- for ops: on the lane that was chosen ---- */
/* Between device memory and memory of `pin`, any way; returns at once. */
Status cuda_copy(void *to, const void *from, size_t bytes);
Status cuda_clear(void *p, size_t bytes);         /* zeros */
Status cuda_launched(const char *file, int line); /* of the launch before */
/* CUDA_LAUNCH calls it first: allows the kernel `shared` bytes of dynamic shared memory; false if the grid is empty. */
bool cuda_launchable(const void *kernel, unsigned x, unsigned y, unsigned z, size_t shared);
bool cuda_list_kernel(const void *kernel); /* at start-up, for device_open to load; true */
#ifdef __cplusplus
}
#endif
