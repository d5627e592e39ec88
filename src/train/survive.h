/* A rank was lost: who of the others saves what all of them still hold. Unsharded each has the whole state of its last
   update, so one checkpoint is enough; sharded, one whose host's memory holds every slice of a generation writes that.
 */
#ifndef CAIRN_TRAIN_SURVIVE_H
#define CAIRN_TRAIN_SURVIVE_H

#include "train/saving.h"
#include "train/snapshots.h"
#include "train/train.h"

/* Collective, before training: rank 0's texts for state.json to all, because any rank may have to write it. */
Status survive_share(Run *run);

/* What a survivor calls to save: `set` (of `list`) from memory, or, where that is NULL, the state that it holds. */
typedef Status (*SurviveSave)(void *context, const SnapshotList *list, const SnapshotSet *set);

/* After E_PEER, whose message it takes up. Each survivor that can save says so through the rendezvous store; the lowest
   that does within a few seconds calls `save`, where the output folder is the run's: it holds the folder's lock
   meanwhile, so that never two write. The others wait for it a while, because a launcher may end all when one ends.
   `saving`: rank 0's, whose last save is waited for where memory is saved; may be NULL. `saved`: by this one, the state
   that it holds, so memory has served. Always E_PEER. */
Status survive(const Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved);

#endif
