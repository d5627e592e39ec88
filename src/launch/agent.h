/* The half of `cairn launch` that runs on each host: it starts the ranks there, hands their output on, and lets none of
   them outlive the job. What it is told and tells: wire.h. */
#ifndef CAIRN_LAUNCH_AGENT_H
#define CAIRN_LAUNCH_AGENT_H

#include "base/base.h"
#include "config/config.h"

/* `cairn launch -- @agent`: speaks over standard input and output until that ends. Ranks that are alive then are asked
   to stop (SIGTERM), and killed when `AGENT_GRACE_S` have passed; so also when this process gets SIGTERM or SIGHUP and
   its input ends. If it is killed itself, the kernel kills them (PR_SET_PDEATHSIG). */
Status agent_run(const Config *c);

#define AGENT_GRACE_S 30.0

/* For the local agent alone: the launcher's own standard output and error, which rank 0 writes to directly. */
#define AGENT_STDOUT 3
#define AGENT_STDERR 4

#endif
