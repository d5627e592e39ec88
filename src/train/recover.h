/* Resuming from memory: snapshots that killed processes of this run left in --snapshot-dir, on all hosts. */
#ifndef CAIRN_TRAIN_RECOVER_H
#define CAIRN_TRAIN_RECOVER_H

#include "state/snapshot.h"
#include "train/train.h"

/* A snapshot newer than any checkpoint. */
struct TrainMemory {
    SnapshotList list; /* of this rank; empty where another rank of its host reads the same folder */
    SnapshotSet set;   /* the same on all ranks */
};

/* Collective. Looks for the newest whole generation of the run in `output_dir` on all ranks; damaged ones are named in
   warnings. *memory is NULL where none is newer than `disk`, rank 0's newest checkpoint step (−1: none). Snapshots that
   the disk has too are removed. Logs the step that the run resumes from, and how many steps are lost. */
Status recover_find(const Config *config, const char *output_dir, Ranks *ranks, int64_t disk,
                    struct TrainMemory **memory);
void recover_free(struct TrainMemory *memory); /* takes NULL */
/* Collective. The text of its state.json, on all ranks. */
Status recover_state(const struct TrainMemory *memory, Ranks *ranks, Buf *text);
/* The generations, for the Snapshots that continue them. */
void recover_progress(const struct TrainMemory *memory, TrainProgress *progress);
/* Collective. Weights and moments into rank 0's session_fill arrays. */
Status recover_load(const struct TrainMemory *memory, Session *s);

#endif
