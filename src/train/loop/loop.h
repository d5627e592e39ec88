/* The training loop: steps, saves, signals, metrics, the end. It trains on the examples of run->source. */
#pragma once

#include "train/job/job.h"

/* Trains to the end, or until a signal or --max-time (E_STOPPED after a durable save). */
Status loop_train(Run *run);

/* *asked: the file of --persist-file is there. E_USAGE: something other than an empty file has its name. */
Status loop_check_persist_file(const char *path, bool *asked);
