/* A rank was lost: who of the others saves what all of them still hold. Each has the whole state of its last update
   (but of moments that are sharded), so one checkpoint is enough. */
#ifndef CAIRN_TRAIN_SURVIVE_H
#define CAIRN_TRAIN_SURVIVE_H

#include "train/train.h"

/* Collective, before training: what rank 0 would write into state.json, for any rank may have to. The job uses the two
   texts as long as it lasts. */
Status survive_share(TrainJob *job, Buf *fingerprint, Buf *config);

/* After E_PEER, whose message it takes up. Each survivor says through the rendezvous store that it lives; the lowest
   that does within a few seconds calls `save`, where the output folder is the run's: it holds the folder's lock
   meanwhile, so that never two write. The others wait for it a while, because a launcher may end all when one ends.
   `saved`: by this one. Always E_PEER. */
Status survive(const TrainJob *job, const TrainProgress *progress, Status (*save)(void *), void *context, bool *saved);

#endif
