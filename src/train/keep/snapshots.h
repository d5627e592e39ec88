/* Snapshots beside the training loop (state/snapshot/snapshot.h): when they are taken, and how often. They begin
   between two steps and are copied by a thread while the next forward and backward run; the update waits for it. */
#pragma once

#include "state/snapshot/persist.h"
#include "train/job/job.h"
#include "train/planner/snapshot_room.h"

typedef struct Snapshots Snapshots;

/* Collective. *s is NULL where no snapshots are taken. A run that does not resume automatically (--resume never or
   FOLDER) gets a new key, so snapshots of the earlier run are not its own. */
Status snapshots_open(Snapshots **s, Run *run);
/* Collective, between two steps: commits a complete snapshot and begins the next where it is due. `step_s`: seconds of
   a step. */
Status snapshots_step(Snapshots *s, double step_s); /* takes NULL */
/* Before the meeting of the step `step`: this rank's votes. */
void snapshots_vote(Snapshots *s, int64_t step); /* takes NULL */
/* Before weights or moments change: waits until they are copied. */
void snapshots_wait_copied(Snapshots *s); /* takes NULL */

/* After a lost rank: all slices of the run in this host's memory (state/snapshot/persist.h), those of dead ranks and
   copies included. Waits for the thread. NULL has none. */
void snapshots_gather(Snapshots *s, RunSnapshots *held);

SnapshotStats snapshots_stats(const Snapshots *s); /* zeros for NULL */

/* `discard`: the state is on disk, so the run's snapshots are removed, those of earlier processes too. Takes NULL. */
void snapshots_close(Snapshots *s, const Run *run, bool discard);
