#include "tasks/pretrain/pool.h"

#include <pthread.h>

#include "base/thread.h"

typedef struct {
    Pool *pool;
    void *worker;
    pthread_t id;
} Thread;

struct Pool {
    pthread_mutex_t lock;
    pthread_cond_t work_is_there, job_is_done;
    PoolJob *first, *last;
    bool closing;
    PoolWork work;
    Thread threads[POOL_MOST];
    int n;
};

static void *run_thread(void *arg)
{
    const Thread *thread = arg;
    Pool *p = thread->pool;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->closing) pthread_cond_wait(&p->work_is_there, &p->lock);
        if (p->closing) break;
        PoolJob *job = p->first;
        p->first = job->next;
        if (!p->first) p->last = NULL;
        pthread_mutex_unlock(&p->lock);
        p->work(job, thread->worker);
        pthread_mutex_lock(&p->lock);
        job->done = true;
        pthread_cond_broadcast(&p->job_is_done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

Status pool_open(Pool **pool, int threads, PoolWork work, void *const *workers)
{
    Pool *p = mem_alloc(sizeof *p);
    Status status = OK;
    CHECK(threads >= 1 && threads <= POOL_MOST, "%d threads", threads);
    p->work = work;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work_is_there, NULL);
    pthread_cond_init(&p->job_is_done, NULL);
    for (int i = 0; i < threads && status == OK; i++) {
        p->threads[i] = (Thread){.pool = p, .worker = workers[i]};
        status = thread_start(&p->threads[i].id, run_thread, &p->threads[i]);
        p->n += status == OK;
    }
    if (p->n == 0) {
        pool_close(p);
        return status;
    }
    *pool = p;
    return OK;
}

void pool_submit(Pool *p, PoolJob *job)
{
    pthread_mutex_lock(&p->lock);
    job->done = false;
    job->next = NULL;
    if (p->last)
        p->last->next = job;
    else
        p->first = job;
    p->last = job;
    pthread_cond_signal(&p->work_is_there);
    pthread_mutex_unlock(&p->lock);
}

void pool_wait(Pool *p, const PoolJob *job)
{
    pthread_mutex_lock(&p->lock);
    while (!job->done) pthread_cond_wait(&p->job_is_done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

bool pool_is_done(Pool *p, const PoolJob *job)
{
    pthread_mutex_lock(&p->lock);
    bool done = job->done;
    pthread_mutex_unlock(&p->lock);
    return done;
}

void pool_close(Pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->work_is_there);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n; i++) pthread_join(p->threads[i].id, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work_is_there);
    pthread_cond_destroy(&p->job_is_done);
    free(p);
}
