/* Snapshots beside the training loop (state/snapshot.h): when they are taken, from where, and how often that is worth
   it. They begin between two steps and are copied by a thread while the next forward and backward run; the update waits
   for it. */
#ifndef CAIRN_TRAIN_SNAPSHOTS_H
#define CAIRN_TRAIN_SNAPSHOTS_H

#include "train/exchange.h"
#include "train/persist.h"
#include "train/ranks.h"
#include "train/run.h"

typedef struct Snapshots Snapshots;

/* How often, by --snapshot-steps. E_USAGE for what is no number. */
typedef struct {
    bool wanted, automatic; /* automatic: dropped with a warning where there is no room */
    int64_t every;          /* steps; 0: measured */
} SnapshotWish;
Status snapshots_wish(const Config *c, int ranks, SnapshotWish *wish);

/* Memory of the machine that a rank takes, with `copies` of other hosts' slices: slices (of the rank that has most) ×
   two generations, a little too much rather than too little. `x` NULL: one rank. `all` (may be NULL): of all. */
uint64_t snapshots_rank_bytes(const ParamTable *params, const Exchange *x, int copies, uint64_t *all);
/* --snapshot-replicas where there are so many hosts. E_USAGE for what is no number, and for more than other hosts. */
Status snapshots_replicas(const Config *c, int hosts, int *n);
/* What they will take on this rank; 0: none are taken. */
Status snapshots_need(const Config *c, const Ranks *ranks, const ParamTable *params, const Exchange *x,
                      uint64_t *bytes);

/* Collective. *s is NULL where none are taken. A run that does not go on from where it was (--resume never or FOLDER)
   makes what lies in memory of the run before another run's. */
Status snapshots_open(Snapshots **s, Run *run);
/* Collective. Between two steps: notes what is complete, and begins the next one where it is due. `step_s`: what a step
 * takes. */
Status snapshots_step(Snapshots *s, double step_s); /* takes NULL */
/* Before the meeting of the step `step`: this rank's votes. */
void snapshots_vote(Snapshots *s, int64_t step); /* takes NULL */
/* Before weights or moments change: waits until they are copied. */
void snapshots_settle(Snapshots *s); /* takes NULL */

/* A rank was lost: what this host's memory holds of the run (train/persist.h), own slices, those of the host's other
   ranks, dead or alive, and copies. Waits for the thread, which has nobody left to wait for. Takes NULL: nothing. */
void snapshots_gather(Snapshots *s, Persist *held);

SnapshotStats snapshots_stats(const Snapshots *s); /* zeros for NULL */

/* `discard`: the state is on disk, so what this run has in memory goes, of earlier processes too. Takes NULL. */
void snapshots_close(Snapshots *s, const Run *run, bool discard);

#endif
