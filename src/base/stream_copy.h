/* A copy whose target is not read again soon. */
#pragma once

#include <stddef.h>

/* memcpy that writes past the caches where the processor can: the target's old bytes are not read from memory, and the
   cache keeps what others use. Stores after it come after its own. stream_copy_x86.c, or stream_copy_plain.c. */
void stream_copy(void *to, const void *from, size_t bytes);
