/* The task manager of PBS: processes that the job's limits, accounting and signals reach. */
#pragma once

#include "base/base.h"

/* Makes this process's session a task of the job, as pbs_attach does. Cores and memory of the process are the job's
   afterwards. If that fails, pbs_attach prints the reason on standard error, and the process continues outside the job.
 */
void pbs_attach(const char *job);

/* The words that run a program on a host of the job without ssh, to which the program and its arguments are appended;
   the program has no standard input. At most 4, NULL at the end; the caller frees each. False: PBS has no such program.
 */
bool pbs_task_words(const char *host, char *words[5]);
