/* Sums in the tree of base/sum_tree.h, from GPU to GPU: all branches of an element travel to the rank that owns it,
   which adds them with the op ADD. So the bits are those of the host's exchange (comm/mesh/reduce.c). */
#include <stdlib.h>

#include "exec/exec_internal.h"

typedef struct {
    const DeviceTree *t;
    const SumSpace *terms;
    const Intervals *parts;
    int rank, ranks;
    CommPass *passes; // (n_passes)
    int n_passes, cap_passes;
    int first, own; /* this rank's branches among those of all */
} TreeSum;

static float *own_branch(const TreeSum *s, int k)
{
    return k + 1 < s->own ? s->terms->waiting + k * s->terms->size : s->terms->x;
}

static void add_pass(TreeSum *s, bool send, int peer, float *x, int64_t n)
{
    if (n == 0) return;
    MEM_GROW(s->passes, s->n_passes, s->cap_passes);
    s->passes[s->n_passes++] = (CommPass){send, peer, x, (size_t)n * sizeof *x};
}

static void send_branches(TreeSum *s, int peer)
{
    for (int k = 0; k < s->own; k++)
        for (int i = 0; i < s->parts[peer].count; i++) {
            Interval v = s->parts[peer].intervals[i];
            add_pass(s, true, peer, own_branch(s, k) + v.begin, v.end - v.begin);
        }
}

/* Others' branches, received one behind the other: of the own part, packed. */
static float *received(const TreeSum *s, int branch)
{
    int64_t at = branch < s->first ? branch : branch - s->own;
    return s->t->room + at * s->parts[s->rank].size;
}

static void receive_branches(TreeSum *s, int peer, int first)
{
    const Intervals *part = &s->parts[s->rank];
    for (int k = 0; k < comm_branches(s->t->terms, s->ranks, peer); k++) {
        float *to = received(s, first + k);
        for (int i = 0; i < part->count; i++) {
            int64_t n = part->intervals[i].end - part->intervals[i].begin;
            add_pass(s, false, peer, to, n);
            to += n;
        }
    }
}

/* Where the elements of an interval of the own part, `packed` elements behind its first one, are in a branch. */
static float *place_in(const TreeSum *s, int branch, Interval v, int64_t packed)
{
    bool own = branch >= s->first && branch < s->first + s->own;
    return own ? own_branch(s, branch - s->first) + v.begin : received(s, branch) + packed;
}

/* The last addition writes into the space. */
static Status add_branches(const TreeSum *s)
{
    int n;
    CommAddition *all = comm_tree_additions(s->t->terms, s->ranks, &n);
    const Intervals *part = &s->parts[s->rank];
    int64_t packed = 0;
    Status status = OK;
    for (int i = 0; i < part->count; i++) {
        Interval v = part->intervals[i];
        for (int k = 0; k < n && v.end > v.begin; k++) {
            float *to = place_in(s, all[k].to, v, packed), *from = place_in(s, all[k].from, v, packed);
            TRY_DONE(exec_add(s->t->backend, k + 1 < n ? to : s->terms->x + v.begin, to, from, v.end - v.begin));
        }
        packed += v.end - v.begin;
    }
done:
    free(all);
    return status;
}

static Status run(TreeSum *s, void *stream)
{
    for (int r = 0; r < s->ranks; r++)
        if (r != s->rank) send_branches(s, r);
    for (int r = 0, first = 0; r < s->ranks; r++) {
        if (r != s->rank) receive_branches(s, r, first);
        first += comm_branches(s->t->terms, s->ranks, r);
    }
    TRY(comm_device_pass(s->t->comm, s->passes, s->n_passes, stream));
    return add_branches(s);
}

Status exec_sum_on_devices(const DeviceTree *t, const SumSpace *terms, const Intervals *parts)
{
    Device *d = t->backend->device;
    TreeSum s = {.t = t, .terms = terms, .parts = parts, .rank = comm_device_rank(t->comm)};
    s.ranks = comm_device_size(t->comm);
    for (int r = 0; r < s.ranks; r++) {
        int branches = comm_branches(t->terms, s.ranks, r);
        if (r < s.rank) s.first += branches;
        if (r == s.rank) s.own = branches;
    }
    Status status = run(&s, d->stream(d));
    free(s.passes);
    return status;
}

/* ---- before the first ---- */

static Status first_event(void *device, bool *done) { return ((Device *)device)->event_done(device, 0, done); }

static Status pass_first(Device *d, CommDevice *comm, const CommPass *passes, int n)
{
    TRY(d->choose_lane(d, DEVICE_LINKS));
    TRY(d->event_record(d, 0)); /* makes the event */
    Status status = comm_device_pass(comm, passes, n, d->stream(d));
    if (status == OK) status = d->event_record(d, 0);
    if (status == OK) status = comm_device_wait(comm, first_event, d);
    if (status != OK) comm_device_abort(comm);
    return status == OK ? d->choose_lane(d, 0) : status;
}

Status exec_connect_devices(Device *d, CommDevice *comm, const CommPass *passes, int n, void *room)
{
    CommPass *own = mem_array((size_t)n, sizeof *own);
    for (int i = 0; i < n; i++) own[i] = (CommPass){passes[i].send, passes[i].peer, (char *)room + i, 1};
    Status status = pass_first(d, comm, own, n);
    free(own);
    return status;
}

Status exec_connect_all(Device *d, CommDevice *comm, void *room)
{
    int n = 0, size = comm_device_size(comm);
    CommPass *all = mem_array(2 * (size_t)size, sizeof *all);
    for (int r = 0; r < size; r++)
        for (int send = 0; send < 2 && r != comm_device_rank(comm); send++)
            all[n++] = (CommPass){.send = send, .peer = r};
    Status status = exec_connect_devices(d, comm, all, n, room);
    free(all);
    return status;
}
