/* The device communicator: the module cairn_nccl.so, opened through a Comm. NCCL notices a lost rank late or never; the
   Comm's watch does, and aborts NCCL. */
#include <stdatomic.h>
#include <time.h>

#include "base/module.h"
#include "comm/mesh/comm_internal.h"
#include "comm/mesh/device.h"

struct CommDevice {
    Comm *comm;
    int rank, size; /* of the communicator */
    const NcclModule *module;
    void *nccl;
    NcclPiece *pieces; // (n_pieces) room for them
    int n_pieces, cap_pieces;
    bool pending;      /* work is queued, and its end was not seen */
    atomic_bool ended; /* aborted: results of queued work are invalid */
    char describe[32];
    char error[512]; /* NCCL's last */
};

/* ---- before opening ---- */

typedef struct {
    char unit[80], why[512];
    int32_t bad, shares, version;
} Seat;

/* True: CAIRN_SHARED_GPU allows several ranks on one GPU, for experiments. */
static bool may_share(void) { return env_is_on("CAIRN_SHARED_GPU"); }

static Status load_nccl(const NcclModule **m)
{
    void *module;
    TRY(module_load("transport", "nccl", NCCL_MODULE_ABI, "Build it (NCCL, WITH_NCCL=ON), or use --comm gloo",
                    &module));
    return module_symbol(module, "transport", "nccl", "cairn_comm_nccl", (void **)m);
}

/* Finds two ranks on one GPU, which NCCL reports badly or not at all. */
static Status check_seats(const Comm *c, const Seat *all)
{
    for (int b = 0; b < c->size; b++) {
        if (all[b].bad) return fail(E_USAGE, "%s: %s", comm_peer_name(c, b), all[b].why);
        if (all[b].version != all[0].version)
            return fail(E_USAGE, "the ranks have different versions of NCCL: %s %d, %s %d. Install the same everywhere",
                        comm_peer_name(c, 0), all[0].version, comm_peer_name(c, b), all[b].version);
        for (int a = 0; a < b; a++)
            if (strcmp(all[a].unit, all[b].unit) == 0 && !(all[a].shares && all[b].shares))
                return fail(
                    E_USAGE,
                    "%s and rank %d are on the same GPU (%s). Start one rank per GPU: each takes the GPU of its local "
                    "rank, of those in CUDA_VISIBLE_DEVICES, or the only one there; or use --comm gloo. "
                    "(CAIRN_SHARED_GPU=1 on all of them allows it, for tests: NCCL then runs with an NCCL_HOSTID of "
                    "each rank's own, through sockets)",
                    comm_peer_name(c, a), b, all[b].unit);
    }
    return OK;
}

Status comm_device_ready(Comm *c, const char *unit)
{
    const NcclModule *m;
    Seat mine = {.shares = may_share()}, *all = mem_array((size_t)c->size, sizeof *all);
    snprintf(mine.unit, sizeof mine.unit, "%s", unit);
    if (load_nccl(&m) != OK) {
        mine.bad = 1;
        snprintf(mine.why, sizeof mine.why, "%s", status_message());
    } else {
        mine.version = m->version();
    }
    Status status = comm_allgather(c, &mine, sizeof mine, all);
    if (status == OK) status = check_seats(c, all);
    free(all);
    return status;
}

/* ---- faults ---- */

/* May run in the watch's thread. */
static void abort_device(void *self)
{
    CommDevice *d = self;
    atomic_store(&d->ended, true);
    d->module->abort(d->nccl);
}

static Status fail_lost(CommDevice *d, Loss loss)
{
    abort_device(d); /* the watch may not have done so yet */
    d->pending = false;
    return comm_fail_lost(d->comm, "nccl", &loss);
}

/* Handles an error of NCCL. Its cause may be a lost rank, which the watch notices within a second. Otherwise this rank
   failed, and reports that to the others. */
static Status nccl_failed(CommDevice *d)
{
    Comm *c = d->comm;
    Watch *watch = c->group->watch;
    Loss loss;
    if (watch_verdict(watch, 1, &loss)) return fail_lost(d, loss);
    if (watch) watch_report(watch, c->rank, LOSS_BROKEN, 0);
    abort_device(d);
    d->pending = false;
    return fail(E_PEER,
                "%s: NCCL failed (%s). NCCL_DEBUG=INFO says more; --comm gloo goes through the host's memory instead",
                comm_peer_name(c, c->rank), d->error);
}

