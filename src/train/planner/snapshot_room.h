/* Memory for snapshots: how much they need, and whether it is free for all ranks of a host together. Each rank measures
   the free memory before any of them allocates; then all ranks exchange the figures and reach the same answer. */
#pragma once

#include "config/config.h"
#include "state/snapshot/snapshot_copies.h"
#include "train/planner/run_plan.h"
#include "train/ranks/ranks.h"

/* --snapshot-steps. */
typedef struct {
    bool wanted, automatic; /* automatic: dropped with a warning where there is no room */
    int64_t every;          /* steps; 0: measured */
} SnapshotWish;

/* E_USAGE: not a number. */
Status snapshots_wish(const Config *c, int ranks, SnapshotWish *wish);
/* --snapshot-replicas on `hosts` hosts. E_USAGE: not a number, or more than the other hosts. */
Status snapshots_replicas(const Config *c, int hosts, int *n);
/* The machine's memory for the rank that takes most: its slice, and those that `placed` has it hold × two generations,
   rounded up. */
uint64_t snapshots_most_bytes(const Holding *h, const SnapshotCopies *placed);
/* A rank's bytes before the hosts are known: as if all had equally many ranks, and so each rank `copies` of other
   slices. `all` (may be NULL): the sum over all ranks. */
uint64_t snapshots_rank_bytes(const Holding *h, int copies, uint64_t *all);
/* The holders of `replicas` copies of each slice; none where `comm` is NULL. copies_free frees them. */
void snapshots_place(const Comm *comm, int replicas, SnapshotCopies *placed);
/* Bytes that snapshots will take on the rank that takes most; 0: none are taken. */
Status snapshots_need(const Config *c, const Ranks *ranks, const PlanInput *in, uint64_t *bytes);

/* One rank's; bytes. */
typedef struct {
    int64_t node;        /* its host's number */
    uint64_t device;     /* the file system that --snapshot-dir lies on; numbers of two hosts are not compared */
    uint64_t need, held; /* own slice and copies for others; the part of it that exists already, or is replaced */
    uint64_t free_there, free_memory; /* in the folder; of the machine, or left by the rank's cgroup */
} SnapshotClaim;

/* This rank's, without need and held. E_IO: the folder does not exist. */
Status snapshot_claim(const char *dir, int64_t node, SnapshotClaim *mine);

/* E_MEMORY: a folder or a host has too little. `all` (n) is in rank order; `host` names the host of a rank. */
Status snapshot_room(const SnapshotClaim *all, int n, const char *dir, const char *(*host)(void *, int), void *context);
