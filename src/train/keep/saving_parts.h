/* One save by several ranks: each writes its part (holding_written) in a thread, while training goes on. The ranks
   agree by votes that all parts are written; then rank 0 learns their digests, and its saver compares the files with
   them. */
#ifndef CAIRN_TRAIN_KEEP_SAVING_PARTS_H
#define CAIRN_TRAIN_KEEP_SAVING_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "state/checkpoint/checkpoint.h"
#include "train/job/job.h"

typedef struct {
    const Run *run;
    const Holding *holding;
    bool pending; /* parts are being written: the same on all ranks */
    /* this rank's part, of its save buffer, or without one of its memory while training waits */
    HeldPart part;
    const float *buffer;
    int64_t step;
    CheckpointPart *file;
    pthread_t thread;
    bool running;
    atomic_bool written, given_up;
    Status status;
    char *message;
    Digest digest;
    double seconds;
    /* rank 0's: for the thread of its saver */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t caller;
    struct PartSaid *said; // (ranks) about their parts; NULL: not yet
    _Atomic double idle_s; /* that this thread waited for nothing but a vote, of all saves */
} SavingParts;

void saving_parts_init(SavingParts *p, const Run *run);
void saving_parts_free(SavingParts *p); /* after saving_parts_join */

/* Before a save of the state as it is now; `alone`: of all elements, which this rank has. */
void saving_parts_prepare(SavingParts *p, bool alone);
ArrayRead saving_parts_read;      /* of this rank's part */
CheckpointFill saving_parts_fill; /* of rank 0's saver, for all parts */

/* On all ranks, once the files are made, after saving_parts_prepare and session_bring. */
void saving_parts_begin(SavingParts *p);
bool saving_parts_busy(const SavingParts *p);
/* Collective. Waits for the parts that are being written; rank 0's saver goes on with what the ranks say. */
Status saving_parts_end(SavingParts *p);
/* Not collective: a part that is not yet written is left, and rank 0's saver waits no more. */
void saving_parts_give_up(SavingParts *p);
void saving_parts_join(SavingParts *p); /* waits for this rank's thread */

#endif
