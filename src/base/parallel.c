#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include "base/thread.h"

enum { MOST_THREADS = 8 };

typedef struct {
    ParallelWork work;
    void *arg;
    size_t begin, end;
} ParallelRange;

static void *run_range(void *arg)
{
    const ParallelRange *r = arg;
    r->work(r->arg, r->begin, r->end);
    return NULL;
}

int parallel_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

void parallel_ranges(size_t n, size_t grain, ParallelWork work, void *arg)
{
    size_t grains = n / grain, threads = grains < MOST_THREADS ? grains : MOST_THREADS;
    size_t cores = (size_t)parallel_cores(); /* unknown: one thread is fast enough */
    if (threads > cores) threads = cores;
    if (threads <= 1) {
        if (n > 0) work(arg, 0, n);
        return;
    }
    ParallelRange ranges[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    size_t at = 0;
    for (size_t i = 0; i < threads; i++) {
        size_t end = i + 1 == threads ? n : grains * (i + 1) / threads * grain;
        ranges[i] = (ParallelRange){work, arg, at, end};
        at = end;
        started[i] = i > 0 && thread_start(&ids[i], run_range, &ranges[i]) == OK;
    }
    for (size_t i = 0; i < threads; i++)
        if (!started[i]) run_range(&ranges[i]);
    for (size_t i = 0; i < threads; i++)
        if (started[i]) pthread_join(ids[i], NULL);
}

typedef struct {
    float *to;
    const float *from;
} CopyJob;

static void copy_range(void *arg, size_t begin, size_t end)
{
    const CopyJob *job = arg;
    memcpy(job->to + begin, job->from + begin, (end - begin) * sizeof *job->to);
}

void parallel_copy(float *to, const float *from, size_t n)
{
    enum { GRAIN = 1 << 20 };
    if (to != from) parallel_ranges(n, GRAIN, copy_range, &(CopyJob){to, from});
}
