/* Rank and world size of this process, from the environment that its launcher set. */
#pragma once

#include "base/base.h"

typedef struct {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
    int node, nodes;            /* the host's number, and how many hosts; nodes 0: unknown until the ranks have met */
    char source[48];            /* where it was found: "torchrun", "Open MPI", "Slurm" …; "" for one rank alone */
    char job[96];     /* the job's name or number, the same on all ranks: "slurm-1234.0"; "" if there is none */
    char master[256]; /* MASTER_ADDR or the scheduler's first host; "" */
    int master_port;  /* MASTER_PORT; 0 */
} World;

/* Reads an environment (as environ) in the order of docs/network.md. The first complete set of variables wins; without
   any there is one rank. E_USAGE for a part of a set, or for two sets that disagree; the message prints them. */
Status world_find(char **environment, World *world);

/* The value of a variable of an environment; NULL: not set, or empty. */
const char *world_variable(char **environment, const char *name);