Status comm_device_check(CommDevice *d)
{
    Watch *watch = d->comm->group->watch; /* NULL: one rank */
    Loss loss;
    if (watch_verdict(watch, 0, &loss)) return fail_lost(d, loss);
    int left = watch_left(watch, 0);
    if (left >= 0 && d->pending) return fail_lost(d, watch_report(watch, left, LOSS_LEFT, 0));
    return d->module->state(d->nccl, d->error, sizeof d->error) == NCCL_FAILED ? nccl_failed(d) : OK;
}

static void pause_briefly(void)
{
    const struct timespec some = {.tv_nsec = 50000};
    nanosleep(&some, NULL);
}

/* Reports the live rank that has made the fewest exchanges. */
static Status fail_late(CommDevice *d, double seconds)
{
    Watch *watch = d->comm->group->watch;
    int laggard = watch_laggard(watch);
    if (laggard < 0) laggard = (d->comm->rank + 1) % d->comm->size;
    return fail_lost(d, watch_report(watch, laggard, LOSS_LATE, seconds));
}

Status comm_device_await(CommDevice *d, Status (*done)(void *self, bool *done), void *self)
{
    double begin = clock_monotonic(), patience = comm_patience(d->comm);
    for (bool over = false;; pause_briefly()) {
        Status status = done(self, &over);
        if (status == E_PEER) return status; /* of another communicator */
        if (status != OK) {                  /* the GPU failed, or NCCL's kernel did because a rank is lost */
            char *why = mem_strdup(status_message());
            Status known = comm_device_check(d);
            if (known == OK) status = fail(status, "%s", why);
            free(why);
            return known == OK ? status : known;
        }
        if (over && !atomic_load(&d->ended)) return OK;
        TRY(comm_device_check(d));
        double waited = clock_monotonic() - begin;
        if (waited > patience && d->comm->group->watch) return fail_late(d, waited);
    }
}

Status comm_device_wait(CommDevice *d, Status (*done)(void *self, bool *done), void *self)
{
    TRY(comm_device_await(d, done, self));
    d->pending = false;
    return OK;
}

void comm_device_abort(CommDevice *d)
{
    if (!d || !d->pending) return;
    abort_device(d);
    d->pending = false;
}

/* Waits until NCCL has accepted a request, whose first answer was `state`. Its work is pending then. */
static Status await_accepted(CommDevice *d, NcclState state)
{
    d->pending = true;
    for (double end = clock_monotonic() + COMM_CONNECT_S; state == NCCL_BUSY; pause_briefly()) {
        TRY(comm_device_check(d));
        if (clock_monotonic() > end) {
            snprintf(d->error, sizeof d->error, "no answer within %.0f s", COMM_CONNECT_S);
            return nccl_failed(d);
        }
        state = d->module->state(d->nccl, d->error, sizeof d->error);
    }
    return state == NCCL_FAILED ? nccl_failed(d) : OK;
}

/* ---- opening ---- */

/* Sends the id of the first of `ranks` to the others, or its error. */
static Status share_id(const CommDevice *d, const int *ranks, void *id)
{
    struct {
        int32_t bad;
        char error[252];
        char id[NCCL_ID_BYTES];
    } x = {0};
    if (d->rank == 0) x.bad = d->module->new_id(x.id, x.error, sizeof x.error) != NCCL_DONE;
    if (d->rank > 0) TRY(comm_receive(d->comm, ranks[0], &x, sizeof x));
    for (int r = 1; d->rank == 0 && r < d->size; r++) TRY(comm_send(d->comm, ranks[r], &x, sizeof x));
    memcpy(id, x.id, sizeof x.id);
    x.error[sizeof x.error - 1] = '\0';
    return x.bad ? fail(E_FAIL, "NCCL on %s: %s", comm_peer_name(d->comm, ranks[0]), x.error) : OK;
}

/* Passes on the chosen network, unless the user has set these variables. NCCL allocates all memory at the start, where
   it is counted. */
