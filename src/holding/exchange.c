#include "holding/exchange.h"

#include <stdlib.h>

#include "holding/exchange_internal.h"

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
    if (!p->tree) return comm_device_sum_parts(h->device, s->x, parts, stream_of(h));
    TRY(sum_tree_on_devices(h, s, parts, p->tree));
    return p->owners ? OK : comm_device_gather_parts(h->device, s->x, parts, stream_of(h));
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
    Status status = comm_device_gather_parts(h->device, x, parts, stream_of(h));
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
