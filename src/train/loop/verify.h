/* Computes steps of a finished or stopped run again and compares them with its metrics.jsonl, and the state behind them
   with its checkpoints. Writes nothing. */
#pragma once

#include "train/job/job.h"

typedef struct Verify {
    const char *dir;     /* the run's output folder */
    int64_t first, last; /* steps to compare */
    /* Facts that the run's bits depended on (resume_fingerprint); NULL: unknown. */
    const Json *fingerprint;
    bool pipelined;   /* trained by a pipeline */
    Buf recorded;     /* metrics.jsonl. Rank 0's, and during the steps on all ranks */
    size_t at;        /* in `recorded`: the end of the line that was found last */
    int64_t lines;    /* up to there */
    int64_t compared; /* steps so far, that agreed */
    int checkpoints;  /* the same */
    int damaged;      /* checkpoints of these steps, which were not compared */
} Verify;

/* Collective. The steps after r->progress.step up to verify->last; r->session is open. E_DIFFERS names the first step
   that differs, or whose checkpoint does, and in what. */
Status verify_steps(Run *r);
/* Collective; before the session is opened. E_USAGE where the number of ranks, the data or the precision differ from
   the run's; warns of other differences. */
Status verify_fingerprint(const Run *r);
