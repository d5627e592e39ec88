/* When and what to save: between the training loop and state/checkpoint. */
#ifndef CAIRN_TRAIN_KEEP_SAVING_H
#define CAIRN_TRAIN_KEEP_SAVING_H

#include "state/checkpoint/checkpoint.h"
#include "train/job/job.h"

enum { SAVING_FORMAT = 1 }; /* of state.json */

typedef struct Saving Saving;

/* The text of state.json. */
void saving_state(const Run *run, Buf *out);
/* Reads the text of the state.json of the checkpoint or snapshot `name`, which is of `step`. E_CORRUPT: another format,
   or a value out of its range. The caller frees *doc. */
Status saving_read(const char *name, const Buf *text, int64_t step, Json **doc, TrainProgress *progress);

/* Saves go into `folder`. The caller closes it, also after a failure. */
Status saving_open(Saving **saving, const Run *run, const char *folder);
/* Before moments are collected into the save buffer: waits for the previous save, which reads from there. */
void saving_wait_buffer(Saving *s);
/* Makes the state readable by the host. On a host backend it stays in place. On a device it is copied into the save
   buffer, after the previous save ended; a survivor without a save buffer (only rank 0 has one) allocates copies.
   `weights` (params.size) is valid until saving_begin. */
Status saving_fetch(Saving *s, const float **weights);
/* Starts saving the fetched state; returns when training may change the tensors again. A failed save is reported, and
   the previous checkpoint stays. */
Status saving_begin(Saving *s);
/* The saves from here on take their tensors from `fill` (TrainingState.fill; NULL: from this rank alone). */
void saving_fill_by(Saving *s, Status (*fill)(void *context, const TrainingState *t), void *context);
/* True once after a failed background save (already reported): its step is not on disk. Between steps. */
bool saving_failed(Saving *s);
/* From here on one checkpoint more than --keep stays. */
void saving_keep_one_more(Saving *s);
/* Waits for the last save; its status. */
Status saving_wait(Saving *s);
void saving_close(Saving *s); /* waits; takes NULL */
/* Seconds that saving and ending took or is expected to take, for --max-time. */
double saving_reserve(const Saving *s);
double saving_longest_stall(const Saving *s);

#endif
