/* When and what to save: between the training loop and state/checkpoint. */
#ifndef CAIRN_TRAIN_SAVING_H
#define CAIRN_TRAIN_SAVING_H

#include "train/train.h"

typedef struct Saving Saving;

Status saving_open(Saving **saving, const TrainJob *job);
/* Starts saving this state; returns once training may change the tensors again. A save that fails is reported and
   the one before stays good. */
Status saving_begin(Saving *s, const TrainProgress *progress);
/* Waits for the last save; its status. */
Status saving_wait(Saving *s);
void saving_close(Saving *s); /* waits; takes NULL */
/* Seconds that saving and ending took or is expected to take, for --max-time. */
double saving_reserve(const Saving *s);
double saving_longest_stall(const Saving *s);

#endif