static void set_environment(const Comm *c)
{
    const PeerCard *own = &c->group->cards[c->group->rank];
    if (*own->interface && !getenv("NCCL_SOCKET_IFNAME")) {
        setenv("NCCL_SOCKET_IFNAME", SHORT_TEXT("=%s", own->interface), 0);
        setenv("NCCL_SOCKET_FAMILY", strchr(own->address, ':') ? "AF_INET6" : "AF_INET", 0);
    }
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    if (may_share()) setenv("NCCL_HOSTID", SHORT_TEXT("cairn-rank-%d", c->rank), 0);
}

Status comm_device_open(Comm *c, const int *ranks, int size, int most_blocks, CommDevice **device)
{
    Status status = OK;
    char id[NCCL_ID_BYTES];
    CommDevice *d = mem_alloc(sizeof *d);
    int rank = 0;
    *device = NULL;
    while (rank < size && ranks[rank] != c->rank) rank++;
    CHECK(rank < size, "rank %d opens the communicator of others", c->rank);
    *d = (CommDevice){.comm = c, .rank = rank, .size = size};
    TRY_DONE(load_nccl(&d->module));
    set_environment(c);
    TRY_DONE(share_id(d, ranks, id));
    int version = d->module->version();
    snprintf(d->describe, sizeof d->describe, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    d->nccl = d->module->open(id, rank, size, most_blocks, d->error, sizeof d->error);
    if (!d->nccl) TRY_DONE(fail(E_PEER, "%s: NCCL cannot begin to connect: %s", comm_peer_name(c, c->rank), d->error));
    comm_add_wait(c->group, abort_device, d, true);
    TRY_DONE(await_accepted(d, NCCL_BUSY));
    d->pending = false;
    *device = d;
    d = NULL;
done:
    comm_device_close(d);
    return status;
}

const char *comm_device_describe(const CommDevice *d) { return d->describe; }

/* Leaves in order if nothing failed, and waits up to 10 s for slower ranks. */
static bool finish_nccl(CommDevice *d)
{
    comm_device_abort(d);
    if (atomic_load(&d->ended)) return false;
    NcclState state = d->module->finish(d->nccl, d->error, sizeof d->error);
    for (double end = clock_monotonic() + 10; state == NCCL_BUSY && clock_monotonic() < end; pause_briefly())
        state = d->module->state(d->nccl, d->error, sizeof d->error);
    return state == NCCL_DONE;
}

void comm_device_close(CommDevice *d)
{
    if (!d) return;
    if (d->nccl) {
        bool good = finish_nccl(d);
        comm_remove_wait(d->comm->group, d);
        if (!good) d->module->abort(d->nccl);
        d->module->close(d->nccl);
    }
    MEM_FREE(d->pieces, d);
}

/* ---- collectives ---- */

Status comm_device_sum(CommDevice *d, void *x, size_t count, Dtype type, void *stream)
{
    CHECK(type == F32 || type == F64 || type == I64, "%s by NCCL", dtype_name(type));
    NcclType t = type == F32 ? NCCL_F32 : type == F64 ? NCCL_F64 : NCCL_I64;
    return await_accepted(d, d->module->all_reduce(d->nccl, x, count, t, stream, d->error, sizeof d->error));
}

Status comm_device_parts(CommDevice *d, float *x, const Intervals *parts, bool sum, void *stream)
{
    d->n_pieces = 0;
    for (int r = 0; r < d->size; r++)
        for (int i = 0; i < parts[r].count; i++) {
            Interval v = parts[r].intervals[i];
            MEM_PUSH(d->pieces, d->n_pieces, d->cap_pieces, (NcclPiece){x + v.begin, (size_t)(v.end - v.begin), r});
        }
    if (d->n_pieces == 0) return OK;
    return await_accepted(d,
                          d->module->pieces(d->nccl, d->pieces, d->n_pieces, sum, stream, d->error, sizeof d->error));
}

Status comm_device_pass(CommDevice *d, const CommPass *passes, int n, void *stream)
{
    if (n == 0) return OK;
    return await_accepted(d, d->module->passes(d->nccl, passes, n, stream, d->error, sizeof d->error));
}

int comm_device_rank(const CommDevice *d) { return d->rank; }
int comm_device_size(const CommDevice *d) { return d->size; }
