/* Records the processes of a job, in a file per agent, so that a later agent finds the ranks that a killed one left: by
   process number, start time and boot, never by a name.

   The file is launch-PID-STARTED in file_user_folder:
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

/* Writes this process's record, for record_remove. NULL: that failed with a warning, and the job continues. */
char *record_write(const char *job, const RecordedRank *ranks, int n);
void record_remove(char *path); /* takes NULL */

/* For each record of a dead agent: kills ranks that are still alive, with a warning, and removes the record. Returns
   the number of killed ranks. */
int record_clean(void);

#endif
