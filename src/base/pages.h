/* Host memory: whole pages for the regions of a plan, and how much the process holds. */
#ifndef CAIRN_BASE_PAGES_H
#define CAIRN_BASE_PAGES_H

#include "base/status.h"

#include <stddef.h>

/* Zeroed and touched, 4096-byte aligned, between two pages that fault. 0 bytes give a page. E_MEMORY. */
Status pages_map(size_t bytes, void **p);
void pages_unmap(void *p, size_t bytes); /* takes NULL */

/* Resident anonymous and shared memory of this process, in bytes (Linux: RssAnon + RssShmem). */
size_t process_resident(void);

#endif
