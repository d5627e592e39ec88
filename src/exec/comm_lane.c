#include "exec/comm_lane_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

typedef struct {
    InstrId instr;
    int32_t bucket;
} Post;

struct CommLane {
    const ExecRanks *ranks;
    Backend *backend;
    float *grads;        // (the flat space)
    Stats *stats;        // in the backend's memory
    void *buffer;        /* the region COMM: what the collectives need, then on a device a bucket's copy */
    Post *posts;         // (most)
    CommLaneRecord *log; // (most)
    int most;
    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int posted, done;
    bool ending;
    Status status; /* of the first that failed since the last wait; the others are then left out */
    char *message;
};

/* ---- one sum ---- */

static Status sum_stats(const CommLane *l)
{
    Stats stats;
    TRY(backend_download(l->backend, &stats, l->stats, sizeof stats));
    double x[] = {stats.loss[0], stats.loss[1], (double)stats.correct[0], (double)stats.correct[1]};
    TRY(comm_sum(l->ranks->comm, x, 4));
    for (int slot = 0; slot < 2; slot++) {
        stats.loss[slot] = x[slot];
        stats.correct[slot] = (int64_t)x[2 + slot];
    }
    return backend_upload(l->backend, l->stats, &stats, sizeof stats);
}

static Status sum_parts(const CommLane *l, float *x, const Intervals *parts)
{
    const ExecRanks *r = l->ranks;
    return r->sums ? comm_reduce_scatter(r->comm, x, parts, r->wire, l->buffer)
                   : comm_allreduce(r->comm, x, parts, r->wire, l->buffer);
}

/* `x` of the collectives is the flat space; of a device they get a bucket's copy, as if the space began before it. */
static Status sum_bucket(const CommLane *l, int32_t bucket)
{
    const ExecRanks *r = l->ranks;
    const Intervals *parts = r->parts + (size_t)bucket * (size_t)r->comm->size;
    int64_t begin = r->starts[bucket], size = r->starts[bucket + 1] - begin;
    size_t bytes = (size_t)size * sizeof(float);
    if (!l->backend->device) return sum_parts(l, l->grads, parts);
    float *copy = (float *)((char *)l->buffer + r->scratch_bytes);
    TRY(backend_download(l->backend, copy, l->grads + begin, bytes));
    TRY(sum_parts(l, copy - begin, parts));
    return backend_upload(l->backend, l->grads + begin, copy, bytes);
}

/* From the first element of any part to the last. */
static Interval extent(const Intervals *parts, int size)
{
    Interval all = {INT64_MAX, 0};
    for (int r = 0; r < size; r++)
        for (int i = 0; i < parts[r].count; i++) {
            if (parts[r].intervals[i].begin < all.begin) all.begin = parts[r].intervals[i].begin;
            if (parts[r].intervals[i].end > all.end) all.end = parts[r].intervals[i].end;
        }
    return all;
}

static Status share_parts(const CommLane *l, float *x, const Intervals *parts)
{
    const ExecRanks *r = l->ranks;
    if (!l->backend->device) return comm_gather_parts(r->comm, x, parts, F32, l->buffer);
    Interval all = extent(parts, r->comm->size);
    if (all.end <= all.begin) return OK;
    float *copy = (float *)((char *)l->buffer + r->scratch_bytes);
    size_t bytes = (size_t)(all.end - all.begin) * sizeof *copy;
    TRY(backend_download(l->backend, copy, x + all.begin, bytes));
    TRY(comm_gather_parts(r->comm, copy - all.begin, parts, F32, l->buffer));
    return backend_upload(l->backend, x + all.begin, copy, bytes);
}

/* Every rank's part of a table or of the weights to all. Nothing else is under way then, so the lane's connection is
   free for the step's thread. */
Status comm_lane_share(CommLane *l, float *x, bool weights)
{
    const ExecRanks *r = l->ranks;
    if (!weights) return share_parts(l, x, r->sums);
    for (int b = 0; b < r->n_buckets; b++) TRY(share_parts(l, x, r->parts + (size_t)b * (size_t)r->comm->size));
    return OK;
}

static Status sum_one(CommLane *l, int at)
{
    int32_t bucket = l->posts[at].bucket;
    if (at == 0 && l->ranks->meet) TRY(l->ranks->meet(l->ranks->self));
    l->log[at].begin = clock_monotonic();
    Status status = bucket < 0 ? sum_stats(l) : sum_bucket(l, bucket);
    l->log[at].end = clock_monotonic();
    return status;
}

static void note_failure(CommLane *l, Status status)
{
    if (status == OK || l->status != OK) return;
    l->status = status;
    l->message = mem_strdup(status_message());
}

/* ---- the thread ---- */

static void *lane_thread(void *arg)
{
    CommLane *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->done == l->posted && !l->ending) pthread_cond_wait(&l->changed, &l->lock);
        if (l->done == l->posted) break;
        int at = l->done;
        bool good = l->status == OK;
        pthread_mutex_unlock(&l->lock);
        Status status = good ? sum_one(l, at) : OK;
        pthread_mutex_lock(&l->lock);
        note_failure(l, status);
        l->done++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

Status comm_lane_open(CommLane **lane, const ExecRanks *ranks, const Memory *memory, float *grads, Stats *stats,
                      int most)
{
    CommLane *l = mem_alloc(sizeof *l);
    *l = (CommLane){.ranks = ranks,
                    .backend = memory->backend,
                    .grads = grads,
                    .stats = stats,
                    .buffer = memory->base[REGION_COMM],
                    .posts = mem_array((size_t)most, sizeof(Post)),
                    .log = mem_array((size_t)most, sizeof(CommLaneRecord)),
                    .most = most};
    thread_lock_init(&l->lock, &l->changed);
    l->threaded = !memory->backend->device;
    if (l->threaded && thread_start(&l->thread, lane_thread, l) != 0) {
        l->threaded = false;
        comm_lane_close(l);
        return fail(E_MEMORY, "the thread of the comm lane cannot be started");
    }
    *lane = l;
    return OK;
}

void comm_lane_close(CommLane *l)
{
    if (!l) return;
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
    free(l->log);
    free(l->message);
    free(l);
}

void comm_lane_post(CommLane *l, InstrId instr, int32_t bucket)
{
    pthread_mutex_lock(&l->lock);
    CHECK(l->posted < l->most, "more sums than the plan has");
    l->posts[l->posted] = (Post){instr, bucket};
    l->log[l->posted++] = (CommLaneRecord){.instr = instr, .posted = clock_monotonic()};
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

Status comm_lane_wait(CommLane *l, const CommLaneRecord **records, int *n)
{
    if (!l->threaded)
        for (; l->done < l->posted; l->done++) note_failure(l, l->status == OK ? sum_one(l, l->done) : OK);
    pthread_mutex_lock(&l->lock);
    while (l->done < l->posted) pthread_cond_wait(&l->changed, &l->lock);
    *records = l->log;
    *n = l->status == OK ? l->posted : 0;
    l->posted = l->done = 0;
    Status status = l->status;
    l->status = OK;
    pthread_mutex_unlock(&l->lock);
    if (status != OK) status = fail(status, "%s", l->message);
    free(l->message);
    l->message = NULL;
    return status;
}
