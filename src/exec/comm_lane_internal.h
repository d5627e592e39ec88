/* The comm lane: a thread that sums over the ranks what the step's thread gives it, in the order in which it was given,
   while that goes on computing. On a device, whose memory only the step's thread reaches, that thread does it itself,
   when it waits. */
#ifndef CAIRN_EXEC_COMM_LANE_INTERNAL_H
#define CAIRN_EXEC_COMM_LANE_INTERNAL_H

#include "exec/exec.h"

typedef struct CommLane CommLane;

/* What was summed, and when: seconds of clock_monotonic. */
typedef struct {
    InstrId instr;
    double posted, begin, end;
} CommLaneRecord;

/* `most`: REDUCEs of a step. `memory` and `ranks` must live as long; `grads`, `stats`: where they lie in the backend's
   memory. */
Status comm_lane_open(CommLane **lane, const ExecRanks *ranks, const Memory *memory, float *grads, Stats *stats,
                      int most);
void comm_lane_close(CommLane *lane); /* after comm_lane_wait; takes NULL */
/* What `bucket` (−1: the stats) is made of is complete. */
void comm_lane_post(CommLane *lane, InstrId instr, int32_t bucket);
/* Collective, at once; nothing may be posted. `x` is in the backend's memory. */
Status comm_lane_share(CommLane *lane, float *x, bool weights);
/* Until all that was posted is done, or could not be. The records are valid until the next post. */
Status comm_lane_wait(CommLane *lane, const CommLaneRecord **records, int *n);

#endif
