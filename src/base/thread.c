#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/base.h"

Status thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);  /* of base/mapping, in the thread that meets it */
    sigdelset(&all, SIGSEGV); /* of base/library */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) return OK;
    return fail(E_MEMORY,
                "a thread cannot be started: %s; free some memory, or raise the limits on processes (ulimit -u, "
                "the cgroup's pids.max) and on memory (ulimit -v)",
                strerror(error));
}

void thread_lock_init(pthread_mutex_t *lock, pthread_cond_t *changed)
{
    pthread_condattr_t monotonic;
    CHECK(pthread_condattr_init(&monotonic) == 0 && pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
              pthread_mutex_init(lock, NULL) == 0 && pthread_cond_init(changed, &monotonic) == 0,
          "the system has no more locks");
    pthread_condattr_destroy(&monotonic);
}

bool thread_wait_until(pthread_cond_t *changed, pthread_mutex_t *lock, double end)
{
    struct timespec t = {.tv_sec = (time_t)end};
    t.tv_nsec = (long)((end - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(changed, lock, &t) == 0;
}
