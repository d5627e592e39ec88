/* `cairn launch`: starts ranks, watches them, and restarts them. */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "base/siphash.h"
#include "base/test_switch.h"
#include "faults/excluded.h"
#include "launch/launch.h"
#include "launch/launch_internal.h"

extern char **environ;

/* For tests: CAIRN_TEST_RETRY and so on. `silence` is at least 10 s, also with a shorter --peer-timeout: launcher and
   agents beat every 2 s, and an agent may try an address for 5 s. */
static LaunchTimes find_times(const Launch *l)
{
    return (LaunchTimes){
        .connect = l->c->connect_timeout,
        .retry = {test_seconds("RETRY", 20), test_seconds("RETRY", 10)},
        .silence = test_seconds("AGENT_SILENCE", fmax(l->peer_timeout, 10)),
        .notice = test_seconds("NOTICE", l->peer_timeout + 5),
        .fail = test_seconds("FAIL_GRACE", 2),
        .save = 115,
        .saved = test_seconds("SAVED_GRACE", 10),
        .stop = test_seconds("STOP_GRACE", 600),
    };
}

bool launch_take_signals(Launch *l)
{
    bool any = false;
    for (int number; (number = signals_take(l->signals)); any = true)
        fleet_tell(&l->fleet, &(LaunchEvent){.kind = LAUNCH_SIGNAL, .number = number});
    return any;
}

void launch_turn(Launch *l)
{
    l->state.times = find_times(l);
    fleet_turn(&l->fleet, l->signals);
    launch_take_signals(l);
}

static void end_start(Launch *l)
{
    fleet_end(&l->fleet, l->state.killed_at < INFINITY ? 5 : 5 + test_seconds("AGENT_GRACE", AGENT_GRACE_S));
    rendezvous_close(l->server);
    l->server = NULL;
}

/* Marks the hosts on which --audit excluded a place. */
static void find_excluded(Launch *l)
{
    ExcludedPlace *places = NULL;
    int n = 0;
    if (excluded_read(l->output_dir, false, &places, &n) != OK) log_debug("%s", status_message());
    for (int i = 0; i < n; i++)
        for (int k = 0; k < l->fleet.n_remotes; k++) {
            const Remote *r = &l->fleet.remotes[k];
            if (strcmp(r->hostname, places[i].host) == 0) r->site->excluded = true;
        }
    free(places);
}

static Status run_once(Launch *l, Outcome *o)
{
    Status status = launch_start(l);
    if (status == OK) {
        while (l->state.phase == PHASE_RUNS) launch_turn(l);
        outcome_find(l, o);
        if (l->output_dir) faults_add(l, o);
        outcome_name_all(l, o);
        if (l->state.verdict.again && l->output_dir) find_excluded(l);
        if (*l->fleet.failure) status = fail(E_FAIL, "%s", l->fleet.failure);
    } else if (status == E_PEER) {
        fleet_tell(&l->fleet, &(LaunchEvent){.kind = LAUNCH_NO_START});
        outcome_find(l, o);
        if (l->state.verdict.again) status = OK; /* hosts may come back */
    }
    end_start(l);
    return status;
}

static int count_open(const Sites *sites)
{
    int n = 0;
    for (int i = 0; i < sites->n; i++) n += sites->list[i].open;
    return n;
}

/* Waits before the next start. A signal ends the wait. */
static void wait_pause(Launch *l)
{
    struct pollfd wait = {.fd = l->signals, .events = POLLIN};
    while (l->state.phase == PHASE_PAUSE) {
        double left = l->state.wake - clock_monotonic();
        if (left > 0) poll(&wait, 1, (int)(1e3 * left) + 1);
        launch_take_signals(l);
        fleet_tell(&l->fleet, &(LaunchEvent){.kind = LAUNCH_TIME});
    }
}

static Status run_all(Launch *l, Outcome *o)
{
    LaunchState *s = &l->state;
    for (;;) {
        TRY(run_once(l, o));
        int before = s->restarts;
        fleet_tell(&l->fleet, &(LaunchEvent){.kind = LAUNCH_NEXT, .trained = faults_trained(l)});
        if (s->restarts == before) return OK;
        int hosts = count_open(&l->sites);
        if (s->phase == PHASE_DONE && !s->stop_signal) {
            log_warn("%s/%s names a host that computes wrongly, and the others have too few slots for --ranks; not "
                     "started again",
                     l->output_dir, EXCLUDED_REPORT);
            return OK;
        }
        log_warn("%s; starting again on %d host%s (%d of at most %lld)", o->what, hosts, hosts == 1 ? "" : "s",
                 s->restarts, (long long)l->c->max_restarts);
        wait_pause(l);
        if (s->phase == PHASE_DONE) return fail(E_STOPPED, "stopped between two starts");
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
    snprintf(l->job, sizeof l->job, "launch-%d-%.0f", (int)getpid(), clock_wall());
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *number = getenv(numbers[i][0]);
        if (number && *number)
            snprintf(l->job, sizeof l->job, "launch-%s-%.38s-%d", numbers[i][1], number, (int)getpid());
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
    l->state.under_grid_engine = signals_under_grid_engine();
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
    l.fleet.state = &l.state;
    l.state.wanted = c->ranks;
    l.state.max_restarts = c->max_restarts;
    if (c->n_positional > 0 && strcmp(c->positional[0], "@agent") == 0) return agent_run(c);
    if (c->n_positional == 1 && strcmp(c->positional[0], "@probe") == 0) return probe_run(c);
    Status status = OK;
    TRY_DONE(check_command(&l));
    TRY_DONE(launch_check_files(c->ranks > 0 ? (int)c->ranks : 1)); /* again when all hosts are known */
    TRY_DONE(sites_find(c->hosts, environ, &l.sites));
    l.state.sites = l.sites.list;
    l.state.n_hosts = l.sites.n;
    hash128_random_hex(l.random);
    TRY_DONE(watch_signals(&l));
    writer_begin();
    name_job(&l);
    l.trained_before = l.state.trained = faults_trained(&l);
    status = run_all(&l, &o);
    if (l.output_dir) faults_end(&l);
    TRY_DONE(status);
    status = fail_with_code(o.code, o.what);
done:
    writer_end(l.signals, l.state.stop_signal ? 5 : INFINITY);
    if (l.signals >= 0) close(l.signals);
    launch_state_free(&l.state);
    sites_free(&l.sites);
    free(l.output_dir);
    return status;
}
