/* The choice between gradients from GPU to GPU and gradients through the hosts' memory. */
#ifndef CAIRN_TRAIN_GPUS_H
#define CAIRN_TRAIN_GPUS_H

#include "comm/device.h"
#include "config/config.h"
#include "kernels/backend.h"
#include "train/ranks.h"

/* Collective; the backend is open, without regions yet. Connects the GPUs as --comm says. The caller closes
   *comm_device, which is NULL where the host exchanges. Afterwards the backend's memory account includes NCCL, and its
   `describe` NCCL's version. Rank 0 logs the choice and the reason. E_USAGE where --comm nccl is impossible. */
Status gpus_connect(const Config *c, Ranks *ranks, Backend *backend, CommDevice **comm_device);

#endif
