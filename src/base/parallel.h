/* Work on long arrays outside a step (first weights, the copy for a save), split over a few threads. Inside a step the
   backend has its own threads. */
#pragma once

#include <stddef.h>

/* Elements begin up to, not including, end. */
typedef void (*ParallelWork)(void *arg, size_t begin, size_t end);

/* Calls work on consecutive ranges that cover [0, n), each but the last a multiple of `grain` long, and returns when
   all are done. No range is shorter than `grain`, so less than 2 grains run in the caller alone. At most 8 threads, and
   no more than the cores this process may use; the range of a thread that cannot be started runs in the caller. The
   ranges depend on the machine, so the result must not depend on them. */
void parallel_ranges(size_t n, size_t grain, ParallelWork work, void *arg);

/* Copies n floats; one core does not saturate the memory. The same array twice: nothing. */
void parallel_copy(float *to, const float *from, size_t n);

/* Cores that this process may use; 0: unknown, above 1024. */
int parallel_cores(void);
