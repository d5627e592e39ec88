/* When and what to save: between the training loop and state/checkpoint. */
#ifndef CAIRN_TRAIN_SAVING_H
#define CAIRN_TRAIN_SAVING_H

#include "train/run.h"

typedef struct Saving Saving;

/* The text of state.json. */
void saving_state(const Run *run, Buf *out);

Status saving_open(Saving **saving, const Run *run);
/* Before moments are collected into the save buffer: waits for the save before, which writes from there. */
void saving_settle(Saving *s);
/* What is to be saved, for the host: where it lies, or, of a device, a copy in the save buffer, made now; that waits
   for the save before. A survivor without a save buffer (only rank 0 has one) gets copies of their own. `weights`
   (params.size) may be looked at until saving_begin. */
Status saving_fetch(Saving *s, const float **weights);
/* Starts saving what was fetched; returns once training may change the tensors again. A save that fails is reported and
   the one before stays good. */
Status saving_begin(Saving *s);
/* Once after a save beside training came to a bad end (which was reported): its step is not on disk. Between steps. */
bool saving_failed(Saving *s);
/* Waits for the last save; its status. */
Status saving_wait(Saving *s);
void saving_close(Saving *s); /* waits; takes NULL */
/* Seconds that saving and ending took or is expected to take, for --max-time. */
double saving_reserve(const Saving *s);
double saving_longest_stall(const Saving *s);

#endif
