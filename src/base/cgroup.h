/* The memory limits of this process's control groups. */
#ifndef CAIRN_BASE_CGROUP_H
#define CAIRN_BASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that the limits still allow: the least over all groups from those in ROOT/proc/self/cgroup up to the top, of v1
   and v2. File pages that the kernel would drop first count as free. SIZE_MAX without a limit. `root` is "" for this
   machine; tests give a folder with a tree of their own. */
size_t cgroup_free_bytes(const char *root);

/* The least of these limits themselves; SIZE_MAX without one. */
size_t cgroup_limit_bytes(const char *root);

/* How many processes of this process's own groups the kernel has killed so far because memory was exhausted; where it
   does not count them (v1 before Linux 4.13), how often a limit refused memory. */
uint64_t cgroup_memory_kills(const char *root);

#endif
