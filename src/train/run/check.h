/* The options of a run by themselves, before anything is read or made. */
#pragma once

#include "config/config.h"
#include "optim/optim.h"
#include "train/job/job.h"
#include "train/ranks/ranks.h"

/* E_USAGE: a text that a later step would refuse. */
Status check_options(const Config *c, bool training);
/* E_USAGE: evaluations while training are asked for without a dev split, or --patience without them. */
Status check_evaluations(const Config *c);
/* A row of a task's table. --patience: so many evaluations have passed since the best, or since the start if none gave
   a number. */
bool check_patience(const Run *r, const TrainProgress *p);
/* E_USAGE: `path` is neither a file nor a folder nor the prefix of a TF1 checkpoint. */
Status check_model(const char *path);
/* Rank 0. Whether --model is there, and whether files can be made in the folders that the run writes to. With --dry-run
   none is tried. */
Status check_places(const Config *c);
/* E_USAGE: the folder holds weights that no run wrote; training would replace them. */
Status check_foreign_model(const char *dir);
/* Rank 0. Warns of options that the run takes, and that are probably mistakes. */
void check_doubts(const Config *c, const Ranks *ranks, bool training);
/* Rank 0. The same of --batch-size and --warmup, once the number of examples and the schedule are known. */
void check_length(const Run *r);
