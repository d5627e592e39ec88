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
    const Backend *backend;
    float *grads; // (the flat space)
    Stats *stats;
    void *buffer; /* the region COMM: scratch of the collectives, then on a device a bucket's copy */
    Post *posts;  // (most)
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

typedef enum { SUM_TO_ALL, SUM_TO_OWNERS, SEND_TO_ALL } HowShared;

/* Where a device's copy lies: behind the scratch of the collectives. */
static float *copy_of(const HostLane *l)
{
    const GradientBuckets *b = l->ranks->buckets, *factors = l->ranks->factors;
    size_t scratch = factors && factors->scratch_bytes > b->scratch_bytes ? factors->scratch_bytes : b->scratch_bytes;
    return (float *)((char *)l->buffer + scratch);
}

static int64_t largest_copy(const HostLane *l)
{
    const GradientBuckets *b = l->ranks->buckets, *factors = l->ranks->factors;
    return factors && factors->largest > b->largest ? factors->largest : b->largest;
}

/* The branches that wait lie behind a sum's last one; of a device copies of their elements [begin, end). */
static Status place_branches(const HostLane *l, const SumSpace *s, float *copy, int64_t begin, int64_t end)
{
    CommTree *tree = &l->ranks->comm->tree;
    size_t bytes = (size_t)(end - begin) * sizeof *copy;
    if (!l->backend->device) {
        tree->behind = s->waiting ? s->waiting - s->x : 0;
        tree->stride = s->size;
        return OK;
    }
    tree->behind = tree->stride = largest_copy(l);
    for (int k = 0; k < exec_virtual_waiting(l->exec); k++)
        TRY(backend_download(l->backend, copy + (k + 1) * tree->stride, exec_virtual_branch(l->exec, s, k) + begin,
                             bytes));
    return OK;
}

/* `x` of the collectives is a space; of a device it is a copy of [begin, end), as if the space began before it. `sums`:
   what is summed there. */
static Status exchange_parts(const HostLane *l, float *x, const SumSpace *sums, int64_t begin, int64_t end,
                             const Intervals *parts, HowShared how, Dtype wire)
{
    Comm *comm = l->ranks->comm;
    size_t bytes = (size_t)(end - begin) * sizeof *x;
    float *copy = copy_of(l), *space = x;
    if (l->backend->device) {
        space = copy - begin;
        TRY(backend_download(l->backend, copy, x + begin, bytes));
    }
    if (how != SEND_TO_ALL) TRY(place_branches(l, sums, copy, begin, end));
    if (how == SEND_TO_ALL)
        TRY(comm_gather_parts(comm, space, parts, wire, l->buffer));
    else if (how == SUM_TO_OWNERS)
        TRY(comm_reduce_scatter(comm, space, parts, wire, l->buffer));
    else
        TRY(comm_allreduce(comm, space, parts, wire, l->buffer));
    return l->backend->device ? backend_upload(l->backend, x + begin, copy, bytes) : OK;
}

static Status sum_bucket(const HostLane *l, int32_t bucket)
{
    const GradientBuckets *b = l->ranks->buckets;
    int64_t begin = b->starts[bucket], end = b->starts[bucket + 1];
    Device *d = l->backend->device;
    if (l->exec->events) TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(exec_virtual_add(l->exec, begin, end));
    return exchange_parts(l, l->grads, &l->exec->sums.grads, begin, end, gradient_parts(b, bucket),
                          b->sums ? SUM_TO_OWNERS : SUM_TO_ALL, b->wire);
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

/* From the first element of any part to the last. */
static Interval parts_extent(const Intervals *parts, int ranks)
{
    Interval all = {INT64_MAX, 0};
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < parts[r].count; i++) {
            if (parts[r].intervals[i].begin < all.begin) all.begin = parts[r].intervals[i].begin;
            if (parts[r].intervals[i].end > all.end) all.end = parts[r].intervals[i].end;
        }
    return all;
}

static Status share_parts(const HostLane *l, float *x, const Intervals *parts, HowShared how)
{
    Interval all = parts_extent(parts, l->ranks->buckets->ranks);
    return all.end <= all.begin ? OK
                                : exchange_parts(l, x, &l->exec->sums.factors, all.begin, all.end, parts, how, F32);
}

/* Nothing is posted then, so the lane's connection is free for the step's thread. */
static Status share_one(Exec *e, InstrId i, const RowCounts *rows)
{
    const HostLane *l = host_lane(e->comm_lane);
    ShareKind what = e->plan->instrs[i].attr.share.what;
    const GradientBuckets *b = what >= SHARE_FACTORS ? l->ranks->factors : l->ranks->buckets;
    float *x = OUT(&e->calls[i], SHARE, x)->data;
    (void)rows;
    if (what == SHARE_SUMS) return share_parts(l, x, b->sums, SEND_TO_ALL);
    for (int k = 0; k < b->n; k++)
        TRY(share_parts(l, x, gradient_parts(b, k), what == SHARE_FACTORS ? SUM_TO_OWNERS : SEND_TO_ALL));
    return OK;
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

Status comm_lane_open_host(Exec *e, float *grads, Stats *stats, int most, CommLane **lane)
{
    HostLane *l = mem_alloc(sizeof *l);
    *l = (HostLane){.lane = {host_post, host_share, host_wait, host_close},
                    .exec = e,
                    .ranks = e->options.ranks,
                    .backend = e->memory->backend,
                    .grads = grads,
                    .stats = stats,
                    .buffer = e->memory->base[REGION_COMM],
                    .posts = mem_array((size_t)most, sizeof(Post)),
                    .most = most,
                    .threaded = !e->memory->backend->device};
    l->ranks->comm->tree = (CommTree){.terms = l->ranks->buckets->tree};
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
