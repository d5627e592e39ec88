/* Sums in the tree of base/sum_tree.h, from GPU to GPU: all branches of an element travel to the rank that owns it,
   which adds them with the op ADD. So the bits are those of the host's exchange (comm/mesh/reduce.c). */
#include <stdlib.h>

#include "holding/exchange_internal.h"

typedef struct {
    const Holders *h;
    const SumSpace *terms;
    const Intervals *parts;
    int64_t n; /* terms of the tree */
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
    return s->h->received + at * s->parts[s->rank].size;
}

static void receive_branches(TreeSum *s, int peer, int first)
{
    const Intervals *part = &s->parts[s->rank];
    for (int k = 0; k < comm_branches(s->n, s->ranks, peer); k++) {
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
    CommAddition *all = comm_tree_additions(s->n, s->ranks, &n);
    const Intervals *part = &s->parts[s->rank];
    int64_t packed = 0;
    Status status = OK;
    for (int i = 0; i < part->count; i++) {
        Interval v = part->intervals[i];
        for (int k = 0; k < n && v.end > v.begin; k++) {
            float *to = place_in(s, all[k].to, v, packed), *from = place_in(s, all[k].from, v, packed);
            TRY_DONE(backend_add(s->h->backend, k + 1 < n ? to : s->terms->x + v.begin, to, from, v.end - v.begin));
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
        first += comm_branches(s->n, s->ranks, r);
    }
    TRY(comm_device_pass(s->h->device, s->passes, s->n_passes, stream));
    return add_branches(s);
}

Status sum_tree_on_devices(const Holders *h, const SumSpace *terms, const Intervals *parts, int64_t n)
{
    Device *d = h->backend->device;
    TreeSum s = {.h = h, .terms = terms, .parts = parts, .n = n, .rank = comm_device_rank(h->device)};
    s.ranks = comm_device_size(h->device);
    for (int r = 0; r < s.ranks; r++) {
        int branches = comm_branches(n, s.ranks, r);
        if (r < s.rank) s.first += branches;
        if (r == s.rank) s.own = branches;
    }
    Status status = run(&s, d->stream(d));
    free(s.passes);
    return status;
}
