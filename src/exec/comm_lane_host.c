#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "exec/exec_internal.h"

/* A sum, and when it was done: seconds of clock_monotonic. */
typedef struct {
    InstrId instr;
    double posted, begin, end;
} Post;

typedef struct {
    CommLane lane;
    Exec *exec;
    const ExecRanks *ranks;
    Holders holders;
    Stats *stats;
    Post *posts; // (most)
    int most;
    bool threaded; /* a device's memory is reached by the step's thread only, which sums when it waits */
    pthread_t thread;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t changed;
    int posted, done;
    bool ending;
    Status status; /* of the first failure since the last wait; the sums after it are left out */
    char *message;
} HostLane;

static HostLane *host_lane(CommLane *l) { return (HostLane *)l; }

/* ---- one sum ---- */

static void put_stats(const Stats *s, double x[4])
{
    for (int slot = 0; slot < 2; slot++) {
        x[slot] = s->loss[slot];
        x[2 + slot] = (double)s->correct[slot];
    }
}

Status comm_lane_sum_losses(const Exec *e, Stats *there)
{
    Stats all[1 + MOST_WAITING], *stats = &all[exec_virtual_waiting(e)];
    double x[4 * (1 + MOST_WAITING)];
    TRY(exec_virtual_stats(e, all));
    put_stats(stats, x);
    for (const Stats *s = all; s < stats; s++) put_stats(s, x + 4 * (s - all + 1));
    TRY(comm_sum(e->options.ranks->comm, x, 4));
    for (int slot = 0; slot < 2; slot++) {
        stats->loss[slot] = x[slot];
        stats->correct[slot] = (int64_t)x[2 + slot];
    }
    return backend_upload(e->memory->backend, there, stats, sizeof *stats);
}

static Status sum_bucket(const HostLane *l, int32_t bucket)
{
    Device *d = l->holders.backend->device;
    if (l->exec->events) TRY(d->choose_lane(d, LANE_COMPUTE));
    return comm_lane_sum(l->exec, &l->holders, bucket);
}

static Status sum_one(HostLane *l, Post *p, bool first)
{
    const ExecRanks *r = l->ranks;
    int32_t bucket = l->exec->plan->instrs[p->instr].attr.reduce.bucket;
    if (first && r->meet) TRY(r->meet(r->self));
    p->begin = clock_monotonic();
    Status status = bucket < 0 ? comm_lane_sum_losses(l->exec, l->stats) : sum_bucket(l, bucket);
    p->end = clock_monotonic();
    return status;
}

/* Nothing is posted then, so the lane's connection is free for the step's thread. */
static Status share_one(Exec *e, InstrId i, const RowCounts *rows)
{
    (void)rows;
    return comm_lane_share(e, &host_lane(e->comm_lane)->holders, i);
}

/* ---- the thread ---- */

static void note_failure(HostLane *l, Status status)
{
    if (status == OK || l->status != OK) return;
    l->status = status;
    l->message = mem_strdup(status_message());
}

static void *lane_thread(void *arg)
{
    HostLane *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->done == l->posted && !l->ending) pthread_cond_wait(&l->changed, &l->lock);
        if (l->done == l->posted) break;
        int at = l->done;
        bool good = l->status == OK;
        pthread_mutex_unlock(&l->lock);
        Status status = good ? sum_one(l, &l->posts[at], at == 0) : OK;
        pthread_mutex_lock(&l->lock);
        note_failure(l, status);
        l->done++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void host_close(CommLane *lane)
{
    HostLane *l = host_lane(lane);
    if (l->threaded) {
        pthread_mutex_lock(&l->lock);
        l->ending = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l->posts);
    free(l->message);
    free(l);
}

/* ---- for the step's thread ---- */

static Status host_post(CommLane *lane, InstrId i, const RowCounts *rows)
{
    HostLane *l = host_lane(lane);
    (void)rows;
    pthread_mutex_lock(&l->lock);
    CHECK(l->posted < l->most, "more sums than the plan has");
    l->posts[l->posted++] = (Post){.instr = i, .posted = clock_monotonic()};
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return OK;
}

static Status host_share(CommLane *lane, InstrId i, const RowCounts *rows)
{
    return exec_run_noted(host_lane(lane)->exec, i, rows, LANE_COMPUTE, share_one);
}

static void note_sums(const HostLane *l, const RowCounts *rows)
{
    for (int i = 0; i < l->posted; i++) {
        const Post *p = &l->posts[i];
        l->exec->comm_busy += p->end - p->begin;
        if (l->exec->tracing)
            exec_add_record(l->exec, (ExecRecord){p->instr, *rows, p->begin, p->end, p->posted, p->posted}, 0);
    }
}

/* A thread's sums are awaited where the range failed, too: they lie in memory that may go. */
static Status host_wait(CommLane *lane, bool broken, const RowCounts *rows)
{
    HostLane *l = host_lane(lane);
    double start = clock_monotonic();
    if (!l->threaded)
        for (; l->done < l->posted; l->done++)
            if (!broken && l->status == OK) note_failure(l, sum_one(l, &l->posts[l->done], l->done == 0));
    pthread_mutex_lock(&l->lock);
    while (l->done < l->posted) pthread_cond_wait(&l->changed, &l->lock);
    l->exec->comm_waited += clock_monotonic() - start;
    if (l->status == OK && !broken) note_sums(l, rows);
    l->posted = l->done = 0;
    Status status = l->status;
    l->status = OK;
    pthread_mutex_unlock(&l->lock);
    if (status != OK) status = fail(status, "%s", l->message);
    free(l->message);
    l->message = NULL;
    return status;
}

/* The region COMM: scratch of the collectives, then on a device a piece's copy. */
static Holders find_holders(const Exec *e)
{
    const ExecRanks *r = e->options.ranks;
    char *buffer = e->memory->base[REGION_COMM];
    return (Holders){.backend = e->memory->backend,
                     .comm = r->comm,
                     .scratch = buffer,
                     .copy = (float *)(void *)(buffer + r->scratch),
                     .stride = r->stride};
}

Status comm_lane_open_host(Exec *e, Stats *stats, int most, CommLane **lane)
{
    HostLane *l = mem_alloc(sizeof *l);
    *l = (HostLane){.lane = {host_post, host_share, host_wait, host_close},
                    .exec = e,
                    .ranks = e->options.ranks,
                    .holders = find_holders(e),
                    .stats = stats,
                    .posts = mem_array((size_t)most, sizeof(Post)),
                    .most = most,
                    .threaded = most > 0 && !e->memory->backend->device};
    if (most > 0) l->ranks->comm->tree = (CommTree){.terms = l->ranks->holding->mine.tree};
    thread_lock_init(&l->lock, &l->changed);
    Status status = l->threaded ? thread_start(&l->thread, lane_thread, l) : OK;
    if (status != OK) {
        l->threaded = false;
        host_close(&l->lane);
        return status_context(status, "the thread of the comm lane");
    }
    *lane = &l->lane;
    return OK;
}
