/* Starts the ranks: agents on all hosts, a place for each rank, and the rendezvous in which they meet. */
#include <sys/resource.h>

#include "launch/launch_internal.h"

static Status check_stopped(const Launch *l)
{
    return l->state.stop_signal ? fail(E_STOPPED, "stopped before the ranks were started") : OK;
}

/* Waits for the hello of all agents; an agent without one in time is lost. */
static Status meet_agents(Launch *l)
{
    while (l->state.phase == PHASE_AGENTS) {
        launch_turn(l);
        TRY(check_stopped(l));
    }
    if (*l->fleet.failure) return fail(E_FAIL, "%s", l->fleet.failure);
    Buf missing = {0};
    Status status = OK;
    for (int i = 0; i < l->fleet.n_remotes; i++) {
        const Remote *r = &l->fleet.remotes[i];
        if (r->site->lost_in == l->state.restarts + 1)
            buf_printf(&missing, "%s%s (%s)", missing.len ? "; " : "", r->site->name, r->complaint);
    }
    if (l->state.phase == PHASE_OVER)
        status = fail(E_PEER, "nothing could be started on %s", missing.data);
    else if (missing.len)
        log_warn("continuing without %s", missing.data);
    buf_free(&missing);
    return status;
}

/* Warns if a host has GPUs without a rank, or if its GPUs overruled the scheduler's list. */
static void warn_of_gpus(const Launch *l)
{
    for (int i = 0; i < l->sites.n; i++) {
        const Remote *r = &l->fleet.remotes[i];
        int ranks = r->site->ranks;
        if (ranks == 0 || r->gpus < 2 || l->c->ranks > 0 || l->state.restarts > 0) continue;
        if (ranks < r->gpus)
            log_warn("%s has %d GPUs, but %s gives it %d rank%s; ask for as many ranks as GPUs (PBS: mpiprocs=%d), or "
                     "give --ranks",
                     r->site->name, r->gpus, l->sites.source, ranks, ranks == 1 ? "" : "s", r->gpus);
        else if (l->sites.from == SITES_OF_PBS && r->site->slots == 0)
            log_warn("%s gets %d ranks for its GPUs; %s has one line for it, as without mpiprocs in select",
                     r->site->name, ranks, l->sites.source);
        else
            continue;
        return;
    }
}

static Status place_ranks(Launch *l)
{
    Fleet *f = &l->fleet;
    int n = 0;
    int64_t wanted = l->c->ranks, room = sites_room(&l->sites);
    if (l->state.restarts && wanted > room) wanted = room; /* hosts were lost */
    for (int i = 0; i < l->sites.n; i++) l->sites.list[i].usual = f->remotes[i].gpus > 0 ? f->remotes[i].gpus : 1;
    TRY(sites_place(&l->sites, wanted));
    for (int i = 0; i < l->sites.n; i++) {
        Remote *r = &f->remotes[i];
        int first = n;
        n += r->site->ranks;
        if (r->site->limit == 0) r->site->limit = r->site->ranks; /* no host gets more when others are lost */
        log_debug("%s: ranks %d to %d, %d cores, %d GPUs", r->site->name, first, n - 1, r->cores, r->gpus);
    }
    warn_of_gpus(l);
    TRY(launch_check_files(n));
    fleet_tell(f, &(LaunchEvent){.kind = LAUNCH_PLACED});
    f->output = output_open(n, l->c->verbose);
    return OK;
}

Status launch_check_files(int ranks)
{
    rlim_t need = 24 + 3 * (rlim_t)ranks; /* 20 did for one rank; 8 ranks had 34, 100 had 311 */
    struct rlimit limit, most;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return OK;
    most = (struct rlimit){limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &most) == 0) limit = most; /* agents and ranks inherit it */
    if (limit.rlim_cur >= need) return OK;
    return fail(E_FAIL, "a process may have %llu files open (ulimit -n); with %d rank%s it needs %llu: raise the limit",
                (unsigned long long)limit.rlim_cur, ranks, ranks == 1 ? "" : "s", (unsigned long long)need);
}

/* Serves the rendezvous, unless --rendezvous names another place. It outlives each rank. */
static Status open_rendezvous(Launch *l)
{
    World world = {.rank = -1, .size = l->state.n_ranks};
    snprintf(world.job, sizeof world.job, "cairn-%.60s", l->job); /* as ranks find it (comm/meet/world.c) */
    snprintf(l->token, sizeof l->token, "%s-%d", l->random, l->state.restarts + 1);
    if (strcmp(l->c->rendezvous, "auto") != 0 && *l->c->rendezvous) {
        snprintf(l->rendezvous, sizeof l->rendezvous, "%s", l->c->rendezvous);
        return OK;
    }
    TRY(rendezvous_serve(&world, fleet_is_local(&l->fleet), 0, l->token, &l->server));
    l->port = rendezvous_port(l->server);
    Status status;
    bool signalled;
    do { /* a signal ends the search, which then begins again */
        status = meeting_choose(&l->fleet, l->port, l->signals, l->address);
        signalled = launch_take_signals(l);
        TRY(check_stopped(l));
    } while (status != OK && signalled);
    TRY(status);
    const char *form = strchr(l->address, ':') ? "served://[%s]:%d" : "served://%s:%d";
    snprintf(l->rendezvous, sizeof l->rendezvous, form, l->address, l->port);
    return OK;
}

Status launch_start(Launch *l)
{
    Fleet *f = &l->fleet;
    int node = 0, nodes = 0;
    TRY(fleet_start(f, &l->sites, l->c->connect_timeout));
    TRY(meet_agents(l));
    TRY(place_ranks(l));
    TRY(open_rendezvous(l));
    launch_take_signals(l);
    TRY(check_stopped(l));
    l->time_left = fmax(l->max_time - (clock_monotonic() - l->begun), 1);
    for (int i = 0; i < f->n_remotes; i++) nodes += l->state.hosts[i].n_ranks > 0;
    for (int i = 0; i < f->n_remotes; i++)
        if (l->state.hosts[i].n_ranks > 0) orders_send(l, &f->remotes[i], node++);
    log_debug("started %d ranks on %d hosts; they meet at %s", l->state.n_ranks, nodes, l->rendezvous);
    return OK;
}
