/* The training loop: steps, saves, signals, metrics, the end. It trains on the examples of run->source. */
#ifndef CAIRN_TRAIN_LOOP_H
#define CAIRN_TRAIN_LOOP_H

#include "train/job/job.h"

/* Trains to the end, or until a signal or --max-time (E_STOPPED after a durable save). */
Status loop_train(Run *run);

#endif
