/* Collectives between GPUs, by NCCL (cairn_nccl.so). */
#pragma once

#include "comm/mesh/comm.h"
#include "comm/mesh/nccl.h"

/* The device communicator. It belongs to a Comm of its ranks, whose watch aborts it when a rank is lost, and must
   be closed before that Comm. NCCL chooses the order of its sums, with the same bits on all ranks. One thread at a
   time. */
typedef struct CommDevice CommDevice;

/* Collective. `unit` identifies this rank's GPU in the whole cluster. E_USAGE, with the same text on all ranks, where a
   rank cannot load the module or two ranks share a GPU. */
Status comm_device_ready(Comm *c, const char *unit);
/* After comm_device_ready: connects `size` ranks of `c`, in this order, which all call it; ranks that open several with
   each other do so in one order. At most `most_blocks` of a GPU's thread blocks move its data (0: as NCCL chooses). All
   calls use the calling thread's current device. */
Status comm_device_open(Comm *c, const int *ranks, int size, int most_blocks, CommDevice **device); // (size)
const char *comm_device_describe(const CommDevice *d);                                              /* "NCCL 2.28.9" */
/* Collective. These queue work on a cudaStream_t, in place in device memory: F32, F64 or I64; parts as in
   comm_gather_parts, or with `sum` as in comm_reduce_scatter. After E_PEER the communicator is aborted and can only be
   closed. */
Status comm_device_sum(CommDevice *d, void *x, size_t count, Dtype type, void *stream);
Status comm_device_parts(CommDevice *d, float *x, const Intervals *parts, bool sum, void *stream);
/* Queues these as one operation, in which none waits for another; not collective. The n-th sending to a rank meets its
   n-th receipt. The first of each also connects the two ranks, which wait for each other in it. */
Status comm_device_pass(CommDevice *d, const CommPass *passes, int n, void *stream);
/* Among the ranks of the communicator. */
int comm_device_rank(const CommDevice *d);
int comm_device_size(const CommDevice *d);
/* Waits until `done` reports true: that all queued work has ended, or (comm_device_await) something else, while queued
   work goes on. Call it before any other wait for the stream. E_PEER where a rank is lost or NCCL failed: the queued
   work was aborted, and its results are invalid. */
Status comm_device_wait(CommDevice *d, Status (*done)(void *self, bool *done), void *self);
Status comm_device_await(CommDevice *d, Status (*done)(void *self, bool *done), void *self);
/* Never waits. E_PEER as above. */
Status comm_device_check(CommDevice *d);
/* Aborts queued work. Call it after a failure, before a wait for the stream. Takes NULL. */
void comm_device_abort(CommDevice *d);
void comm_device_close(CommDevice *d); /* takes NULL */
