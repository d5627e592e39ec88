/* The pace of each rank: the time of its own work in each step, without its waits for others. A rank whose own work
   takes longest is the one that all others wait for: it is logged after some steps and at the end, when all goes to
   OUT/ranks.jsonl (docs/files.md). Meanwhile rank 0 warns of a rank that becomes several times slower than the others.
   */
#pragma once

#include "train/job/job.h"
#include "train/measure/sampling.h"

typedef struct Pace Pace;

Pace *pace_open(Ranks *ranks);
/* A step that took so long, of which this rank waited so long for others and for the network. */
void pace_step(Pace *p, double seconds, double waited);
/* Collective after some of the steps, nothing after the others: rank 0 logs the rank that the others wait for. */
Status pace_look(Pace *p, const Run *run);
/* Collective. Rank 0 writes the file, with what `sampling` (may be NULL) saw of each rank's GPU, logs the rank that the
   others waited for, and sets run->waited_for. */
Status pace_finish(Pace *p, Run *run, Sampling *sampling);
void pace_close(Pace *p); /* takes NULL */
