/* Do the ranks' gradients go from GPU to GPU, or through the hosts' memory? */
#ifndef CAIRN_TRAIN_GPUS_H
#define CAIRN_TRAIN_GPUS_H

#include "comm/device.h"
#include "config/config.h"
#include "kernels/backend.h"
#include "train/ranks.h"

/* Collective; the backend is open, none of its regions is. Connects the GPUs as --comm says: *device, for the caller to
   close, is NULL where the host exchanges. `backend` then knows NCCL: what it takes of the device's memory, its version
   among the libraries. Says once which way was taken, and why. E_USAGE where --comm nccl cannot be had. */
Status gpus_connect(const Config *c, Ranks *ranks, Backend *backend, CommDevice **device);

#endif
