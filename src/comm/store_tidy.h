/* Removing what a file store leaves: its own at the end, that of killed runs at the next start. Nothing here fails;
   what cannot be removed stays. */
#ifndef CAIRN_COMM_STORE_TIDY_H
#define CAIRN_COMM_STORE_TIDY_H

#include "comm/store_internal.h"

/* By the first rank, when it has made the folder `run` of the run. */
void tidy_begin_run(const char *run);
/* The run is alive as long as the file descriptor is open that this returns; −1: it cannot be. */
int tidy_hold(const char *run);
/* A rank leaves the run `run` ("run-…"; NULL: it was not told) of the job's `folder`: what it said in the meeting goes,
   and with the last rank all of the run. `complete`: all ranks had met. */
void tidy_leave(const char *folder, const char *run, const char *nonce, int rank, int size, bool complete);
/* Removes from all jobs in `directory` what is a day old and belongs to runs of this host that are dead. */
void tidy_others(const char *directory);

#endif
