/* When and what to save: between the training loop and state/checkpoint. */
#ifndef CAIRN_TRAIN_SAVING_H
#define CAIRN_TRAIN_SAVING_H

#include "train/run.h"

typedef struct Saving Saving;

/* The text of state.json. */
void saving_state(const Run *run, Buf *out);

Status saving_open(Saving **saving, const Run *run);
/* Before moments are collected into the save buffer: waits for the previous save, which writes from there. */
void saving_settle(Saving *s);
/* Makes the state readable by the host. On a host backend it stays in place. On a device it is copied into the save
   buffer, after the previous save ended; a survivor without a save buffer (only rank 0 has one) allocates copies.
   `weights` (params.size) is valid until saving_begin. */
Status saving_fetch(Saving *s, const float **weights);
/* Starts saving the fetched state; returns when training may change the tensors again. A failed save is reported, and
   the previous checkpoint stays. */
Status saving_begin(Saving *s);
/* True once after a failed background save (already reported): its step is not on disk. Between steps. */
bool saving_failed(Saving *s);
/* Waits for the last save; its status. */
Status saving_wait(Saving *s);
void saving_close(Saving *s); /* waits; takes NULL */
/* Seconds that saving and ending took or is expected to take, for --max-time. */
double saving_reserve(const Saving *s);
double saving_longest_stall(const Saving *s);

#endif
