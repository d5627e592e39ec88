/* Opening and closing connections. */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "comm/store_internal.h"

#define REPORT_S 5.0 /* for the launcher to take a report */

static CommGroup *group_new(int size)
{
    CommGroup *g = mem_alloc(sizeof *g);
    g->size = size;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

/* Names the lost rank to the launcher, which cannot see that a process is frozen. */
static void report_loss(const CommGroup *g)
{
    Loss loss;
    char name[32], text[32];
    if (!store_served(g->store) || !watch_verdict(g->watch, 0, &loss)) return;
    snprintf(name, sizeof name, STORE_LOST, g->rank);
    snprintf(text, sizeof text, "%d %d", loss.rank, loss.reason == LOSS_SILENT);
    store_hurry(g->store, REPORT_S); /* the launcher may be suspended */
    if (store_set(g->store, name, text, strlen(text)) != OK) log_debug("%s", status_message());
}

/* From the watch's thread, at the first loss: aborts all waits. */
static void on_loss(void *arg)
{
    CommGroup *g = arg;
    pthread_mutex_lock(&g->lock);
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < g->n_open; i++)
            if (g->open[i].late == late) g->open[i].abort(g->open[i].self);
    pthread_mutex_unlock(&g->lock);
    report_loss(g);
}

void comm_add_wait(CommGroup *g, void (*abort)(void *self), void *self, bool late)
{
    pthread_mutex_lock(&g->lock);
    MEM_GROW(g->open, g->n_open, g->cap_open);
    g->open[g->n_open++] = (CommWait){abort, self, late};
    pthread_mutex_unlock(&g->lock);
}

void comm_remove_wait(CommGroup *g, const void *self)
{
    pthread_mutex_lock(&g->lock);
    int kept = 0;
    for (int i = 0; i < g->n_open; i++)
        if (g->open[i].self != self) g->open[kept++] = g->open[i];
    g->n_open = kept;
    pthread_mutex_unlock(&g->lock);
}

/* The last Comm leaves the watch before its connections close, so that no peer takes that for a fault. */
static void group_leave(CommGroup *g)
{
    pthread_mutex_lock(&g->lock);
    int left = --g->references;
    pthread_mutex_unlock(&g->lock);
    if (left > 0) return;
    watch_close(g->watch);
    g->watch = NULL;
}

static void group_free(CommGroup *g)
{
    pthread_mutex_lock(&g->lock);
    int left = --g->holders;
    pthread_mutex_unlock(&g->lock);
    if (left > 0) return;
    for (int r = 0; g->names && r < g->size; r++) free(g->names[r]);
    free(g->names);
    free(g->open);
    store_close(g->store);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static Comm *comm_new(const World *w, CommGroup *g)
{
    Comm *c = mem_alloc(sizeof *c);
    *c = (Comm){.rank = w->rank, .size = w->size, .group = g};
    c->local_size = c->nodes = 1;
    pthread_mutex_lock(&g->lock);
    g->references++;
    g->holders++;
    pthread_mutex_unlock(&g->lock);
    return c;
}

void comm_close(Comm *c)
{
    if (!c) return;
    group_leave(c->group);
    if (c->transport) {
        comm_remove_wait(c->group, c->self);
        c->transport->close(c->self);
    }
    group_free(c->group);
    free(c);
}

/* Collective. One more connection between the ranks of the group. */
static Status connect_transport(Comm *c)
{
    int copy = c->group->copies++;
    if (c->size == 1) return OK;
    Loss loss;
    Status status = gloo_open(c, c->group, copy, &c->self, &c->transport);
    if (status != OK) return watch_verdict(c->group->watch, 0, &loss) ? comm_tell_loss(c, "connecting", &loss) : status;
    comm_add_wait(c->group, c->transport->abort, c->self, false);
    if (watch_verdict(c->group->watch, 0, &loss)) c->transport->abort(c->self); /* the loss came before comm_add_wait */
    return comm_prove(c, copy);
}

Status comm_dup(Comm *c, Comm **copy)
{
    const World w = {.rank = c->rank, .size = c->size};
    *copy = NULL;
    if (c->dead) return fail(E_PEER, "the connection between the ranks is already lost");
    Comm *d = comm_new(&w, c->group);
    d->local_rank = c->local_rank;
    d->local_size = c->local_size;
    d->node = c->node;
    d->nodes = c->nodes;
    d->store = c->store;
    d->peer_timeout_s = c->peer_timeout_s;
    Status status = comm_barrier(c); /* all ranks have reached this call */
    if (status == OK) status = connect_transport(d);
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
    if (w->size < 1 || w->rank < 0 || w->rank >= w->size)
        return fail(E_USAGE, "there is no rank %d of %d", w->rank, w->size);
    if (w->size > 1 && !(o->peer_timeout_s > 0 && o->connect_s > 0))
        return fail(E_USAGE, "--peer-timeout is %g s, --connect-timeout %g s; several ranks need a time for both",
                    o->peer_timeout_s, o->connect_s);
    return OK;
}

/* Numbers hosts in the order of their first ranks, and finds this rank's place on its host. */
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
    CommGroup *g = group_new(w->size);
    c = comm_new(w, g);
    if (w->size == 1) {
        *comm = c;
        return OK;
    }
    c->peer_timeout_s = o->peer_timeout_s;
    TRY_DONE(store_open(w, o->rendezvous, getenv("CAIRN_JOB_TOKEN"), o->connect_s, o->stop, &g->store));
    c->store = g->store;
    double left = o->connect_s - (clock_monotonic() - begin);
    /* A rank that cannot go on tells all others, so that none waits for it. */
    Status ready = gloo_ready();
    TRY_DONE(peers_meet(w, o, g->store, left > 5 ? left : 5, ready, &cards, &g->watch));
    fill_hosts(c, cards);
    fill_names(g, cards);
    g->secret = cards[0].nonce;
    snprintf(g->address, sizeof g->address, "%s", cards[w->rank].address);
    snprintf(g->interface, sizeof g->interface, "%s", cards[w->rank].interface);
    g->rank = w->rank;
    watch_on_loss(g->watch, on_loss, g);
    TRY_DONE(connect_transport(c));
    store_wait_on(g->store, NULL);
    *comm = c;
    c = NULL;
done:
    /* After a signal the failure may look as if others had not come. */
    if (status == E_PEER && store_stopped(o->stop)) status = store_fail_stopped();
    free(cards);
    comm_close(c);
    return status;
}
