/* `cairn launch`: starts ranks, watches them, and restarts them. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test_switch.h"
#include "launch/agent.h"
#include "launch/launch.h"
#include "launch/launch_internal.h"
#include "launch/machine.h"

extern char **environ;

#define SAVE_GRACE_S    120.0 /* for survivors to save, after they noticed a loss */
#define STOP_GRACE_S    600.0 /* from a signal to the last rank's end */
#define FAIL_GRACE_S    2.0   /* from one rank's failure to the others' SIGTERM */
#define LONGEST_PAUSE_S 60.0
#define RETRY_S         10.0 /* for an answer of a host that was lost before */

/* ---- signals ---- */

static bool ends_run(const Launch *l, int number) { return !(number == SIGUSR1 && l->under_grid_engine); }

/* Ranks stop and continue with this process. After a SIGSTOP only ranks of the same session, or PBS's tasks, stop. */
static void suspend(Launch *l, int number)
{
    fleet_send(&l->fleet, NULL, "signal", number == SIGCONT ? "18" : "19");
    if (number == SIGTSTP) kill(getpid(), SIGSTOP);
}

static void take_signals(Launch *l)
{
    for (int number; (number = signals_take(l->signals));) {
        char text[16];
        if (number == SIGTSTP || number == SIGCONT) {
            suspend(l, number);
            continue;
        }
        if (number == SIGHUP) number = SIGTERM; /* the terminal is gone */
        bool again = l->stop_signal != 0;
        if (ends_run(l, number) && !again) {
            l->stop_signal = number;
            l->stopped_at = clock_monotonic();
        }
        if (number == SIGINT && ++l->interrupts > 1) l->killed = true;
        if (again && ends_run(l, number) && number != SIGINT) continue; /* ranks already have a signal */
        snprintf(text, sizeof text, "%d", number);
        fleet_send(&l->fleet, NULL, l->killed ? "kill" : "signal", l->killed ? "" : text);
        if (number == SIGTERM) l->terminated = true;
    }
}

/* ---- starting ---- */

static void on_line(void *arg, int rank, int stream, const char *line)
{
    Launch *l = arg;
    const Remote *r = fleet_host_of(&l->fleet, rank);
    if (l->output) output_line(l->output, rank, r ? r->site->name : "?", stream, line);
}

static void on_remark(void *arg, const Remote *r, const char *line)
{
    (void)arg;
    log_info("%s: %s", r->site->name, line);
}

static Status stopped(const Launch *l)
{
    return l->stop_signal ? fail(E_STOPPED, "stopped before the ranks were started") : OK;
}

/* Waits for the hello of all agents; an agent without one in time is lost. */
static Status meet_agents(Launch *l)
{
    double begin = clock_monotonic(), patience = fmin(l->c->connect_timeout, l->restarts ? 20 : INFINITY);
    for (bool waiting = true; waiting;) {
        fleet_turn(&l->fleet, l->signals, 0.5, 0);
        take_signals(l);
        TRY(stopped(l));
        waiting = false;
        for (int i = 0; i < l->fleet.n_remotes; i++) {
            Remote *r = &l->fleet.remotes[i];
            if (r->lost || r->met) continue;
            waiting = true;
            if (clock_monotonic() < begin + (l->lost[i] ? fmin(patience, RETRY_S) : patience)) continue;
            r->lost = true;
            if (!*r->complaint) snprintf(r->complaint, sizeof r->complaint, "no answer in time");
        }
    }
    if (*l->fleet.failure) return fail(E_FAIL, "%s", l->fleet.failure);
    Buf missing = {0};
    int left = 0;
    for (int i = 0; i < l->fleet.n_remotes; i++) {
        Remote *r = &l->fleet.remotes[i];
        left += !r->lost;
        if (!l->open[i] || !r->lost) continue;
        buf_printf(&missing, "%s%s (%s)", missing.len ? "; " : "", r->site->name, r->complaint);
        l->open[i] = false;
        l->lost[i] = l->generation;
    }
    Status status = OK;
    if (missing.len && (l->restarts == 0 || left == 0))
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
        if (r->n_ranks == 0 || r->gpus < 2 || l->c->ranks > 0 || l->restarts > 0) continue;
        if (r->n_ranks < r->gpus)
            log_warn("%s has %d GPUs, but %s gives it %d rank%s; ask for as many ranks as GPUs (PBS: mpiprocs=%d), or "
                     "give --ranks",
                     r->site->name, r->gpus, l->sites.source, r->n_ranks, r->n_ranks == 1 ? "" : "s", r->gpus);
        else if (l->sites.from == SITES_OF_PBS && r->site->slots == 0)
            log_warn("%s gets %d ranks for its GPUs; %s has one line for it, as without mpiprocs in select",
                     r->site->name, r->n_ranks, l->sites.source);
        else
            continue;
        return;
    }
}

