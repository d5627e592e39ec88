/* An agent's view of its host: its cores, its GPUs, and names of variables. */
#pragma once

#include <sched.h>
#include <sys/types.h>

#include "base/base.h"

/* The cores that this process may use, in an order in which neighbours share a package and a core. */
typedef struct {
    int *ids; // (n)
    int n;
    size_t bytes; /* of a set for sched_setaffinity */
} Cores;

void cores_find(Cores *cores);
void cores_free(Cores *cores); /* takes a zeroed one */
/* Binds the calling process to part `local_rank` of `local_size`, unless there are fewer cores than ranks. Allocates
   nothing, for use between fork and exec. `set` has cores->bytes. */
void cores_bind(const Cores *cores, int local_rank, int local_size, cpu_set_t *set);

/* GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else /dev/nvidia0 and so on, without those that a
   control group refuses. */
int gpus_count(void);

/* True: "NAME=VALUE" begins with one of the prefixes, which spaces separate. */
bool variable_begins(const char *entry, const char *prefixes);
