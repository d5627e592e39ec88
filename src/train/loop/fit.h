/* --fit-schedule: the number of steps that --max-time has room for, from the time of some steps, which are taken back.
 */
#pragma once

#include "train/job/job.h"

typedef struct {
    double took, step_s, evaluation_s, save_s; /* evaluation_s: with the write of best/; save_s: a guess */
    double reserve_s;                          /* for the save at the end */
} FitTimes;

/* Collective, with the session ready and no step made. Makes some steps (run->tried) and an evaluation, then gives the
   session its moments and the run its progress as they were before; the caller gives it its weights again. E_STOPPED:
   by a signal, with nothing saved. */
Status fit_measure(Run *run, FitTimes *t);
/* Collective, when the weights are there again: as many steps as end within --max-time, the same on all ranks. E_USAGE
   says what was measured where those are too few. */
Status fit_steps(const Run *run, const FitTimes *t, int64_t *steps);
