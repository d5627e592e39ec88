/* The state that a run begins with: that of a checkpoint or snapshot, that of --moments carried, or fresh weights. */
#pragma once

#include "train/job/job.h"

/* Collective. Opens the session and fills it. */
Status begin_or_resume(Run *run);

/* --fit-schedule. Both set the number of steps, in run->c and `recorded`, as --max-steps would. */
/* A run that resumes keeps its number. E_USAGE: it has none. */
Status begin_keep_fitted(Run *run, Config *recorded);
/* Collective, after begin_or_resume of a run that begins: chooses it, and begins again. */
Status begin_fitted(Run *run, Config *recorded);
