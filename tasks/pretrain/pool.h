/* Threads that do jobs in the order they were given; who gave them waits for each. */
#ifndef CAIRN_TASKS_PRETRAIN_POOL_H
#define CAIRN_TASKS_PRETRAIN_POOL_H

#include <stdbool.h>

#include "base/base.h"

#define POOL_MOST 64 /* threads */

/* The first member of a job's own struct. */
typedef struct PoolJob {
    struct PoolJob *next;
    bool done;
} PoolJob;

typedef struct Pool Pool;
/* `worker` is the thread's own of the (threads) given to pool_open. */
typedef void (*PoolWork)(PoolJob *job, void *worker);

/* `threads` of 1 to POOL_MOST; E_FAIL if not even one can be started. */
Status pool_open(Pool **pool, int threads, PoolWork work, void *const *workers);
void pool_submit(Pool *pool, PoolJob *job);
void pool_wait(Pool *pool, const PoolJob *job);
bool pool_is_done(Pool *pool, const PoolJob *job);
/* Jobs that were not begun are dropped. Takes NULL. */
void pool_close(Pool *pool);

int pool_usable_cores(void);

#endif
