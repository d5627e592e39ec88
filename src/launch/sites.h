/* Which hosts there are to start on, and how many ranks each takes. */
#ifndef CAIRN_LAUNCH_SITES_H
#define CAIRN_LAUNCH_SITES_H

#include "base/base.h"

typedef struct {
    char *name;
    int slots;    /* ranks it takes at most; 0: not said */
    bool here;    /* it is this machine: no ssh */
    bool by_task; /* PBS starts the agent there, which has no standard input (door.h) */
} Site;

typedef enum { SITES_OF_FILE, SITES_OF_PBS, SITES_OF_GRID_ENGINE, SITES_OF_SLURM, SITES_OF_NOBODY } SitesFrom;

typedef struct {
    Site *list; // (n)
    int n;
    SitesFrom from;
    char source[512]; /* for messages: "PBS_NODEFILE (/var/spool/…)" */
} Sites;

/* From `file` where it is not "", else what PBS (PBS_NODEFILE), Grid Engine (PE_HOSTFILE) or Slurm (SLURM_JOB_NODELIST)
   left in the environment, else this host alone. E_USAGE or E_FORMAT: nothing in it, or not to be understood, with file
   and line. */
Status sites_find(const char *file, char **environment, Sites *sites);
void sites_free(Sites *sites); /* takes a zeroed one */

/* How many ranks go where. `open` (n): takes any; `limits` (n): slots, 0: no limit; `usual` (n): what a host takes
   where nobody says (its GPUs, else 1). `ranks` 0: what is usual, within the limits; else so many, spread in proportion
   to what is usual. `counts` (n) is filled. E_USAGE, with the sum: more than there are slots. */
Status sites_place(const Sites *sites, const bool *open, const int *limits, const int *usual, int64_t ranks,
                   int *counts);

#endif
