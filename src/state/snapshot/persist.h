/* A checkpoint made of slices in memory: for survivors of a run whose state is scattered, and for `cairn snapshot
   persist`. */
#pragma once

#include "state/snapshot/snapshot.h"

/* The snapshots of a run in one folder. */
typedef struct {
    SnapshotList list;
    SnapshotSet set; /* generation 0: none is complete */
    Buf missing;     /* the gaps of newer generations: "generation 7 (step 21) of 4 slices lacks number 0, 1" */
} RunSnapshots;

/* `output`: the run's canonical output folder. Other processes may still write: a complete generation stays until all
   ranks agreed on the next. */
Status run_snapshots_find(const char *dir, const char *output, Digest run, RunSnapshots *p);
void run_snapshots_free(RunSnapshots *p); /* takes a zeroed one */

/* The pieces of one rank, in its list. */
typedef struct {
    const SnapshotList *list;
    const SnapshotPiece *pieces; // (n) of all ranks
    int n, rank;
} HeldPieces;
ArrayRead held_pieces_read;                                    /* the context is a HeldPieces */
Intervals held_pieces_part(const HeldPieces *held, int space); /* their elements; the caller frees */

/* Writes the checkpoint of `set` into `folder`, whose lock the caller holds. Keeps `keep` checkpoints, all if 0. `list`
   has the set's pieces of rank `rank`, of which there must be one. `fill` (TrainingState.fill) writes all of them with
   other processes' help; NULL: all pieces are in `list`. */
Status persist_write(const SnapshotList *list, const SnapshotSet *set, int rank, const char *folder, int keep,
                     CheckpointFill *fill, void *context);
