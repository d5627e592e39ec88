/* The comm lane of an Exec with several ranks: it sums gradients over the ranks while backward runs, and shares what
   each rank updated. One implementation exchanges the host's memory, the other queues collectives on the device's comm
   lane, from GPU to GPU. */
#ifndef CAIRN_EXEC_COMM_LANE_INTERNAL_H
#define CAIRN_EXEC_COMM_LANE_INTERNAL_H

#include "exec/exec.h"

typedef struct CommLane CommLane;

struct CommLane {
    /* The gradients of REDUCE `i` are complete: sums them over all ranks, now or until `wait`. Collective. Before a
       step's first sum the ranks meet. */
    Status (*post)(CommLane *l, InstrId i, const RowCounts *rows);
    /* SHARE `i`: each rank's part of a table or of the weights to all; the next instr may read it. Collective. */
    Status (*share)(CommLane *l, InstrId i, const RowCounts *rows);
    /* Until all that was posted has ended. `broken`: the range failed, so the other ranks may never come. Adds to the
       Exec's comm_waited, and where the host sums to comm_busy. */
    Status (*wait)(CommLane *l, bool broken, const RowCounts *rows);
    void (*close)(CommLane *l); /* after wait */
};

/* Collective: one sum of a bucket of gradients, or one SHARE, between holders who are reached as all ranks are. */
Status comm_lane_sum(const Exec *e, const Holders *all, int32_t bucket);
Status comm_lane_share(const Exec *e, const Holders *all, InstrId i);
/* Collective, over the lane's own Comm: losses and correct counts of a step, at `stats` in the backend's memory. */
Status comm_lane_sum_losses(const Exec *e, Stats *stats);
/* `most`: REDUCEs of a step; `stats`: in the backend's memory. `e` must outlive the lane. */
Status comm_lane_open_host(Exec *e, Stats *stats, int most, CommLane **lane);
/* Takes three event slots of the device, from e->n_events on. */
Status comm_lane_open_device(Exec *e, Stats *stats, CommLane **lane);

#endif
