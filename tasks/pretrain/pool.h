/* Threads that run jobs in the order of submission. The submitter waits for each job. */
#pragma once

#include "base/base.h"

#define POOL_MOST 64 /* threads */

/* The first member of a job's own struct. */
typedef struct PoolJob {
    struct PoolJob *next;
    bool done;
} PoolJob;

typedef struct Pool Pool;
/* `worker` is this thread's entry of `workers`. */
typedef void (*PoolWork)(PoolJob *job, void *worker);

/* `threads` is 1 to POOL_MOST; `workers` (threads). E_FAIL if no thread can be started. */
Status pool_open(Pool **pool, int threads, PoolWork work, void *const *workers);
void pool_submit(Pool *pool, PoolJob *job);
void pool_wait(Pool *pool, const PoolJob *job);
bool pool_is_done(Pool *pool, const PoolJob *job);
/* Discards jobs that have not begun. Takes NULL. */
void pool_close(Pool *pool);
