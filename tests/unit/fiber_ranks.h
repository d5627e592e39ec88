/* Ranks in one thread: each is a fiber, which yields where an exchange waits for another rank. Which rank runs next is
   drawn from a seed. The linker (--wrap) puts these functions in place of Gloo and of NCCL; the collectives of
   comm/mesh are the real ones. */
#pragma once

#include "testing.h"

#include <ucontext.h>

#include "comm/mesh/comm_internal.h"
#include "comm/mesh/device.h"

enum { FIBERS_MOST = 8, FIBER_STACK = 256 << 10 };

/* A rank's exchange waits until `left` is 0: of two ranks the one that comes second moves the data. */
typedef struct {
    ucontext_t at;
    void *stack;
    const Comm *comm;
    const GlooMessage *messages;
    bool *done; // (n)
    int n, left;
    bool ended;
    Status status;
    char *message; /* of a failure */
} Fiber;

static struct {
    ucontext_t begun;
    Fiber of[FIBERS_MOST];
    int n, now;
    Status (*work)(int rank, void *arg);
    void *arg;
    char wrong[160]; /* an exchange whose two ends differ */
} fibers;

/* Ranks `members` (size) of a group, in its order; those of a group have one array. */
static inline Comm fiber_comm(const int *members, int size, int rank)
{
    static CommGroup group;
    return (Comm){.rank = rank, .size = size, .group = &group, .members = (int *)(uintptr_t)members};
}

/* The first message of `f` that is not done and is the other end of one to or from rank `peer`; -1: none. */
static inline int fiber_match(const Fiber *f, const int *members, int peer, int send)
{
    for (int i = 0; f->left > 0 && f->comm->members == members && i < f->n; i++)
        if (!f->done[i] && members[f->messages[i].peer] == peer && f->messages[i].send != send) return i;
    return -1;
}

static inline void fiber_done(Fiber *f, int i)
{
    f->done[i] = true;
    f->left--;
}

static inline void fiber_pass(Fiber *own, int i)
{
    const GlooMessage *m = &own->messages[i];
    const int *members = own->comm->members;
    Fiber *peer = &fibers.of[members[m->peer]];
    int k = fiber_match(peer, members, members[own->comm->rank], m->send);
    if (k < 0) return;
    const GlooMessage *other = &peer->messages[k];
    if (m->bytes != other->bytes)
        snprintf(fibers.wrong, sizeof fibers.wrong, "rank %d exchanges %zu bytes with rank %d, which has %zu",
                 members[own->comm->rank], m->bytes, members[m->peer], other->bytes);
    else
        memcpy(m->send ? other->data : m->data, m->send ? m->data : other->data, m->bytes);
    fiber_done(own, i);
    fiber_done(peer, k);
}

Status __wrap_gloo_exchange(const Comm *c, const GlooMessage *messages, int n, double timeout_s, int *peer);
Status __wrap_gloo_exchange(const Comm *c, const GlooMessage *messages, int n, double timeout_s, int *peer)
{
    Fiber *own = &fibers.of[fibers.now];
    (void)timeout_s;
    (void)peer;
    CHECK(c->members[c->rank] == fibers.now, "rank %d calls for rank %d", fibers.now, c->members[c->rank]);
    own->comm = c;
    own->messages = messages;
    own->done = mem_array((size_t)n, sizeof *own->done);
    own->n = own->left = n;
    for (int i = 0; i < n; i++)
        if (messages[i].bytes == 0) fiber_done(own, i);
    for (int i = 0; i < n; i++)
        if (!own->done[i]) fiber_pass(own, i);
    while (own->left > 0) swapcontext(&own->at, &fibers.begun);
    free(own->done);
    return OK;
}

static inline void fiber_run(void)
{
    Fiber *own = &fibers.of[fibers.now];
    own->status = fibers.work(fibers.now, fibers.arg);
    if (own->status != OK) own->message = mem_strdup(status_message());
    own->ended = true;
}

static inline void fiber_begin(Fiber *f)
{
    void *stack = f->stack ? f->stack : mem_alloc(FIBER_STACK);
    free(f->message);
    memset(f, 0, sizeof *f);
    f->stack = stack;
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = stack;
    f->at.uc_stack.ss_size = FIBER_STACK;
    f->at.uc_link = &fibers.begun;
    makecontext(&f->at, fiber_run, 0);
}

