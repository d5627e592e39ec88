#include <string.h>

#include "base/stream_copy.h"

void stream_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
