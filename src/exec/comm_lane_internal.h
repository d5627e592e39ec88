/* The comm lane of an Exec with several ranks, or of all chunks of a pipeline's place: it sums gradients over their
   holders while backward runs, and shares what each rank updated. One implementation exchanges the host's memory, the
   other queues collectives on the device's comm lane, from GPU to GPU. */
#ifndef CAIRN_EXEC_COMM_LANE_INTERNAL_H
#define CAIRN_EXEC_COMM_LANE_INTERNAL_H

#include "exec/exec.h"

typedef struct CommLane CommLane;

/* A sum of a step. Times are seconds of clock_monotonic. */
typedef struct {
    Exec *exec; /* of the plan with its REDUCE */
    InstrId instr;
    int32_t bucket; /* a piece of Holding.mine; -1: losses and correct counts */
    int stage;      /* of the piece */
    bool later;     /* see ExecRanks.later */
    bool posted;    /* in this step; the step's thread alone writes it */
    double when, begin, end;
} CommTurn;

struct CommLane {
    /* The terms of a turn are complete: sums them over the holders, now or until `wait`. Collective. Before a step's
       first sum the ranks meet. */
    Status (*post)(CommLane *l, CommTurn *t, const RowCounts *rows);
    /* SHARE `i`: each rank's part of a table or of the weights to all; the next instr may read it. Collective. */
    Status (*share)(CommLane *l, InstrId i, const RowCounts *rows);
    /* Until all that was posted has ended. `broken`: the step failed, so the other ranks may never come. Adds to the
       comm_waited of `exec`, and where the host sums to its comm_busy. */
    Status (*wait)(CommLane *l, bool broken, const RowCounts *rows);
    void (*close)(CommLane *l); /* after wait */
    Exec *exec;                 /* the first chunk's, which closes the lane */
    bool beside;                /* sums run while works do */
    /* (n) in the order in which the host sums them, the same on all holders: a turn waits until those before it are
       posted. Stages descend, and a stage's pieces are in the order of backward. */
    CommTurn *turns;
    int n;
};

/* Collective: one sum, or one SHARE (an ExecStep). */
Status comm_lane_sum(const Exec *e, int32_t bucket);
Status comm_lane_share(Exec *e, InstrId i, const RowCounts *rows);
/* Collective, over the lane's own Comm: losses and correct counts of a step. */
Status comm_lane_sum_losses(const Exec *e);
/* The lane has its exec and turns. */
Status comm_lane_open_host(CommLane as, CommLane **lane);
/* Takes three event slots of the device, and counts them in n_events of the Exec. */
Status comm_lane_open_device(CommLane as, CommLane **lane);

#endif