static Status place_ranks(Launch *l)
{
    Fleet *f = &l->fleet;
    int *usual = mem_array((size_t)l->sites.n, sizeof *usual), n = 0;
    int64_t wanted = l->c->ranks, room = 0;
    bool endless = false;
    for (int i = 0; i < l->sites.n; i++) {
        usual[i] = f->remotes[i].gpus > 0 ? f->remotes[i].gpus : 1;
        if (l->open[i]) room += l->limits[i], endless = endless || l->limits[i] == 0;
    }
    if (l->restarts && !endless && wanted > room) wanted = room; /* hosts were lost */
    Status status = sites_place(&l->sites, l->open, l->limits, usual, wanted, l->counts);
    free(usual);
    TRY(status);
    for (int i = 0; i < l->sites.n; i++) {
        f->remotes[i].first_rank = n;
        f->remotes[i].n_ranks = l->counts[i];
        n += l->counts[i];
        if (l->limits[i] == 0) l->limits[i] = l->counts[i]; /* no host gets more when others are lost */
        log_debug("%s: ranks %d to %d, %d cores, %d GPUs", f->remotes[i].site->name, f->remotes[i].first_rank, n - 1,
                  f->remotes[i].cores, f->remotes[i].gpus);
    }
    warn_of_gpus(l);
    f->ranks = mem_array((size_t)n, sizeof *f->ranks);
    f->n_ranks = f->running = n;
    l->output = output_open(n, l->c->verbose);
    return OK;
}

/* The name that ranks find (world.c). */
static void name_world(const Launch *l, World *world)
{
    snprintf(world->job, sizeof world->job, "cairn-%.60s", l->job);
}

/* Serves the store in which ranks meet, unless --rendezvous names another place. It outlives each rank. */
static Status open_store(Launch *l)
{
    World world = {.rank = -1, .size = l->fleet.n_ranks};
    bool here = true;
    name_world(l, &world);
    for (int i = 0; i < l->fleet.n_remotes; i++) here = here && (l->fleet.remotes[i].lost || l->sites.list[i].here);
    snprintf(l->token, sizeof l->token, "%s-%d", l->random, l->generation);
    TRY(store_serve(&world, here, 0, l->token, &l->store));
    l->port = store_server_port(l->store);
    if (strcmp(l->c->rendezvous, "auto") != 0 && *l->c->rendezvous) {
        snprintf(l->address, sizeof l->address, "127.0.0.1");
        snprintf(l->rendezvous, sizeof l->rendezvous, "%s", l->c->rendezvous);
        return OK;
    }
    Status status = meeting_choose(&l->fleet, l->port, l->signals, launch_silence(l), l->address);
    if (status != OK) { /* a signal ends the search, too */
        take_signals(l);
        TRY(stopped(l));
        return status;
    }
    snprintf(l->rendezvous, sizeof l->rendezvous, strchr(l->address, ':') ? "served://[%s]:%d" : "served://%s:%d",
             l->address, l->port);
    return OK;
}

