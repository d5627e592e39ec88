/* Is there room for the snapshots of all ranks of a host together? Each looks at what is free there before any of them
   takes something; then all know all figures, and come to one answer. */
#ifndef CAIRN_TRAIN_SNAPSHOT_ROOM_H
#define CAIRN_TRAIN_SNAPSHOT_ROOM_H

#include "base/base.h"

/* One rank's; bytes. */
typedef struct {
    int64_t node;        /* its host's number */
    uint64_t device;     /* the file system that --snapshot-dir lies on; numbers of two hosts are not compared */
    uint64_t need, held; /* own slice and copies for others; what of it lies there already, or goes first */
    uint64_t free_there, free_memory; /* in the folder; of the machine, or left by the rank's cgroup */
} SnapshotClaim;

/* This rank's, but for need and held. E_IO where there is no such folder. */
Status snapshot_claim(const char *dir, int64_t node, SnapshotClaim *mine);

/* E_MEMORY where a folder or a host has too little, the same for the same `all` (n), in rank order. `host` names the
   host of a rank. */
Status snapshot_room(const SnapshotClaim *all, int n, const char *dir, const char *(*host)(void *, int), void *context);

#endif
