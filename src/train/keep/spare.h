/* Where survivors save if the output folder's lock is held by a process that is frozen or out of reach. A spare folder
   is OUT/survivors/<n>, with a lock, checkpoints and metrics.jsonl of its own, so that no folder ever has two writers.
   The next start, which holds OUT's lock, moves the contents into OUT, and renames the folder to <n>.joined before it
   removes it. */
#pragma once

#include "base/lock.h"

#define SPARE_NONE (-1) /* the number of OUT itself */

/* The folder of that number. The caller frees it. */
char *spare_path(const char *out, int n);
/* Locks OUT, waiting at most `seconds`, or else the first of `most` spare folders whose lock is free. *n: its number.
   E_FAIL: all are in use. */
Status spare_take(FolderLock *lock, const char *out, double seconds, int most, int *n);
/* The newest whole checkpoint of `least` or a later step, in OUT and the spare folders; −1: none. */
int64_t spare_saved(const char *out, int64_t least);
/* Under OUT's lock: moves the checkpoints of spare folders, and a step that metrics.jsonl lacks, into OUT, and removes
   these folders if it can. Waits for survivors that still write, as lock_take does. Leaves what else is in
   OUT/survivors. */
Status spare_join(const char *out);
