/* The memory of this machine, and its rates for the planner. devices.h has machines that are not here. */
#ifndef CAIRN_TRAIN_MACHINE_H
#define CAIRN_TRAIN_MACHINE_H

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

/* Bytes a new allocation may use: MemAvailable, or what is left below the process's cgroup limit if that is less. */
size_t machine_free_bytes(void);
/* Resident anonymous and shared memory of this process, in bytes (Linux: RssAnon + RssShmem). */
size_t process_resident(void);

/* Rates of an open backend in a compute type: measured once (a fraction of a second) and kept in
   $XDG_CACHE_HOME/cairn or ~/.cache/cairn; without such a directory measured again each time. False where they cannot
   be measured: then only comparisons between policies mean something. */
bool machine_rates(const Backend *b, Dtype compute, CostRates *rates);

#endif
