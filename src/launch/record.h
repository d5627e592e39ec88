/* Which processes belong to which job, in a file per agent: so that what a killed agent may have left on a host is
   found by what was written down when it was started, and never by a name or by a range of process numbers.

   DIR is $XDG_RUNTIME_DIR/cairn, else /tmp/cairn-UID (mode 0700, owned by us). DIR/launch-PID-STARTED:
     boot ID · agent PID STARTED · job NAME · rank RANK PID STARTED …                                                 */
#ifndef CAIRN_LAUNCH_RECORD_H
#define CAIRN_LAUNCH_RECORD_H

#include <sys/types.h>

#include "base/base.h"

typedef struct {
    int rank;
    pid_t pid;
    uint64_t started;
} RecordedRank;

/* Writes this process's record. NULL where that is not possible: a warning says why, and the job goes on. The caller
   gives it to record_remove. */
char *record_write(const char *job, const RecordedRank *ranks, int n);
void record_remove(char *path); /* takes NULL */

/* Looks through all records: where the agent is gone, ranks that are still there are killed, and said, and the record
   is removed. Returns how many were killed. */
int record_clean(void);

#endif
