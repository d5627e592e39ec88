/* Chooses how ranks exchange gradients: from GPU to GPU, or through the hosts' memory. */
#ifndef CAIRN_TRAIN_GPUS_H
#define CAIRN_TRAIN_GPUS_H

#include "comm/device.h"
#include "config/config.h"
#include "kernels/backend.h"
#include "train/ranks.h"

/* Collective, with the backend open and no region allocated. Connects the GPUs as --comm asks. The caller closes
   *device; NULL: the host exchanges. `backend` then counts NCCL's device memory, and its version among the libraries.
   Logs the choice and its reason once. E_USAGE: --comm nccl is impossible. */
Status gpus_connect(const Config *c, Ranks *ranks, Backend *backend, CommDevice **device);

#endif
