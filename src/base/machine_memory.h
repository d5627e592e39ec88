/* Memory of this machine and of this process. */
#pragma once

#include "base/status.h"

/* Bytes a new allocation may use: MemAvailable, or the room below the process's cgroup limit if that is less. */
size_t machine_free_bytes(void);
/* What a cgroup counts beside the memory of its processes, where its limit is the least: pages of files on their way to
   the disk, and memory of the kernel. 0: no such limit. */
size_t machine_group_bytes(void);
/* Address space that this process may still take (ulimit -v, -d): it includes stacks that are never touched. SIZE_MAX
   without a limit. */
size_t process_free_addresses(void);
#define THREAD_ADDRESSES ((size_t)8 << 20) /* of a thread's stack, which is never touched as a whole */
/* Where the address space is limited, all threads share one arena of the allocator; else each takes 64 MiB of it. Call
   it before threads allocate. */
void process_spare_addresses(void);
/* E_MEMORY: stacks are limited (ulimit -s) to less than the program was found to need. */
Status process_check_stack(void);
/* Gives freed memory back to the system, which the allocator otherwise keeps, more or less of it by chance. */
void process_trim(void);
/* Resident anonymous and shared memory of this process, in bytes (Linux: RssAnon + RssShmem). */
size_t process_resident(void);
