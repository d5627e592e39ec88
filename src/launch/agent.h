/* The agent: the half of `cairn launch` that runs on each host. It starts the ranks there, forwards their output, and
   ends all of them with the job. */
#pragma once

#include "config/config.h"

/* `cairn launch -- @agent`: executes orders from its standard input until that ends, or until SIGHUP. Ranks that are
   alive then get SIGTERM, and SIGKILL after `AGENT_GRACE_S`. SIGTERM goes to the ranks at once. If the agent is killed,
   the kernel kills its ranks (PR_SET_PDEATHSIG). */
Status agent_run(const Config *c);

#define AGENT_GRACE_S 30.0

/* In the local agent only: the launcher's standard output and error, to which rank 0 writes directly. */
#define AGENT_STDOUT 3
#define AGENT_STDERR 4
