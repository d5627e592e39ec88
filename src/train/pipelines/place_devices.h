/* Communicators between the GPUs of a run's ranks, which --comm opens before a plan is made, because they take device
   memory. */
#pragma once

#include "exec/pipeline.h"
#include "train/parts/place.h"
#include "train/ranks/ranks.h"

typedef struct {
    CommDevice *holders; /* of this place's stages, without a pipeline all ranks; NULL: this rank alone */
    CommDevice *uses;    /* of this pipeline, the two places with a tied word embedding, and this is one; NULL */
    PipelineWire wires[PIPELINE_WIRES];
    int n_wires;
} PlaceDevices;

/* Collective. `tied`: the model's word embedding has two uses; `tree`: with virtual ranks. The caller closes *devices,
   also after a failure. */
Status place_devices_open(const Grid *grid, bool tied, bool tree, Ranks *ranks, const Backend *b,
                          PlaceDevices **devices);
const char *place_devices_describe(const PlaceDevices *d); /* "NCCL 2.28.9" */
void place_devices_close(PlaceDevices *d);                 /* takes NULL */
