/* After a lost rank: the survivors save one checkpoint, each writing a part. Where all hold the whole state of their
   last update, the parts are even shares of it; where it is scattered, they are slices of a generation in their hosts'
   memories, which count together. */
#pragma once

#include "train/job/job.h"
#include "train/keep/saving.h"
#include "train/keep/snapshots.h"

/* How the leader saves, into `folder`, whose lock it holds: `set` from memory, of whose pieces rank `rank` has some in
   `list`; or, where `set` is NULL, its own state. `fill` (TrainingState.fill; may be NULL) brings in the others. */
typedef struct {
    const char *folder;
    const SnapshotList *list;
    const SnapshotSet *set;
    int rank;
    CheckpointFill *fill;
    void *fill_context;
} SurviveFrom;
typedef Status (*SurviveSave)(void *context, const SurviveFrom *from);

/* After E_PEER; continues its message. Each survivor announces itself to the others (train/keep/team_state.h). The
   lowest that can write calls `save` under the output folder's lock; where a process holds that lock which is frozen or
   leads others, under the lock of a spare folder (train/keep/spare.h). The others write their parts and wait for its
   end, because a launcher may end all when one ends. If the leader ends or freezes meanwhile, another one leads. `save`
   is called again without the members that failed. Rank 0 gives its lock of the folder back if it does not lead.
   `saving`: rank 0's, whose last save ends before; may be NULL. `saved`: this rank's own state is saved, so snapshots
   are not needed. Always E_PEER. For tests: CAIRN_TEST_SPARE_WAIT is the duration of the wait for the folder's lock. */
Status survive(Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved);
