/* The hosts to start on, and the number of ranks of each. */
#pragma once

#include "base/base.h"

typedef struct {
    char *name;
    int slots;     /* of the list; 0: unknown */
    bool here;     /* this machine: without ssh */
    bool by_task;  /* PBS starts the agent there, which has no standard input (door.h) */
    bool open;     /* takes part in this start */
    int limit;     /* most ranks; 0: no limit */
    int usual;     /* ranks by default: its GPUs, else 1 */
    int ranks;     /* of this start */
    bool excluded; /* the run's --audit excluded a place on it: nothing more is started there */
    int lost_in;   /* the last start, from 1, in which it was lost or did not answer; 0: none */
} Site;

typedef enum { SITES_OF_FILE, SITES_OF_PBS, SITES_OF_GRID_ENGINE, SITES_OF_SLURM, SITES_OF_NOBODY } SitesFrom;

typedef struct {
    Site *list; // (n)
    int n;
    SitesFrom from;
    char source[512]; /* for messages: "PBS_NODEFILE (/var/spool/…)" */
} Sites;

/* Takes the hosts from `file` if it is not "", else from the variables of PBS (PBS_NODEFILE), Grid Engine (PE_HOSTFILE)
   or Slurm (SLURM_JOB_NODELIST), else this host alone. E_USAGE or E_FORMAT, with file and line: an empty or invalid
   list. */
Status sites_find(const char *file, char **environment, Sites *sites);
void sites_free(Sites *sites); /* takes a zeroed one */

/* The sum of the open hosts' limits; INT64_MAX: one has none. */
int64_t sites_room(const Sites *sites);
/* Finds the ranks of each open host. `ranks` 0 gives every host its default within the limit; else `ranks` are spread
   in proportion to the defaults. E_USAGE, with the sum: more ranks than room. */
Status sites_place(Sites *sites, int64_t ranks);
