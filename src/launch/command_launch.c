/* `cairn launch`: starts ranks, watches them, and restarts them. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/siphash.h"
#include "base/test_switch.h"
#include "faults/excluded.h"
#include "launch/agent.h"
#include "launch/launch.h"
#include "launch/launch_internal.h"

extern char **environ;

/* For tests: CAIRN_TEST_SAVE_GRACE and so on; CAIRN_TEST_NOTICE is a rank's loss to the others' SIGTERM. */
#define SAVE_GRACE_S    115.0 /* for survivors to save, after they must have noticed a loss */
#define SAVED_GRACE_S   10.0  /* for ranks to end after survivors have saved, or found them frozen */
#define STOP_GRACE_S    600.0 /* from a signal to the last rank's end */
#define FAIL_GRACE_S    2.0   /* from one rank's failure to the others' SIGTERM */
#define NOTICE_MORE_S   5.0   /* from a rank's loss, beyond the peer timeout, to the others' SIGTERM */
#define SIGN_S          2.0   /* at most from one sign of life to the next, of ranks and agents */
#define LONGEST_PAUSE_S 60.0

/* ---- signals ---- */

static bool ends_run(const Launch *l, int number) { return !(number == SIGUSR1 && l->under_grid_engine); }

/* All ranks are killed now. */
static void note_kill(Launch *l)
{
    if (!l->killed) l->killed_at = clock_monotonic();
    l->killed = true;
}

/* Ranks stop and continue with this process. After a SIGSTOP only ranks of the same session, or PBS's tasks, stop. */
static void suspend(Launch *l, int number)
{
    fleet_send(&l->fleet, NULL, "signal %d", number == SIGCONT ? SIGCONT : SIGSTOP);
    if (number == SIGTSTP) kill(getpid(), SIGSTOP);
}

void launch_take_signals(Launch *l)
{
    for (int number; (number = signals_take(l->signals));) {
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
        if (number == SIGINT && ++l->interrupts > 1) note_kill(l);
        if (again && ends_run(l, number) && number != SIGINT) continue; /* ranks already have a signal */
        if (l->killed)
            fleet_send(&l->fleet, NULL, "kill");
        else
            fleet_send(&l->fleet, NULL, "signal %d", number);
        if (number == SIGTERM) l->terminated = true;
    }
}

/* ---- watching ---- */

/* When all ranks that still run count as frozen: INFINITY while one of them may not be. A rank that reported a loss was
   alive then, and may be saving, unless survivors say that it is silent. It gets more time where they have not saved,
   for it may go on and save. One that reported nothing may only be out of reach of the others: then it finds them
   silent a sign of life later, and reports that, if its agent is not out of reach, too. */
static double all_frozen_at(const Launch *l, double last_end)
{
    const Fleet *f = &l->fleet;
    double saved_grace = f->saved ? 0 : test_seconds("SAVED_GRACE", SAVED_GRACE_S), at = last_end + FAIL_GRACE_S;
    for (int i = 0; i < f->n_ranks; i++) {
        const Rank *r = &f->ranks[i];
        const Remote *host = fleet_host_of(f, i);
        if (r->ended || host->lost) continue;
        if (!rank_is_frozen(r)) return INFINITY;
        if (r->aware)
            at = fmax(at, last_end + saved_grace);
        else if (host->messages.heard < r->silent_at + SIGN_S)
            return INFINITY;
        else
            at = fmax(at, r->silent_at + SIGN_S + FAIL_GRACE_S);
    }
    return at;
}

