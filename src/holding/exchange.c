#include "holding/exchange.h"

/* ---- through the host's memory ---- */

/* The branches that wait lie behind a sum's last one; of a device copies of elements [begin, end). */
static Status place_branches(const Holders *h, const SumSpace *s, int64_t terms, Interval v)
{
    const Comm *c = h->comm;
    h->comm->tree = (CommTree){.terms = terms, .behind = s->waiting ? s->waiting - s->x : 0, .stride = s->size};
    if (!h->backend->device) return OK;
    h->comm->tree.behind = h->comm->tree.stride = h->stride;
    for (int k = 0; k + 1 < comm_branches(terms, c->size, c->rank); k++)
        TRY(backend_download(h->backend, h->copy + (k + 1) * h->stride, s->waiting + k * s->size + v.begin,
                             (size_t)(v.end - v.begin) * sizeof(float)));
    return OK;
}

typedef Status Collective(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);

/* The collectives get a copy of a device's elements as if its space began before it. */
static Status exchange(const Holders *h, Collective *run, float *x, Interval v, const Intervals *parts, Dtype wire)
{
    size_t bytes = (size_t)(v.end - v.begin) * sizeof *x;
    if (!h->backend->device) return run(h->comm, x, parts, wire, h->scratch);
    CHECK(v.end - v.begin <= h->stride, "%lld elements at once", (long long)(v.end - v.begin));
    TRY(backend_download(h->backend, h->copy, x + v.begin, bytes));
    TRY(run(h->comm, h->copy - v.begin, parts, wire, h->scratch));
    return backend_upload(h->backend, x + v.begin, h->copy, bytes);
}

/* ---- in the tree of base/sum_tree.h, from GPU to GPU ---- */

/* All branches of an element travel to the rank that owns it, which adds them with the op ADD. So the bits are those of
   the host's exchange (comm/mesh/reduce.c). */
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
    MEM_PUSH(s->passes, s->n_passes, s->cap_passes, (CommPass){send, peer, x, (size_t)n * sizeof *x});
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

static Status sum_tree(TreeSum *s, void *stream)
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

/* The own part becomes the sum of all holders' branches, with the bits of comm_reduce_scatter. */
static Status sum_tree_on_devices(const Holders *h, const SumSpace *terms, const Intervals *parts, int64_t n)
{
    Device *d = h->backend->device;
    TreeSum s = {.h = h, .terms = terms, .parts = parts, .n = n, .rank = comm_device_rank(h->device)};
    s.ranks = comm_device_size(h->device);
    for (int r = 0; r < s.ranks; r++) {
        int branches = comm_branches(n, s.ranks, r);
        if (r < s.rank) s.first += branches;
        if (r == s.rank) s.own = branches;
    }
    Status status = sum_tree(&s, d->stream(d));
    free(s.passes);
    return status;
}

/* ---- from GPU to GPU ---- */

static void *stream_of(const Holders *h) { return h->backend->device->stream(h->backend->device); }

/* By ranks of the device's communicator. The caller frees the list. */
static Intervals *device_parts(const Holders *h, const Intervals *parts)
{
    int n = comm_device_size(h->device);
    Intervals *of = mem_array((size_t)n, sizeof *of);
    for (int r = 0; r < n; r++) of[r] = parts[h->turned ? r ^ 1 : r];
    return of;
}

/* A tree first adds holders 2i and 2i + 1, so that turning them changes no bit. */
static Status sum_parts_on_devices(const Holders *h, const SumSpace *s, const Pieces *p, const Intervals *parts)
{
    if (!p->tree) return comm_device_parts(h->device, s->x, parts, true, stream_of(h));
    TRY(sum_tree_on_devices(h, s, parts, p->tree));
    return p->owners ? OK : comm_device_parts(h->device, s->x, parts, false, stream_of(h));
}

static Status sum_on_devices(const Holders *h, const SumSpace *s, const Pieces *p, const Piece *x)
{
    if (!p->tree && !p->owners)
        return comm_device_sum(h->device, s->x + x->begin, (size_t)(x->end - x->begin), F32, stream_of(h));
    Intervals *parts = device_parts(h, x->parts);
    Status status = sum_parts_on_devices(h, s, p, parts);
    free(parts);
    return status;
}

static Status share_on_devices(const Holders *h, float *x, const Intervals *of)
{
    Intervals *parts = device_parts(h, of);
    Status status = comm_device_parts(h->device, x, parts, false, stream_of(h));
    free(parts);
    return status;
}

/* ---- both ---- */

Status holding_sum(const Holders *h, const SumSpace *s, const Pieces *p, int piece)
{
    const Piece *x = &p->pieces[piece];
    const Interval v = {x->begin, x->end};
    if (h->device) return sum_on_devices(h, s, p, x);
    TRY(place_branches(h, s, p->tree, v));
    return exchange(h, p->owners ? comm_reduce_scatter : comm_allreduce, s->x, v, x->parts, p->wire);
}

static Status share(const Holders *h, float *x, Interval v, const Intervals *parts)
{
    return h->device ? share_on_devices(h, x, parts) : exchange(h, comm_gather_parts, x, v, parts, F32);
}

Status holding_share(const Holders *h, float *x, const Pieces *p, int piece)
{
    const Piece *of = &p->pieces[piece];
    return share(h, x, (Interval){of->begin, of->end}, of->parts);
}

Status holding_share_parts(const Holders *h, float *x, int64_t n, const Intervals *parts)
{
    return share(h, x, (Interval){0, n}, parts);
}
