/* Opening and closing connections. */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm_internal.h"
#include "comm/peers.h"

static void group_release(CommGroup *g)
{
    if (!g || --g->references > 0) return;
    for (int r = 0; g->names && r < g->size; r++) free(g->names[r]);
    free(g->names);
    store_close(g->store);
    free(g);
}

static Comm *comm_new(const World *w, CommGroup *g)
{
    Comm *c = mem_alloc(sizeof *c);
    *c = (Comm){.rank = w->rank, .size = w->size, .group = g};
    c->local_size = c->nodes = 1;
    g->references++;
    return c;
}

Status comm_self(Comm **comm)
{
    const World alone = {.size = 1};
    CommGroup *g = mem_alloc(sizeof *g);
    g->size = 1;
    *comm = comm_new(&alone, g);
    return OK;
}

void comm_close(Comm *c)
{
    if (!c) return;
    if (c->transport) c->transport->close(c->self);
    group_release(c->group);
    free(c);
}

/* One more connection between the ranks of the group. */
static Status connect_transport(Comm *c, const char *transport)
{
    if (c->size == 1) return OK;
    if (strcmp(transport, "gloo") != 0)
        return fail(E_USAGE, "--comm %s: this connects %d ranks by gloo only", transport, c->size);
    return gloo_open(c, c->group, c->group->copies++, &c->self, &c->transport);
}

Status comm_dup(Comm *c, Comm **copy)
{
    const World w = {.rank = c->rank, .size = c->size};
    *copy = NULL;
    if (c->dead) return fail(E_PEER, "the connection between the ranks is lost already");
    Comm *d = comm_new(&w, c->group);
    d->local_rank = c->local_rank;
    d->local_size = c->local_size;
    d->node = c->node;
    d->nodes = c->nodes;
    d->store = c->store;
    d->peer_timeout_s = c->peer_timeout_s;
    Status status = connect_transport(d, c->size > 1 ? c->transport->name : "self");
    if (status != OK) {
        comm_close(d);
        return status;
    }
    *copy = d;
    return OK;
}

const char *comm_peer_name(const Comm *c, int rank)
{
    return c->group->names && rank >= 0 && rank < c->size ? c->group->names[rank] : "rank 0";
}

/* ---- opening ---- */

static Status check_options(const World *w, const CommOptions *o)
{
    bool self = strcmp(o->transport, "self") == 0;
    if (self && w->size > 1) return fail(E_USAGE, "--comm self is for one rank; %s started %d", w->source, w->size);
    if (strcmp(o->transport, "nccl") == 0 && w->size > 1)
        return fail(E_USAGE, "--comm nccl: the control of the ranks goes by gloo; open it with gloo or auto");
    if (w->size < 1 || w->rank < 0 || w->rank >= w->size)
        return fail(E_USAGE, "rank %d of %d: no such rank", w->rank, w->size);
    return OK;
}

/* Numbers of hosts in the order of their first ranks, and the place among the ranks of the host. */
static void fill_hosts(Comm *c, const PeerCard *cards)
{
    int *node_of = mem_array((size_t)c->size, sizeof *node_of);
    c->nodes = c->local_size = c->local_rank = 0;
    for (int r = 0; r < c->size; r++) {
        int same = 0;
        while (same < r && !hash128_equal(cards[same].host, cards[r].host)) same++;
        node_of[r] = same < r ? node_of[same] : c->nodes++;
    }
    c->node = node_of[c->rank];
    for (int r = 0; r < c->size; r++) {
        if (node_of[r] != c->node) continue;
        if (r < c->rank) c->local_rank++;
        c->local_size++;
    }
    free(node_of);
}

static void fill_names(CommGroup *g, const PeerCard *cards)
{
    g->names = mem_array((size_t)g->size, sizeof *g->names);
    for (int r = 0; r < g->size; r++)
        g->names[r] = mem_printf("rank %d on %s (%s)", r, cards[r].name, cards[r].address);
}

Status comm_open(const World *w, const CommOptions *o, Comm **comm)
{
    Status status = OK;
    Comm *c = NULL;
    PeerCard *cards = NULL;
    double begin = clock_monotonic();
    *comm = NULL;
    TRY(check_options(w, o));
    if (w->size == 1) return comm_self(comm);
    CommGroup *g = mem_alloc(sizeof *g);
    g->size = w->size;
    c = comm_new(w, g);
    c->peer_timeout_s = o->peer_timeout_s;
    TRY_DONE(store_open(w, o->rendezvous, getenv("CAIRN_JOB_TOKEN"), o->connect_s, &g->store));
    c->store = g->store;
    g->connect_s = o->connect_s - (clock_monotonic() - begin);
    if (g->connect_s < 1) g->connect_s = 1;
    TRY_DONE(peers_meet(w, o, g->store, g->connect_s, &cards));
    fill_hosts(c, cards);
    fill_names(g, cards);
    snprintf(g->address, sizeof g->address, "%s", cards[w->rank].address);
    TRY_DONE(connect_transport(c, "gloo"));
    *comm = c;
    c = NULL;
done:
    free(cards);
    comm_close(c);
    return status;
}
