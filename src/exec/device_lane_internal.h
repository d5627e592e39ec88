/* The comm lane of a device whose ranks are connected GPU to GPU: collectives are queued on its stream, behind what the
   compute lane was given before, and go on by themselves. */
#ifndef CAIRN_EXEC_DEVICE_LANE_INTERNAL_H
#define CAIRN_EXEC_DEVICE_LANE_INTERNAL_H

#include "exec/exec.h"

typedef struct DeviceLane DeviceLane;

/* `grads`, `stats`: where they lie on the device. `event`: the first of three slots that nobody else uses. */
DeviceLane *device_lane_open(const ExecRanks *ranks, Device *device, float *grads, Stats *stats, int32_t event);
void device_lane_close(DeviceLane *l); /* takes NULL */
/* What is queued next begins after all that the compute lane was given so far. */
Status device_lane_enter(DeviceLane *l);
/* Collective; between enter and leave. The sum of a bucket (−1: the stats); before a step's first, all meet. */
Status device_lane_sum(DeviceLane *l, int32_t bucket);
/* Collective; likewise. Every rank's part of a table or of the weights to all. */
Status device_lane_share(DeviceLane *l, float *x, bool weights);
/* The lane that was chosen is compute again; `join`: what it is given next begins after all that was queued so far. */
Status device_lane_leave(DeviceLane *l, bool join);
/* Until all that was queued has ended, and what was given to compute before leave(join): E_PEER where a rank is lost.
   Adds the seconds that compute waited to *waited. */
Status device_lane_wait(DeviceLane *l, double *waited);

#endif
