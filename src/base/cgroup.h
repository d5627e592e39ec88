/* The memory limits of this process's control groups. */
#pragma once

#include "base/std.h"

/* Bytes that the limits still allow: the minimum over all groups from those in ROOT/proc/self/cgroup up to the root
   group, of v1 and v2. Inactive file pages count as free. SIZE_MAX without a limit. `root` is "" for this machine;
   tests give a folder with a tree of their own. */
size_t cgroup_free_bytes(const char *root);

/* The smallest of these limits; SIZE_MAX without one. */
size_t cgroup_limit_bytes(const char *root);

/* Number of processes of this process's own groups that the kernel has killed because memory was exhausted. Where the
   kernel does not count them (v1 before Linux 4.13), the number of allocations that a limit refused. */
uint64_t cgroup_memory_kills(const char *root);
