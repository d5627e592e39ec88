#include <pthread.h>

#include "base/thread.h"
#include "exec/exec_internal.h"

typedef struct {
    CommLane lane; /* beside: with a thread; a device's memory is reached by the step's thread only, which sums when
                      it waits */
    pthread_t thread;
    pthread_mutex_t lock; /* of the members below, and of `posted` of turns */
    pthread_cond_t changed;
    int done; /* turns */
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

Status comm_lane_sum_losses(const Exec *e)
{
    TensorId there = plan_find(e->plan, "stats");
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
    return backend_upload(e->memory->backend, exec_data(e, there), stats, sizeof *stats);
}

static Status sum_bucket(const Exec *e, int32_t bucket)
{
    Device *d = e->memory->backend->device;
    if (e->events) TRY(d->choose_lane(d, LANE_COMPUTE));
    return comm_lane_sum(e, bucket);
}

static Status sum_one(HostLane *l, CommTurn *t)
{
    const Exec *e = l->lane.exec;
    const ExecRanks *r = e->options.ranks;
    if (t == l->lane.turns && r->meet) TRY(r->meet(r->self));
    t->begin = clock_monotonic();
    Status status = t->bucket < 0 ? comm_lane_sum_losses(e) : sum_bucket(e, t->bucket);
    t->end = clock_monotonic();
    return status;
}

/* ---- the thread ---- */

static bool is_due(const HostLane *l) { return l->done < l->lane.n && l->lane.turns[l->done].posted; }

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
        while (!is_due(l) && !l->ending) pthread_cond_wait(&l->changed, &l->lock);
        if (!is_due(l)) break;
        CommTurn *t = &l->lane.turns[l->done];
        bool good = l->status == OK;
        pthread_mutex_unlock(&l->lock);
        Status status = good ? sum_one(l, t) : OK;
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
    if (lane->beside) {
        pthread_mutex_lock(&l->lock);
        l->ending = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    MEM_FREE(l->message, lane->turns, l);
}

/* ---- for the step's thread ---- */

static Status host_post(CommLane *lane, CommTurn *t, const RowCounts *rows)
{
    HostLane *l = host_lane(lane);
    (void)rows;
    pthread_mutex_lock(&l->lock);
    t->posted = true;
    t->when = clock_monotonic();
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return OK;
}

/* Nothing is posted then, so the lane's connection is free for the step's thread. */
static Status host_share(CommLane *lane, InstrId i, const RowCounts *rows)
{
    return exec_run_noted(lane->exec, i, rows, LANE_COMPUTE, comm_lane_share);
}

static void note_sums(const HostLane *l, const RowCounts *rows)
{
    for (int i = 0; i < l->lane.n; i++) {
        const CommTurn *t = &l->lane.turns[i];
        l->lane.exec->comm_busy += t->end - t->begin;
        if (t->exec->tracing && t->instr != NONE)
            exec_add_record(t->exec, (ExecRecord){t->instr, *rows, t->begin, t->end, t->when, t->when}, 0);
    }
}

static void begin_again(HostLane *l)
{
    for (int i = 0; i < l->lane.n; i++) l->lane.turns[i].posted = false;
    l->done = 0;
}

/* A thread's sums are awaited where the step failed, too: they lie in memory that may go. */
static Status host_wait(CommLane *lane, bool broken, const RowCounts *rows)
{
    HostLane *l = host_lane(lane);
    double start = clock_monotonic();
    for (; !lane->beside && is_due(l); l->done++)
        if (!broken && l->status == OK) note_failure(l, sum_one(l, &lane->turns[l->done]));
    pthread_mutex_lock(&l->lock);
    while (is_due(l)) pthread_cond_wait(&l->changed, &l->lock);
    lane->exec->comm_waited += clock_monotonic() - start;
    if (l->status == OK && !broken && l->done == lane->n) note_sums(l, rows);
    if (broken || l->done == lane->n) begin_again(l);
    Status status = l->status;
    l->status = OK;
    pthread_mutex_unlock(&l->lock);
    if (status != OK) status = fail(status, "%s", l->message);
    free(l->message);
    l->message = NULL;
    return status;
}

Status comm_lane_open_host(CommLane as, CommLane **lane)
{
    HostLane *l = mem_alloc(sizeof *l);
    Status status = OK;
    l->lane = as;
    l->lane.post = host_post;
    l->lane.share = host_share;
    l->lane.wait = host_wait;
    l->lane.close = host_close;
    thread_lock_init(&l->lock, &l->changed);
    if (as.n > 0 && !as.exec->memory->backend->device) {
        status = thread_start(&l->thread, lane_thread, l);
        l->lane.beside = status == OK;
    }
    if (status != OK) {
        host_close(&l->lane);
        return status_context(status, "the thread of the comm lane");
    }
    *lane = &l->lane;
    return OK;
}