/* Records the times of the first failure, loss and stop, and ends ranks that do not end by themselves. */
static void end_failed_ranks(Launch *l)
{
    Fleet *f = &l->fleet;
    double now = clock_monotonic(), last_end = 0;
    bool early = false; /* a rank died before its peers could notice */
    for (int i = 0; i < f->n_ranks; i++) {
        const Rank *r = &f->ranks[i];
        if (!r->ended) continue;
        if (r->when > last_end) last_end = r->when;
        if (r->signal == 0 && outcome_is_failure(r->code)) l->failed_at = fmin(l->failed_at, now);
        if ((r->signal || r->code == 77) && l->lost_at > now) {
            l->lost_at = now;
            early = r->signal && !f->met;
        }
        if (r->code == 75 || r->code == 99) l->stopped_at = fmin(l->stopped_at, now);
    }
    for (int i = 0; i < f->n_remotes; i++)
        if (f->remotes[i].lost && f->remotes[i].n_ranks > 0) l->lost_at = fmin(l->lost_at, now);
    if (f->saved) l->saved_at = fmin(l->saved_at, now);
    double notice = test_seconds("NOTICE", l->peer_timeout + NOTICE_MORE_S);
    double save = f->met ? test_seconds("SAVE_GRACE", SAVE_GRACE_S) : test_seconds("SAVED_GRACE", SAVED_GRACE_S);
    /* A rank that a signal stopped alone stops all; a signal to the launcher has reached all. */
    double end =
        fmin(l->failed_at, l->stop_signal ? INFINITY : l->stopped_at) + test_seconds("FAIL_GRACE", FAIL_GRACE_S);
    bool ask = early || now > end || now > l->lost_at + notice;
    if (ask && !l->terminated) {
        fleet_send(f, NULL, "signal %d", SIGTERM);
        l->terminated = true;
    }
    bool quiet = last_end && now > last_end + FAIL_GRACE_S;
    bool frozen = l->lost_at <= now && quiet && now > all_frozen_at(l, last_end);
    bool frozen_in_save = quiet && now > l->saved_at + test_seconds("SAVED_GRACE", SAVED_GRACE_S);
    bool late = frozen || frozen_in_save || now > fmin(l->failed_at, l->lost_at) + notice + save ||
                now > l->stopped_at + test_seconds("STOP_GRACE", STOP_GRACE_S);
    if ((late || *f->failure) && !l->killed) {
        if (late) log_warn("%d of %d ranks did not end in time, and are killed", f->running, f->n_ranks);
        note_kill(l);
        fleet_send(f, NULL, "kill");
    }
}

static void watch_ranks(Launch *l)
{
    while (l->fleet.running > 0) {
        fleet_turn(&l->fleet, l->signals, 0.25, launch_silence(l));
        launch_take_signals(l);
        faults_turn(l);
        end_failed_ranks(l);
    }
}

static void end_start(Launch *l)
{
    fleet_end(&l->fleet, l->killed ? 5 : 5 + test_seconds("AGENT_GRACE", AGENT_GRACE_S));
    store_server_close(l->store);
    l->store = NULL;
}

/* Marks the hosts on which --audit excluded a place. */
static void find_excluded(Launch *l)
{
    ExcludedPlace *places = NULL;
    int n = 0;
    if (excluded_read(l->output_dir, &places, &n) != OK) log_debug("%s", status_message());
    for (int i = 0; i < n; i++)
        for (int k = 0; k < l->fleet.n_remotes; k++) {
            const Remote *r = &l->fleet.remotes[k];
            if (strcmp(r->hostname, places[i].host) == 0) r->site->excluded = true;
        }
    free(places);
}

static Status run_once(Launch *l, Outcome *o)
{
    *o = (Outcome){0};
    if (l->output_dir) l->faults.starts = fault_record_starts(l->output_dir, l->job).count;
    Status status = launch_start(l);
    if (status == OK) {
        watch_ranks(l);
        outcome_find(l, o);
        if (l->output_dir) faults_add(l, o);
        outcome_name_all(l, o);
        if (o->again && l->output_dir) find_excluded(l);
        if (*l->fleet.failure) status = fail(E_FAIL, "%s", l->fleet.failure);
    }
    end_start(l);
    return status;
}

/* Waits before the next start, twice as long after each start that did not advance; a signal ends the wait. */
static void pause_before(Launch *l)
{
    double begin = clock_monotonic(), until = begin + fmin(0.5 * exp2(l->faults.fruitless), LONGEST_PAUSE_S), left;
    struct pollfd wait = {.fd = l->signals, .events = POLLIN};
    while (!l->stop_signal && (left = until - clock_monotonic()) > 0)
        if (poll(&wait, 1, (int)(1e3 * left) + 1) > 0) launch_take_signals(l);
    l->faults.record.seconds.pause_s += clock_monotonic() - begin;
}

/* Opens the hosts that are not excluded; of these, those that were just lost only with `lost`. Returns whether they
   have enough slots for --ranks. */
static bool open_hosts(Launch *l, bool lost, int *n)
{
    int64_t room = 0;
    *n = 0;
    for (int i = 0; i < l->sites.n; i++) {
        Site *s = &l->sites.list[i];
        s->open = !s->excluded && (lost || s->lost_in < l->restarts);
        *n += s->open;
        if (s->open) room += s->limit;
    }
    return *n > 0 && room >= l->c->ranks;
}

/* Chooses the hosts of the next start, and returns their number. It leaves a host that was just lost out once, unless
   the others have too few slots for --ranks. 0: without the excluded ones they always have. */
