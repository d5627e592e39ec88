/* The device under the CUDA backend: one GPU, its memory and its lanes (streams). kernels/cuda/device.cu is the real
   one; tests/cuda_host/device_host.cc its twin on the host, with the same meaning. One device per process, opened by
   the backend's open(); all calls from the step's thread. CAIRN_CUDA_SYNC=1 waits after every launch, so that the one
   at fault is named. */
#ifndef CAIRN_KERNELS_CUDA_DEVICE_H
#define CAIRN_KERNELS_CUDA_DEVICE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

typedef struct {
    char name[128];   /* "NVIDIA H200" */
    int major, minor; /* compute capability */
    int multiprocessors;
    size_t memory, free; /* bytes of the device, and free when it was opened */
    size_t context;      /* bytes that context and modules took until device_settle */
    int driver, runtime; /* versions as CUDA writes them: 13000 */
    char bus[32];        /* of PCI, "00000000:0A:00.0": by it NVML knows the GPU */
    char unit[80];       /* "GPU-5d3f… at 00000000:0A:00.0": no other GPU anywhere has that */
} DeviceInfo;

/* Chooses GPU local_rank (the only one where CUDA_VISIBLE_DEVICES leaves one; any where CAIRN_SHARED_GPU is set), makes
   context and streams, loads all kernels. E_USAGE with what was found and what to do: no driver, no GPU, fewer GPUs
   than ranks, an architecture this build has no code for, a driver too old. May be opened several times for the same
   GPU; the last close ends it. */
Status device_open(int local_rank);
void device_settle(void); /* all libraries are loaded: measures `context` and `free` */
size_t device_used(void); /* bytes that are taken now: `context`, and what `free` has fallen by since */
void device_close(void);
const DeviceInfo *device_info(void);

Status device_alloc(size_t bytes, void **p); /* zeroed, 4096-byte aligned; E_MEMORY says how much is wanted and free */
void device_free(void *p);                   /* takes NULL */
/* In the order of the compute lane. `from` may be changed when upload returns; download returns when `to` is written.
   E_FAIL where the device failed, now or before. */
Status device_upload(void *to, const void *from, size_t bytes);
Status device_download(void *to, const void *from, size_t bytes);
Status device_wait(void); /* until all lanes are idle; E_FAIL says which launch or copy failed */

/* Lanes: compute, copy, comm, as plan.h counts them. Launches, device_copy, records and waits are of the lane chosen
   last, at first of the compute lane; events are numbered by whom uses them (backend.h). While a graph is captured a
   lane belongs to it from its first wait on, and compute must have waited for it at the end. */
#define DEVICE_LANES 3
Status device_lane(int lane);
Status device_event_record(int slot);
Status device_event_wait(int slot);
Status device_event_done(int slot, bool *done); /* the lane got to where it was recorded last; never waits */
/* Between device memory and memory of device_pin, either way; returns at once. */
Status device_copy(void *to, const void *from, size_t bytes);
Status device_pin(size_t bytes, void **p); /* zeroed host memory that stays where it is; E_MEMORY */
void device_unpin(void *p);                /* takes NULL */

void *cuda_stream(void);                          /* cudaStream_t of the lane; of the twin cuda_host/stream.h's */
Status cuda_launched(const char *file, int line); /* of the launch before */
/* What CUDA_LAUNCH does before: false if the grid is empty; lets the kernel have so much dynamic shared memory. */
bool cuda_launchable(const void *kernel, unsigned x, unsigned y, unsigned z, size_t shared);
bool cuda_list_kernel(const void *kernel); /* at start-up, for device_open to load; true */

/* Graphs: what is launched between begin and end becomes one graph of the compute lane. It runs when it is launched,
   not while it is captured. Nothing may be allocated, uploaded, downloaded or waited for by the host in between. */
Status device_capture_begin(void);
Status device_capture_end(void **graph); /* ends a failed capture too; then *graph is NULL */
Status device_graph_launch(void *graph);
void device_graph_free(void *graph); /* takes NULL */

/* Marks and names for profiles: backend.h. */
Status device_mark(int lane, int slot);
Status device_mark_times(double *seconds, int n); // (n)
void cuda_range_begin(const char *name);
void cuda_range_end(void);
#ifdef __cplusplus
}
#endif

#endif
