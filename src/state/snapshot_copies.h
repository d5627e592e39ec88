/* Copies of slices on other hosts: who holds whose, and how they get there. A rank's snapshot thread sends its slot
   once it is complete, and takes those that it holds for others, over a connection of these threads alone. */
#ifndef CAIRN_STATE_SNAPSHOT_COPIES_H
#define CAIRN_STATE_SNAPSHOT_COPIES_H

#include "comm/comm.h"
#include "state/snapshot.h"

/* A slice that another rank holds too. */
typedef struct {
    int slice, holder;
    Snapshot *file; /* where this rank is the holder, else NULL */
} SnapshotCopy;

typedef struct {
    Comm *comm;          /* of the threads; the caller's. Set, as the next two, before snapshot_begin */
    int64_t generation;  /* under way */
    int64_t keep;        /* committed: its slots are not touched */
    SnapshotCopy *items; // (count) in the order in which they are sent, the same on all ranks
    int count;
} SnapshotCopies;

/* The ranks of the same place on the next `replicas` hosts of `nodes` hold copies. `node` (ranks): the host of each. */
void copies_place(SnapshotCopies *c, const int *node, int ranks, int nodes, int replicas);
void copies_free(SnapshotCopies *c); /* not the files; takes a zeroed one */

/* A SnapshotAfter (state/snapshot.h), Collective among the threads; `context` is the SnapshotCopies. All ranks go
   through the copies in one order, so nobody waits for one who waits for him; and a rank whose slice is not whole comes
   to every one of its exchanges too, and says so in place of the slice, so nobody waits for it. E_CORRUPT: a copy that
   came is not whole, all others are where they belong. Any other error: the connection is dead. Where another rank's
   slice is not whole its copy here is invalid and the status OK: that rank says so, and votes. */
Status copies_exchange(void *context, Snapshot *own, int slot, bool whole);

#endif
