/* A checkpoint made of slices in memory: for survivors of a sharded run, and for `cairn snapshot persist`. */
#ifndef CAIRN_TRAIN_PERSIST_H
#define CAIRN_TRAIN_PERSIST_H

#include "state/snapshot.h"

/* The snapshots of a run in one folder. */
typedef struct {
    SnapshotList list;
    SnapshotSet set; /* generation 0: none is complete */
    Buf missing;     /* the gaps of newer generations: "generation 7 (step 21) of 4 slices lacks number 0, 1" */
} Persist;

/* `output`: the run's canonical output folder. Other processes may still write: a complete generation stays until all
   ranks agreed on the next. */
Status persist_find(const char *dir, const char *output, Digest run, Persist *p);
void persist_free(Persist *p); /* takes a zeroed one */

/* Writes the checkpoint into `folder`, whose lock the caller holds. Keeps `keep` checkpoints, all if 0. E_MEMORY: the
   machine lacks 12 bytes a parameter for it. */
Status persist_write(const SnapshotList *list, const SnapshotSet *set, const char *folder, int keep);

#endif
