/* What device.cu (opening, lanes, graphs) and device_memory.cu (allocations, copies) share. */
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <vector>

extern "C" {
#include "kernels/cuda/device.h"
}

/* Pinned memory between the host's own memory and the device, in two halves. */
struct Staging {
    char *half[2];
    cudaEvent_t done[2];
    int current;
    size_t used; /* of the current half */
};

struct OpenDevice {
    bool opened;
    int rank, gpu; /* the local rank it was opened for; its number among those that are visible */
    DeviceInfo info;
    size_t used_before;                            /* bytes of the device that were in use, for info.context */
    cudaStream_t lane[DEVICE_LANES], compute, now; /* compute: the first; now: the lane that was chosen */
    std::vector<cudaEvent_t> events, marks;        /* by slot; marks have times */
    double mark_zero;                              /* mark 0 by the host's clock */
    Staging up, down;
    std::map<void *, void *> blocks;       /* address that device_alloc returned → cudaMalloc's */
    std::map<const char *, size_t> pinned; /* device_pin's: address → bytes */
    bool sync, capturing;
    const char *file; /* of the last launch */
    int line;
};
extern OpenDevice the_device;

/* `status` with the GPU's name, CUDA's text and advice. */
Status device_fail(Status status, cudaError_t error, const char *what);
/* OK, or E_FAIL. The device runs asynchronously: an error shows at a later call, and every call after it fails too. So
   the message names the last launch. */
Status device_check(cudaError_t error, const char *what);
/* device_check of work that was queued on the chosen lane; under CAIRN_CUDA_SYNC waits for it first. */
Status device_queued(cudaError_t error, const char *what);
cudaError_t device_lanes_wait(void);

Status staging_open(Staging *s);
void staging_close(Staging *s);
