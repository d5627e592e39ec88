/* Copies of slices on other hosts: placement and transfer. A rank's snapshot thread sends its slot once it is complete,
   and receives the slots that it holds for other ranks, over a connection that only these threads use. */
#pragma once

#include "comm/mesh/comm.h"
#include "state/snapshot/snapshot.h"

/* A slice with a copy on another rank. */
typedef struct {
    int slice, holder;
    Snapshot *file; /* if this rank is the holder, else NULL */
} SnapshotCopy;

typedef struct {
    Comm *comm;          /* of the threads; the caller's. Set, as the next two, before snapshot_begin */
    int64_t generation;  /* in progress */
    int64_t keep;        /* committed: its slots are not touched */
    SnapshotCopy *items; // (count) in the order in which they are sent, the same on all ranks
    int count;
} SnapshotCopies;

/* The ranks with the same local index on the next `replicas` hosts of `nodes` hold copies. `node` (ranks): the host of
   each. */
void copies_place(SnapshotCopies *c, const int *node, int ranks, int nodes, int replicas);
void copies_free(SnapshotCopies *c); /* not the files; takes a zeroed one */

/* A SnapshotAfter (state/snapshot/snapshot.h), Collective among the threads; `context` is the SnapshotCopies. All ranks
   exchange the copies in one order, which excludes deadlock. A rank whose slice is not whole still takes part in each
   of its exchanges, and sends that fact in place of the slice. E_CORRUPT: a received copy is not whole, and all other
   copies have arrived. Any other error: the connection is dead. If another rank's slice is not whole, its copy here
   becomes invalid and the status is OK: that rank reports and votes. */
Status copies_exchange(void *context, Snapshot *own, int slot, bool whole);
