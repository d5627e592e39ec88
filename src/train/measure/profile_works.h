/* The works of a pipeline's ranks in profiled steps: OUT/profile/timeline.svg and work.csv (docs/files.md), which rank
   0 writes. */
#pragma once

#include "train/measure/trace.h"
#include "train/parts/place.h"
#include "train/session/session.h"

/* A work, the sums or the update of a step. */
enum { STEP_SUM = WORK_INVERSE + 1, STEP_UPDATE };
/* The times of one on a rank; seconds since the trace's time 0, by the clock of rank 0. */
typedef struct {
    int rank, kind;              /* WorkKind, or one of the above */
    int stage, direction;        /* of sums and the update −1 */
    int64_t step, micro, tokens; /* of sums, the update and inverses −1 and 0 */
    double begin, end;
} StepWork;

/* Adds this rank's works of the last step, as StepWorks. `zero`: clock_monotonic at the trace's time 0. */
void works_take(const Session *s, int rank, int64_t step, double zero, Buf *works);
void works_trace(const Buf *works, const Trace *trace, int track, Buf *events);
/* `works`: StepWorks of all ranks and profiled steps. */
Status works_write(const RankPlace *place, const char *dir, const Buf *works);

/* ---- between ranks; Collective ---- */
/* How far this rank's clock_monotonic is ahead of rank 0's, and a bound of the error: 0 on the host of rank 0, else of
   the shortest of 16 round trips. */
Status works_clock(Ranks *ranks, double *ahead, double *error);
/* The bytes of all ranks in rank order, on rank 0; the others' become empty. */
Status works_collect(Ranks *ranks, Buf *bytes);
