/* The pace of each rank: the time of its own work in each step, without its waits for others. A rank whose own work
   takes longest is the one that all others wait for. Written to OUT/ranks.jsonl (docs/files.md) when training ends.
   Meanwhile rank 0 warns of a rank that becomes several times slower than the others. */
#ifndef CAIRN_TRAIN_PACE_H
#define CAIRN_TRAIN_PACE_H

#include "train/run.h"

typedef struct Pace Pace;

Pace *pace_open(Ranks *ranks);
/* A step that took so long, of which this rank waited so long for others and for the network. */
void pace_step(Pace *p, double seconds, double waited);
/* Collective. Rank 0 writes the file, and logs the rank that the others waited for. */
Status pace_finish(Pace *p, const Run *run);
void pace_close(Pace *p); /* takes NULL */

#endif
