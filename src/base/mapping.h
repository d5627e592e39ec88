/* Mappings of files that another process may shorten. Beyond the new end, an access raises SIGBUS, which would end the
   process. Here the page becomes zeroed private memory instead, and mapping_cut returns true from then on. */
#pragma once

#include "base/std.h"

/* Maps the first `bytes` bytes (more than 0), shared; a writable mapping is populated. NULL, with errno, on failure. */
void *mapping_open(int fd, size_t bytes, bool writable);
/* An access found the file shorter than `bytes`. */
bool mapping_cut(const void *data);
void mapping_close(const void *data, size_t bytes); /* takes NULL */
