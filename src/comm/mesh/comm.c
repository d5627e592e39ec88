/* Opening and closing connections. */
#include "comm/mesh/comm.h"

#include "comm/meet/report.h"
#include "comm/mesh/comm_internal.h"

static CommGroup *group_new(const World *w)
{
    CommGroup *g = mem_alloc(sizeof *g);
    g->rank = w->rank;
    g->size = w->size;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

/* Names all ranks that this one does not hear to the launcher. */
static void report_silent(const CommGroup *g)
{
    for (int r = 0; r < g->size; r++)
        if (watch_peer(g->watch, r, 2) == PEER_SILENT) report_to_agent(REPORT_SILENT, r, false);
}

/* Names the lost rank to the launcher, which cannot see that a process is frozen. */
static void report_loss(const CommGroup *g)
{
    Loss loss;
    if (!watch_verdict(g->watch, 0, &loss)) return;
    if (loss.reason == LOSS_SILENT) report_silent(g); /* first: a rank that was frozen would hear all again */
    report_to_agent(REPORT_LOST, loss.rank, loss.reason == LOSS_SILENT);
}

/* From the watch's thread, at the first loss: aborts all waits. */
static void abort_waits(void *arg)
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
    MEM_PUSH(g->open, g->n_open, g->cap_open, (CommWait){abort, self, late});
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

static void group_free(CommGroup *g)
{
    mem_free_texts(g->names, g->size);
    for (int i = 0; i < g->n_addresses; i++) free(g->addresses[i].data);
    MEM_FREE(g->cards, g->node_of, g->open, g->addresses);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* A new Comm like `as`, in its group, without a connection. */
static Comm *comm_new(const Comm *as)
{
    Comm *c = mem_alloc(sizeof *c);
    *c = *as;
    c->gloo = NULL;
    if (as->members) {
        c->members = mem_array((size_t)as->size, sizeof *c->members);
        memcpy(c->members, as->members, (size_t)as->size * sizeof *c->members);
    }
    pthread_mutex_lock(&c->group->lock);
    c->group->references++;
    pthread_mutex_unlock(&c->group->lock);
    return c;
}

void comm_close(Comm *c)
{
    if (!c) return;
    CommGroup *g = c->group;
    Loss loss;
    if (c->gloo) comm_remove_wait(g, c->gloo);
    pthread_mutex_lock(&g->lock);
    bool last = --g->references == 0;
    pthread_mutex_unlock(&g->lock);
    if (last) { /* it leaves the watch before its connections close, so that no peer reports a loss */
        if (watch_verdict(g->watch, 0, &loss)) report_silent(g); /* further ones */
        watch_close(g->watch);
    }
    if (c->gloo) gloo_close(c->gloo);
    if (last) group_free(g);
    MEM_FREE(c->members, c);
}

/* Collective. One more connection between the ranks of the group. */
static Status connect_gloo(Comm *c)
{
    int copy = c->group->copies++;
    if (c->size == 1) return OK;
    Loss loss;
    Status status = gloo_open(c, copy);
    if (status != OK) return watch_verdict(c->group->watch, 0, &loss) ? comm_fail_lost(c, "connecting", &loss) : status;
    comm_add_wait(c->group, gloo_abort, c->gloo, false);
    if (watch_verdict(c->group->watch, 0, &loss)) gloo_abort(c->gloo); /* the loss came before comm_add_wait */
    return comm_prove(c, copy);
}

Status comm_dup(Comm *c, Comm **copy)
{
    *copy = NULL;
    CHECK(!c->members, "all ranks number their connections alike, so a part of them makes no more");
    if (c->dead) return fail(E_PEER, "the connection between the ranks is already lost");
    Comm *d = comm_new(c);
    Status status = comm_barrier(c); /* all ranks have reached this call */
    if (status == OK) status = connect_gloo(d);
    if (status != OK) {
        comm_close(d);
        return status;
    }
    *copy = d;
    return OK;
}

/* ---- a part of the ranks ---- */

typedef struct {
    int color, key, rank; /* rank: in the Comm that is split */
} SplitEntry;

static int by_key(const void *a, const void *b)
{
    const SplitEntry *x = a, *y = b;
    if (x->color != y->color) return x->color < y->color ? -1 : 1;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
}

Status comm_split(Comm *c, int color, int key, Comm **part)
{
    SplitEntry mine = {color, key, c->rank}, *all = mem_array((size_t)c->size, sizeof *all);
    Comm as = *c, *d = NULL;
    Status status = OK;
    *part = NULL;
    CHECK(!c->members, "all ranks number their connections alike, so a part of them makes no more");
    as.members = mem_array((size_t)c->size, sizeof *as.members);
    as.size = 0;
    all[0] = mine;
    TRY_DONE(c->dead ? fail(E_PEER, "the connection between the ranks is already lost") : OK);
    TRY_DONE(comm_allgather(c, &mine, sizeof mine, all));
    qsort(all, (size_t)c->size, sizeof *all, by_key);
    for (int i = 0; i < c->size; i++) {
        if (all[i].color != color) continue;
        if (all[i].rank == c->rank) as.rank = as.size;
        as.members[as.size++] = comm_world_rank(c, all[i].rank);
    }
    if (color < 0) {
        c->group->copies++; /* the same on all ranks */
        goto done;
    }
    d = comm_new(&as);
    TRY_DONE(connect_gloo(d));
    *part = d;
    d = NULL;
done:
    MEM_FREE(as.members, all);
    comm_close(d);
    return status;
}

const char *comm_peer_name(const Comm *c, int rank)
{
    bool known = c->group->names && rank >= 0 && rank < c->size;
    return known ? c->group->names[comm_world_rank(c, rank)] : "rank 0";
}

Watch *comm_watch(const Comm *c) { return c->group ? c->group->watch : NULL; }

int comm_node(const Comm *c, int rank) { return c->group->node_of ? c->group->node_of[comm_world_rank(c, rank)] : 0; }

/* ---- opening ---- */

static Status check_comm_options(const World *w, const CommOptions *o)
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
static void fill_hosts(Comm *c)
{
    int *node_of = c->group->node_of = mem_array((size_t)c->size, sizeof *node_of);
    c->nodes = c->local_size = c->local_rank = 0;
    for (int r = 0; r < c->size; r++) {
        int first = peers_first_of_host(c->group->cards, r);
        node_of[r] = first < r ? node_of[first] : c->nodes++;
    }
    c->node = node_of[c->rank];
    for (int r = 0; r < c->size; r++) {
        if (node_of[r] != c->node) continue;
        if (r < c->rank) c->local_rank++;
        c->local_size++;
    }
}

static void fill_names(CommGroup *g)
{
    g->names = mem_array((size_t)g->size, sizeof *g->names);
    for (int r = 0; r < g->size; r++)
        g->names[r] = mem_printf("rank %d on %s (%s)", r, g->cards[r].name, g->cards[r].address);
}

Status comm_open(const World *w, const CommOptions *o, Comm **comm)
{
    Status status = OK;
    Comm *c = NULL;
    Rendezvous *rendezvous = NULL;
    *comm = NULL;
    TRY(check_comm_options(w, o));
    CommGroup *g = group_new(w);
    c = comm_new(&(Comm){.rank = w->rank,
                         .size = w->size,
                         .local_size = 1,
                         .nodes = 1,
                         .group = g,
                         .peer_timeout_s = o->peer_timeout_s});
    if (w->size == 1) {
        *comm = c;
        return OK;
    }
    TRY_DONE(rendezvous_join(w, o->rendezvous, getenv("CAIRN_JOB_TOKEN"), o->connect_s, o->stop, &rendezvous));
    /* A rank without Gloo still meets the others: they fail with its message instead of waiting for it. */
    Status ready = gloo_ready();
    TRY_DONE(peers_meet(w, o->interfaces, o->peer_timeout_s, rendezvous, o->connect_s > 5 ? o->connect_s : 5, ready,
                        &g->cards, &g->watch));
    report_to_agent(REPORT_MET, -1, false);
    fill_hosts(c);
    fill_names(g);
    watch_on_loss(g->watch, abort_waits, g);
    TRY_DONE(connect_gloo(c));
    *comm = c;
    c = NULL;
done:
    /* A signal during the wait may surface as missing ranks. */
    if (status == E_PEER && rendezvous_stopped(o->stop)) status = rendezvous_fail_stopped();
    rendezvous_leave(rendezvous);
    comm_close(c);
    return status;
}
