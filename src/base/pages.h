/* Host memory in whole pages, for the regions of a plan. */
#pragma once

#include "base/status.h"

/* Zeroed and touched, 4096-byte aligned, between two pages that fault. 0 bytes give a page. E_MEMORY. */
Status pages_map(size_t bytes, void **p);
void pages_unmap(void *p, size_t bytes); /* takes NULL */
