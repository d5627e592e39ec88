/* After a lost rank: one survivor saves. Unsharded each holds the whole state of its last update, so one checkpoint is
   enough. Sharded, a survivor whose host's memory holds every slice of a generation writes that. */
#ifndef CAIRN_TRAIN_SURVIVE_H
#define CAIRN_TRAIN_SURVIVE_H

#include "train/saving.h"
#include "train/snapshots.h"
#include "train/train.h"

/* Saves `set` (of `list`) from memory; NULL: the survivor's own state. */
typedef Status (*SurviveSave)(void *context, const SnapshotList *list, const SnapshotSet *set);

/* After E_PEER; continues its message. Each survivor that can save announces it through the rendezvous store. The
   lowest that does so within a few seconds calls `save` under the output folder's lock, so two never write. The others
   wait for it a while, because a launcher may end all when one ends. `saving`: rank 0's, whose last save ends before
   memory is saved; may be NULL. `saved`: this rank saved its own state, so snapshots are not needed. Always E_PEER. */
Status survive(const Run *run, Snapshots *snapshots, Saving *saving, SurviveSave save, void *context, bool *saved);

#endif
