/* Libraries that crash, abort or exit where the system refuses them memory. Where a thread does that between enter and
   leave, the process ends with E_MEMORY's exit code and a line that names the library. Any other crash stays one. */
#pragma once

#include <stdbool.h>

/* Ends a message. */
#define LIBRARY_ADVICE                                                                                                 \
    "free some memory, raise the limits of this process (ulimit -v, -d) or use a smaller configuration"

/* This thread calls the library `name`, which lives until library_leave. Does not nest. Clears errno. */
void library_enter(const char *name);
/* True: errno says that the system refused it memory since. What it then returned may be wrong. */
bool library_leave(void);