static Status start(Launch *l)
{
    Fleet *f = &l->fleet;
    int node = 0, nodes = 0;
    *f = (Fleet){.on_line = on_line, .on_remark = on_remark, .arg = l};
    l->stopped_at = l->failed_at = l->lost_at = 0;
    l->terminated = l->killed = false;
    TRY(fleet_start(f, &l->sites, l->open, l->c->connect_timeout));
    TRY(meet_agents(l));
    TRY(place_ranks(l));
    TRY(open_store(l));
    take_signals(l);
    TRY(stopped(l));
    l->time_left = l->max_time - (clock_monotonic() - l->begun);
    if (l->time_left < 1) l->time_left = 1;
    for (int i = 0; i < f->n_remotes; i++) nodes += f->remotes[i].n_ranks > 0;
    for (int i = 0; i < f->n_remotes; i++)
        if (f->remotes[i].n_ranks > 0) orders_send(l, &f->remotes[i], node++);
    log_debug("started %d ranks on %d hosts; they meet at %s", f->n_ranks, nodes, l->rendezvous);
    return OK;
}

/* ---- watching ---- */

/* True: all ranks that still run are frozen. A rank that reported a loss is alive, and may be saving. */
static bool only_frozen_left(Launch *l)
{
    Fleet *f = &l->fleet;
    bool silent;
    for (int i = 0; i < f->n_ranks; i++) {
        int lost = store_server_lost(l->store, i, &silent);
        if (lost >= 0 && lost < f->n_ranks && silent) f->ranks[lost].frozen = true;
    }
    for (int i = 0; i < f->n_ranks; i++) {
        if (store_server_lost(l->store, i, &silent) >= 0) f->ranks[i].frozen = false;
        if (!f->ranks[i].ended && !f->ranks[i].frozen && !fleet_host_of(f, i)->lost) return false;
    }
    return true;
}

/* Notes when something first went wrong, and ends ranks that do not end by themselves. */
static void look(Launch *l)
{
    Fleet *f = &l->fleet;
    double now = clock_monotonic(), last_end = 0;
    bool early = false; /* a rank died before its peers could notice */
    for (int i = 0; i < f->n_ranks; i++) {
        const Rank *r = &f->ranks[i];
        if (!r->ended) continue;
        if (r->when > last_end) last_end = r->when;
        if (r->signal == 0 && outcome_is_failure(r->code) && !l->failed_at) l->failed_at = now;
        if ((r->signal || r->code == 77) && !l->lost_at) {
            l->lost_at = now;
            early = r->signal && strncmp(l->rendezvous, "served", 6) == 0 && !store_server_met(l->store);
        }
        if ((r->code == 75 || r->code == 99) && !l->stopped_at) l->stopped_at = now;
    }
    for (int i = 0; i < f->n_remotes; i++)
        if (f->remotes[i].lost && f->remotes[i].n_ranks > 0 && !l->lost_at) l->lost_at = now;
    double save = test_seconds("SAVE_GRACE", SAVE_GRACE_S), notice = l->peer_timeout;
    bool ask =
        early || (l->failed_at && now > l->failed_at + FAIL_GRACE_S) || (l->lost_at && now > l->lost_at + notice + 5);
    if (ask && !l->terminated) {
        fleet_send(f, NULL, "signal", "15");
        l->terminated = true;
    }
    double first = l->failed_at && l->lost_at ? (l->failed_at < l->lost_at ? l->failed_at : l->lost_at)
                                              : l->failed_at + l->lost_at;
    bool frozen = l->lost_at && last_end && now > last_end + FAIL_GRACE_S && only_frozen_left(l);
    bool late = frozen || (first && now > first + notice + save) ||
                (l->stopped_at && now > l->stopped_at + test_seconds("STOP_GRACE", STOP_GRACE_S));
    if ((late || *f->failure) && !l->killed) {
        if (late) log_warn("%d of %d ranks did not end in time, and are killed", f->running, f->n_ranks);
        l->killed = true;
        fleet_send(f, NULL, "kill", "");
    }
}

static void watch(Launch *l)
{
    while (l->fleet.running > 0) {
        fleet_turn(&l->fleet, l->signals, 0.25, launch_silence(l));
        take_signals(l);
        look(l);
    }
}