static int choose_hosts(Launch *l)
{
    int n;
    if (open_hosts(l, false, &n) || open_hosts(l, true, &n)) return n;
    for (int i = 0; i < l->sites.n; i++)
        if (l->sites.list[i].excluded) return 0;
    return n;
}

static Status run_all(Launch *l, Outcome *o)
{
    for (;;) {
        Status status = run_once(l, o);
        if (status == E_PEER && l->restarts > 0 && !l->stop_signal) { /* hosts may come back */
            *o = (Outcome){.code = status_exit_code(E_PEER), .again = true};
            snprintf(o->what, sizeof o->what, "%s", status_message());
        } else
            TRY(status);
        if (!o->again || l->restarts >= l->c->max_restarts) return OK;
        l->restarts++;
        faults_end_start(l);
        int hosts = choose_hosts(l);
        if (hosts == 0) {
            log_warn("%s/%s names a host that computes wrongly, and the others have too few slots for --ranks; not "
                     "started again",
                     l->output_dir, EXCLUDED_REPORT);
            return OK;
        }
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
    if (c->probe)
        return c->n_positional > 0 ? fail(E_USAGE, "--probe takes no command; leave out '-- %s'", c->positional[0])
                                   : OK;
    if (c->n_positional == 0)
        return fail(E_USAGE, "nothing to start; write `cairn launch --ranks N -- pretrain …`, or --probe");
    char **words = mem_array((size_t)c->n_positional + 2, sizeof *words);
    words[0] = "cairn";
    memcpy(words + 1, c->positional, (size_t)c->n_positional * sizeof *words);
    Status status = config_parse(&command, c->n_positional + 1, words, environ);
    free(words);
    TRY(status_context(status, "the command behind --"));
    l->max_time = command.max_time;
    if (config_option_of(OPTION_output_dir, command.command)) l->output_dir = mem_strdup(command.output_dir);
    ConfigSource own = command.source[OPTION_peer_timeout];
    if (own == FROM_FLAG || own > c->source[OPTION_peer_timeout]) l->peer_timeout = command.peer_timeout;
    bool itself = command.command == COMMAND_LAUNCH;
    config_free(&command);
    return itself ? fail(E_USAGE, "launch cannot start itself") : OK;
}

/* A unique name: the scheduler's number of the job, and this process. */
static void name_job(Launch *l)
{
    static const char *const numbers[][2] = {{"SLURM_JOB_ID", "slurm"}, {"PBS_JOBID", "pbs"}, {"JOB_ID", "job"}};
    snprintf(l->job, sizeof l->job, LAUNCH_JOB "%d-%.0f", (int)getpid(), clock_wall());
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *number = getenv(numbers[i][0]);
        if (number && *number)
            snprintf(l->job, sizeof l->job, LAUNCH_JOB "%s-%.38s-%d", numbers[i][1], number, (int)getpid());
    }
    for (char *p = l->job; *p; p++)
        if (*p == '/' || *p == ' ') *p = '_';
}

static Status watch_signals(Launch *l)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGTSTP, SIGCONT};
    struct sigaction old;
    int used[7], n = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        /* nohup and some shells ignore these two */
        bool ignored = numbers[i] == SIGHUP || numbers[i] == SIGTSTP;
        ignored = ignored && sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN;
        if (!ignored) used[n++] = numbers[i]; /* a signalfd receives ignored signals, too */
    }
    signal(SIGPIPE, SIG_IGN);
    l->under_grid_engine = signals_under_grid_engine();
    l->signals = signals_open(used, n);
    return l->signals < 0 ? fail(E_IO, "cannot receive signals: %m") : OK;
}

static Status fail_with_code(int code, const char *what)
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
    TRY_DONE(launch_check_files(c->ranks > 0 ? (int)c->ranks : 1)); /* again when all hosts are known */
    TRY_DONE(sites_find(c->hosts, environ, &l.sites));
    hash128_random_hex(l.random);
    TRY_DONE(watch_signals(&l));
    writer_begin();
    name_job(&l);
    if (l.output_dir) faults_begin(&l);
    status = run_all(&l, &o);
    if (l.output_dir) faults_end(&l);
    TRY_DONE(status);
    status = fail_with_code(o.code, o.what);
done:
    writer_end(l.signals, l.stop_signal ? 5 : INFINITY);
    if (l.signals >= 0) close(l.signals);
    sites_free(&l.sites);
    free(l.output_dir);
    return status;
}