/* A rank that can run, from a random one on; -1: none. */
static inline int fiber_next(uint64_t *random)
{
    int from = (int)(testing_random(random) % (uint64_t)fibers.n);
    for (int i = 0; i < fibers.n; i++) {
        int r = (from + i) % fibers.n;
        if (!fibers.of[r].ended && fibers.of[r].left == 0) return r;
    }
    return -1;
}

/* Runs `work` on all ranks. E_FAIL: ranks wait for each other, or the two ends of an exchange differ. Else the status
   and the message of each rank are in fibers.of. */
static inline Status fibers_run(int ranks, uint64_t *random, Status (*work)(int rank, void *arg), void *arg)
{
    fibers.n = ranks;
    fibers.work = work;
    fibers.arg = arg;
    fibers.wrong[0] = '\0';
    for (int r = 0; r < ranks; r++) fiber_begin(&fibers.of[r]);
    while ((fibers.now = fiber_next(random)) >= 0) swapcontext(&fibers.begun, &fibers.of[fibers.now].at);
    if (fibers.wrong[0]) return fail(E_FAIL, "%s", fibers.wrong);
    for (int r = 0; r < ranks; r++)
        if (!fibers.of[r].ended) return fail(E_FAIL, "rank %d waits for a message that does not come", r);
    return OK;
}

/* Where all ranks must succeed. */
static inline Status fibers_succeed(int ranks, uint64_t *random, Status (*work)(int rank, void *arg), void *arg)
{
    TRY(fibers_run(ranks, random, work, arg));
    for (int r = 0; r < ranks; r++)
        if (fibers.of[r].status != OK) return fail(fibers.of[r].status, "rank %d: %s", r, fibers.of[r].message);
    return OK;
}

static inline void fibers_free(void)
{
    for (int r = 0; r < FIBERS_MOST; r++) {
        MEM_FREE(fibers.of[r].stack, fibers.of[r].message);
        fibers.of[r].stack = fibers.of[r].message = NULL;
    }
}

/* ---- NCCL's functions; a CommDevice is a Comm, which adds in rank order ---- */

static inline Comm *comm_of(const CommDevice *d) { return (Comm *)(uintptr_t)d; }

int __wrap_comm_device_rank(const CommDevice *d);
int __wrap_comm_device_rank(const CommDevice *d) { return comm_of(d)->rank; }

int __wrap_comm_device_size(const CommDevice *d);
int __wrap_comm_device_size(const CommDevice *d) { return comm_of(d)->size; }

Status __wrap_comm_device_pass(CommDevice *d, const CommPass *passes, int n, void *stream);
Status __wrap_comm_device_pass(CommDevice *d, const CommPass *passes, int n, void *stream)
{
    GlooMessage *m = mem_array((size_t)n, sizeof *m);
    int peer;
    (void)stream;
    for (int i = 0; i < n; i++) m[i] = (GlooMessage){passes[i].peer, passes[i].send, passes[i].x, passes[i].bytes};
    Status status = __wrap_gloo_exchange(comm_of(d), m, n, 0, &peer);
    free(m);
    return status;
}

typedef Status DeviceCollective(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);

static inline Status on_device(CommDevice *d, DeviceCollective *run, float *x, const Intervals *parts)
{
    Comm *c = comm_of(d);
    void *scratch = mem_alloc(comm_reduce_bytes(parts, c->size, F32, 0));
    Status status = run(c, x, parts, F32, scratch);
    free(scratch);
    return status;
}

Status __wrap_comm_device_parts(CommDevice *d, float *x, const Intervals *parts, bool sum, void *stream);
Status __wrap_comm_device_parts(CommDevice *d, float *x, const Intervals *parts, bool sum, void *stream)
{
    (void)stream;
    return on_device(d, sum ? comm_reduce_scatter : comm_gather_parts, x, parts);
}

Status __wrap_comm_device_sum(CommDevice *d, void *x, size_t count, Dtype type, void *stream);
Status __wrap_comm_device_sum(CommDevice *d, void *x, size_t count, Dtype type, void *stream)
{
    Interval all = {0, (int64_t)count};
    Intervals parts[FIBERS_MOST] = {{&all, 1, 1, (int64_t)count}};
    (void)stream;
    CHECK(type == F32, "a sum in %s", dtype_name(type));
    return on_device(d, comm_allreduce, x, parts);
}
