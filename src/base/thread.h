/* Threads next to the training thread, and waiting with a deadline. */
#pragma once

#include <pthread.h>

#include "base/status.h"

/* Starts a thread with all signals blocked but SIGBUS and SIGSEGV, because the program's first thread handles them.
 * E_MEMORY: the system has none left. */
Status thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* A lock, and a condition whose deadlines are times of clock_monotonic. Aborts where the system has no more. */
void thread_lock_init(pthread_mutex_t *lock, pthread_cond_t *changed);
/* Waits for a change, at most until `end` (clock_monotonic), when it returns false. The caller holds `lock`. */
bool thread_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, double end);
