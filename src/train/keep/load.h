/* Weights, moments and K-FAC's sets from a checkpoint on disk to the ranks that have them. */
#pragma once

#include "state/checkpoint/checkpoint.h"
#include "train/session/session.h"

/* Collective. Each rank reads the elements that it owns of the checkpoint at `dir`, and they come to all that have
   them. Rank 0, which verified it (`seen`), reads for ranks that do not see the same files, or read other bytes than
   those that were verified. `sets`: K-FAC's too; those that the checkpoint lacks become 0. The session is ready then.
   E_CORRUPT: rank 0 read other bytes, or a weight is not finite. */
Status load_checkpoint(const char *dir, CheckpointSeen *seen, Session *s, bool sets);
