/* Removes the files of a file store: its own at the end, those of killed runs at the next start. A file that cannot be
   removed stays; that is no error. */
#ifndef CAIRN_COMM_STORE_TIDY_H
#define CAIRN_COMM_STORE_TIDY_H

#include "comm/store_internal.h"

/* Called by rank 0 when it has made the folder `run`. */
void tidy_begin_run(const char *run);
/* Returns a file descriptor that marks the run as alive while it is open; −1: none. */
int tidy_hold(const char *run);
/* A rank leaves the run `run` ("run-…"; NULL: it never learnt it) in the job's `folder`. Removes its files of the
   meeting, and the whole run with the last rank. `complete`: all ranks had met. */
void tidy_leave(const char *folder, const char *run, const char *nonce, int rank, int size, bool complete);
/* Removes, for all jobs in `directory`, dead runs of this host that are a day old. */
void tidy_others(const char *directory);

#endif
