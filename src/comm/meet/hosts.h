/* Parses schedulers' lists of hosts. They are untrusted text; sizes are bounded. */
#pragma once

#include "base/base.h"

typedef struct {
    char *name;
    int slots; /* for ranks; 1 or more */
} Host;

typedef struct {
    Host *hosts;
    int count, cap;
    bool stated; /* a line has slots=N */
} HostList;

enum { HOSTS_MOST = 100000 };

/* Reads SLURM_JOB_NODELIST: "node[01-03,7],gpu-[1-2]x[a,b],login". E_FORMAT names the wrong place. */
Status hosts_from_slurm(const char *text, HostList *list);
/* Reads PBS_NODEFILE (a line per slot; lines of a host are counted, in the order of the first), Grid Engine's
   PE_HOSTFILE ("name slots queue processors") and our own format ("name [slots=N]", '#' begins a comment). A second
   word that is a number, or slots=N, is the count. */
Status hosts_from_lines(const char *what, const char *text, size_t len, HostList *list);
/* Reads SLURM_TASKS_PER_NODE: "2(x3),1" gives slots to the list's hosts in turn. */
Status hosts_slots_from_slurm(const char *text, HostList *list);
/* hosts_from_lines on a file. */
Status hosts_from_file(const char *path, HostList *list);
int hosts_slots(const HostList *list); /* of all hosts */
void hosts_free(HostList *list);       /* takes a zeroed one */