/* Removes the meeting of killed ranks. Ranks of a lost host may still live and save, so theirs stays. */
static void forget_meeting(const Launch *l)
{
    World world = {.rank = -1};
    name_world(l, &world);
    for (int i = 0; i < l->fleet.n_remotes; i++)
        if (l->fleet.remotes[i].lost && l->fleet.remotes[i].n_ranks > 0) return;
    store_forget(&world, l->rendezvous, l->token);
}

static void end(Launch *l)
{
    if (l->fleet.running == 0 && *l->rendezvous) forget_meeting(l);
    fleet_end(&l->fleet, l->killed ? 5 : 5 + test_seconds("AGENT_GRACE", AGENT_GRACE_S));
    store_server_close(l->store);
    l->store = NULL;
    output_close(l->output);
    l->output = NULL;
}

static Status run_once(Launch *l, Outcome *o)
{
    *o = (Outcome){0};
    Status status = start(l);
    if (status == OK) {
        watch(l);
        outcome_find(l, o);
        if (*l->fleet.failure) status = fail(E_FAIL, "%s", l->fleet.failure);
    }
    end(l);
    return status;
}

/* Waits before the next start; a signal ends the wait. */
static void pause_before(Launch *l)
{
    double seconds = 0.5 * (double)(1 << (l->restarts < 8 ? l->restarts - 1 : 7));
    double until = clock_monotonic() + (seconds < LONGEST_PAUSE_S ? seconds : LONGEST_PAUSE_S), left;
    struct pollfd wait = {.fd = l->signals, .events = POLLIN};
    while (!l->stop_signal && (left = until - clock_monotonic()) > 0)
        if (poll(&wait, 1, (int)(1e3 * left) + 1) > 0) take_signals(l);
}

/* Chooses the hosts of the next start and returns their number. A host that was just lost is left out once, unless the
   others are too few for --ranks. */
static int choose_hosts(Launch *l)
{
    int64_t room = 0, n = 0;
    for (int i = 0; i < l->sites.n; i++) {
        l->open[i] = !l->lost[i] || l->lost[i] < l->generation;
        if (!l->open[i]) continue;
        n++;
        room += l->limits[i];
    }
    if (n > 0 && room >= l->c->ranks) return (int)n;
    for (int i = 0; i < l->sites.n; i++) l->open[i] = true;
    return l->sites.n;
}

static Status run_all(Launch *l, Outcome *o)
{
    for (;;) {
        l->generation++;
        Status status = run_once(l, o);
        if (status == E_PEER && l->restarts > 0 && !l->stop_signal) { /* hosts may come back */
            *o = (Outcome){.code = status_exit_code(E_PEER), .again = true};
            snprintf(o->what, sizeof o->what, "%s", status_message());
        } else
            TRY(status);
        if (!o->again || l->restarts >= l->c->max_restarts) return OK;
        l->restarts++;
        int hosts = choose_hosts(l);
        log_warn("%s; starting again on %d host%s (%d of at most %lld)", o->what, hosts, hosts == 1 ? "" : "s",
                 l->restarts, (long long)l->c->max_restarts);
        pause_before(l);
        if (l->stop_signal) return fail(E_STOPPED, "stopped between two starts");
    }
}

/* ---- the command ---- */

/* Checks the command, and takes its --max-time and --peer-timeout (unless ranks get the launcher's). */
static Status check_command(Launch *l)
{
    const Config *c = l->c;
    Config command = {0};
    Status status = OK;
    char **words = mem_array((size_t)c->n_positional + 2, sizeof *words);
    if (c->probe && c->n_positional > 0) {
        status = fail(E_USAGE, "--probe takes no command; leave out '-- %s'", c->positional[0]);
    } else if (!c->probe && c->n_positional == 0) {
        status = fail(E_USAGE, "nothing to start; write `cairn launch --ranks N -- pretrain …`, or --probe");
    } else if (!c->probe) {
        words[0] = "cairn";
        for (int i = 0; i < c->n_positional; i++) words[i + 1] = c->positional[i];
        status = status_context(config_parse(&command, c->n_positional + 1, words, environ), "the command behind --");
        if (status == OK) {
            l->max_time = command.max_time;
            ConfigSource own = command.source[OPTION_peer_timeout];
            if (own == FROM_FLAG || own > c->source[OPTION_peer_timeout]) l->peer_timeout = command.peer_timeout;
            if (command.command == COMMAND_LAUNCH) status = fail(E_USAGE, "launch cannot start itself");
            config_free(&command);
        }
    }
    free(words);
    return status;
}

