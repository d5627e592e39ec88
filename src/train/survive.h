/* A rank was lost: who of the others saves what all of them still hold. Each has the whole state of its last update
   (but of moments that are sharded), so one checkpoint is enough. */
#ifndef CAIRN_TRAIN_SURVIVE_H
#define CAIRN_TRAIN_SURVIVE_H

#include "state/lock.h"
#include "train/train.h"

/* Each survivor says through the rendezvous store that it lives; the lowest that does within a few seconds saves, where
   the output folder is the run's. It holds the folder's lock meanwhile, so that never two write. `mine`: this one.
   `why`: text for people, who does it, or why nobody here does. */
void survive_claim(const TrainJob *job, const TrainProgress *progress, bool *mine, FolderLock *lock, Buf *why);
/* This rank has saved, or cannot: the others need not wait any longer. */
void survive_done(const TrainJob *job);

#endif