/* A unique name: the scheduler's number of the job, and this process. */
static void name_job(Launch *l)
{
    static const char *const numbers[][2] = {{"SLURM_JOB_ID", "slurm"}, {"PBS_JOBID", "pbs"}, {"JOB_ID", "job"}};
    snprintf(l->job, sizeof l->job, "launch-%d-%.0f", (int)getpid(), clock_wall());
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *number = getenv(numbers[i][0]);
        if (number && *number) snprintf(l->job, sizeof l->job, "%s-%.40s-%d", numbers[i][1], number, (int)getpid());
    }
    for (char *p = l->job; *p; p++)
        if (*p == '/' || *p == ' ') *p = '_';
}

static Status watch_signals(Launch *l)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGTSTP, SIGCONT};
    const char *root = getenv("SGE_ROOT"), *job = getenv("JOB_ID");
    struct sigaction old;
    int used[7], n = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool may = numbers[i] == SIGHUP || numbers[i] == SIGTSTP; /* be ignored, as under nohup */
        may = may && sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN;
        if (!may) used[n++] = numbers[i]; /* a signalfd receives ignored signals, too */
    }
    signal(SIGPIPE, SIG_IGN);
    l->under_grid_engine = root && *root && job && *job;
    l->signals = signals_open(used, n);
    return l->signals < 0 ? fail(E_IO, "cannot receive signals: %m") : OK;
}

static Status status_of(int code, const char *what)
{
    static const Status all[] = {E_FAIL, E_USAGE, E_STOPPED, E_MEMORY, E_PEER, E_CORRUPT};
    if (code == 0) return OK;
    if (code == 99) return fail(E_STOPPED, "%s", what); /* main returns 99 under Grid Engine */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (status_exit_code(all[i]) == code) return fail(all[i], "%s", what);
    log_error("%s", what);
    writer_end(-1, 5);
    exit(code);
}

Status command_launch(const Config *c)
{
    Launch l = {.c = c, .signals = -1, .peer_timeout = c->peer_timeout, .begun = clock_monotonic()};
    Outcome o = {0};
    if (c->n_positional > 0 && strcmp(c->positional[0], "@agent") == 0) return agent_run(c);
    if (c->n_positional == 1 && strcmp(c->positional[0], "@probe") == 0) return probe_run(c);
    Status status = OK;
    TRY_DONE(check_command(&l));
    TRY_DONE(sites_find(c->hosts, environ, &l.sites));
    machine_secret(l.random);
    TRY_DONE(watch_signals(&l));
    writer_begin();
    name_job(&l);
    l.open = mem_array((size_t)l.sites.n, sizeof *l.open);
    l.lost = mem_array((size_t)l.sites.n, sizeof *l.lost);
    l.limits = mem_array((size_t)l.sites.n, sizeof *l.limits);
    l.counts = mem_array((size_t)l.sites.n, sizeof *l.counts);
    for (int i = 0; i < l.sites.n; i++) {
        l.open[i] = true;
        l.limits[i] = l.sites.list[i].slots;
    }
    TRY_DONE(run_all(&l, &o));
    status = status_of(o.code, o.what);
done:
    writer_end(l.signals, l.stop_signal ? 5 : INFINITY);
    if (l.signals >= 0) close(l.signals);
    free(l.open);
    free(l.lost);
    free(l.limits);
    free(l.counts);
    sites_free(&l.sites);
    return status;
}
