#include "launch/launch_state.h"

#include <signal.h>

#include "base/mem.h"
#include "base/status.h"
#include "launch/wire.h"

#define QUIET_S 2.0 /* without an end of a rank, before the rest counts as frozen */

static void act(LaunchState *s, LaunchActionKind kind, int number, const char *why)
{
    MEM_PUSH(s->actions, s->n_actions, s->cap_actions, (LaunchAction){kind, number, why});
}

static void wake_at(LaunchState *s, double when) { s->wake = fmin(s->wake, when); }

bool rank_is_frozen(const Rank *r) { return r->aware ? r->led : r->silent_at < INFINITY; }

int launch_host_of(const LaunchState *s, int rank)
{
    int h = 0;
    while (rank < s->hosts[h].first_rank || rank >= s->hosts[h].first_rank + s->hosts[h].n_ranks) h++;
    return h;
}

/* ---- a start ---- */

bool launch_goes_on(const LaunchState *s, int host)
{
    const Host *h = s->hosts ? &s->hosts[host] : NULL;
    return s->standby && s->phase != PHASE_DONE && h && !h->lost && s->sites[host].open;
}

static void release_hosts(LaunchState *s)
{
    for (int h = 0; s->standby && h < s->n_hosts; h++)
        if (!launch_goes_on(s, h)) act(s, LAUNCH_DO_RELEASE, h, NULL);
}

static void free_start(LaunchState *s)
{
    MEM_FREE(s->hosts, s->ranks, s->silent);
    s->hosts = NULL;
    s->ranks = NULL;
    s->silent = NULL;
    s->n_ranks = s->running = 0;
}

static void begin_start(LaunchState *s, double now)
{
    Host *hosts = mem_array((size_t)s->n_hosts, sizeof *hosts);
    for (int h = 0; h < s->n_hosts; h++) {
        hosts[h] = (Host){.met = launch_goes_on(s, h), .lost = !s->sites[h].open, .heard = now};
        if (hosts[h].met) hosts[h].heard = s->hosts[h].heard;
    }
    free_start(s);
    s->phase = PHASE_AGENTS;
    s->hosts = hosts;
    s->met = s->saved = s->failed = s->terminated = s->died = false;
    s->begun = s->turned = s->beat_at = now;
    s->stopped_at = s->failed_at = s->lost_at = s->saved_at = s->killed_at = s->last_end = INFINITY;
    s->verdict = (Verdict){.rank = -1, .host = -1};
}

/* `died`: what was lost cannot come to a meeting any more. */
static void note_loss(LaunchState *s, bool died, double now)
{
    if (s->lost_at < INFINITY) return;
    s->lost_at = now;
    s->died = died;
}

static void place_ranks(LaunchState *s, double now)
{
    for (int h = 0; h < s->n_hosts; h++) {
        s->hosts[h].first_rank = s->n_ranks;
        s->hosts[h].n_ranks = s->sites[h].ranks;
        s->n_ranks += s->sites[h].ranks;
    }
    s->running = s->n_ranks;
    s->ranks = mem_array((size_t)s->n_ranks, sizeof *s->ranks);
    s->silent = mem_array((size_t)s->n_ranks * (size_t)s->n_ranks, sizeof *s->silent);
    for (int i = 0; i < s->n_ranks; i++) s->ranks[i].silent_at = INFINITY;
    for (int h = 0; h < s->n_hosts; h++) {
        if (!s->hosts[h].lost || s->hosts[h].n_ranks == 0) continue; /* it was lost meanwhile */
        s->running -= s->hosts[h].n_ranks;
        note_loss(s, true, now);
    }
    s->phase = PHASE_RUNS;
}

static void lose_host(LaunchState *s, int h, const char *why, double now)
{
    Host *host = &s->hosts[h];
    if (host->lost) return;
    host->lost = true;
    for (int i = host->first_rank; i < host->first_rank + host->n_ranks; i++) s->running -= !s->ranks[i].ended;
    if (host->n_ranks > 0) note_loss(s, true, now);
    act(s, LAUNCH_DO_LOSE, h, why);
}

/* ---- ranks ---- */

static void take_report(LaunchState *s, const LaunchEvent *e, double now)
{
    if (e->rank < 0 || e->rank >= s->n_ranks) return;
    Rank *about = e->about >= 0 && e->about < s->n_ranks ? &s->ranks[e->about] : NULL;
    if (e->report == REPORT_MET) s->met = true;
    if (e->report == REPORT_TRAINS) s->had_folder = true;
    if (e->report == REPORT_SAVED) s->saved = true;
    if (e->report == REPORT_SAVED) s->saved_at = fmin(s->saved_at, now);
    if (e->report == REPORT_LOST || e->report == REPORT_SILENT) s->ranks[e->rank].aware = true;
    if (about && e->report == REPORT_FROZEN) about->led = true;
    bool misses = about && e->report == REPORT_SILENT, heard_so = about && e->report == REPORT_LOST && e->silent;
    bool *silent = &s->silent[(size_t)e->rank * (size_t)s->n_ranks]; /* to this rank */
    if (misses || (heard_so && e->about == e->rank && !memchr(silent, true, (size_t)s->n_ranks)))
        silent[e->about] = true;
    if (!(misses || heard_so) || !s->met) return; /* before all have met: they do not reach each other */
    about->silent_at = fmin(about->silent_at, now);
    about->stuck = about->stuck || (misses && launch_host_of(s, e->rank) == launch_host_of(s, e->about));
}

static void take_end(LaunchState *s, const LaunchEvent *e, double now)
{
    if (e->rank < 0 || e->rank >= s->n_ranks) return;
    Rank *r = &s->ranks[e->rank];
    if (r->ended || s->hosts[launch_host_of(s, e->rank)].lost) return;
    r->ended = true;
    r->code = e->code;
    r->signal = e->number;
    r->memory_limit = e->memory_limit;
    r->when = s->last_end = now;
    s->running--;
    if (!r->signal && launch_is_failure(r->code)) s->failed_at = fmin(s->failed_at, now);
    bool died = r->signal || r->code == 130; /* interrupted twice, it saves nothing */
    if (died || r->code == 77) note_loss(s, died, now);
    if (!r->signal && (r->code == 75 || r->code == 99)) s->stopped_at = fmin(s->stopped_at, now);
}

/* When all ranks that still run count as frozen: INFINITY while one of them may not be. A rank that reported a loss was
   alive then, and may be saving, unless survivors say that it is silent. It gets more time where they have not saved,
   for it may go on and save. One that reported nothing may only be out of reach of other hosts: then it finds
   them silent a sign of life later, and reports that, if its agent is not out of reach, too. */
static double all_frozen_at(const LaunchState *s)
{
    double at = s->last_end + QUIET_S;
    for (int i = 0; i < s->n_ranks; i++) {
        const Rank *r = &s->ranks[i];
        const Host *host = &s->hosts[launch_host_of(s, i)];
        if (r->ended || host->lost) continue;
        if (!rank_is_frozen(r)) return INFINITY;
        if (r->aware && !s->saved) at = fmax(at, s->last_end + s->times.saved);
        if (r->aware || r->stuck) continue;
        if (host->heard < r->silent_at + LAUNCH_SIGN_S) return INFINITY;
        at = fmax(at, r->silent_at + LAUNCH_SIGN_S + QUIET_S);
    }
    return at;
}

/* Ends ranks that do not end by themselves. */
static void end_ranks(LaunchState *s, double now)
{
    const LaunchTimes *t = &s->times;
    /* A rank that a signal stopped alone stops all; a signal to the launcher has reached all. */
    double ask = fmin(s->failed_at, s->stop_signal ? INFINITY : s->stopped_at) + t->fail;
    ask = fmin(ask, s->lost_at + t->notice);
    if (s->died && !s->met) ask = now;         /* the others cannot notice it yet */
    double save = s->met ? t->save : t->saved; /* without a meeting there is no state */
    double late = fmin(fmin(s->failed_at, s->lost_at) + t->notice + save, s->stopped_at + t->stop);
    late = fmin(late, fmax(s->last_end + QUIET_S, s->saved_at + t->saved));
    if (s->lost_at < INFINITY) late = fmin(late, all_frozen_at(s));
    if (!s->terminated && now >= ask) {
        act(s, LAUNCH_DO_SIGNAL, SIGTERM, NULL);
        s->terminated = true;
    }
    if (s->killed_at == INFINITY && (now >= late || s->failed)) {
        if (now >= late) act(s, LAUNCH_DO_WARN, 0, NULL);
        s->killed_at = now;
        act(s, LAUNCH_DO_KILL, 0, NULL);
    }
    if (!s->terminated) wake_at(s, ask);
    if (s->killed_at == INFINITY) wake_at(s, late);
}

/* ---- signals ---- */

static void take_signal(LaunchState *s, int number, double now)
{
    if (number == SIGTSTP || number == SIGCONT) { /* ranks stop and continue with this process */
        act(s, LAUNCH_DO_SIGNAL, number == SIGCONT ? SIGCONT : SIGSTOP, NULL);
        if (number == SIGTSTP) act(s, LAUNCH_DO_PAUSE, 0, NULL);
        return;
    }
    if (number == SIGHUP) number = SIGTERM; /* the terminal is gone */
    bool ends = !(number == SIGUSR1 && s->under_grid_engine), again = s->stop_signal != 0;
    if (ends && !again) {
        s->stop_signal = number;
        s->stopped_at = fmin(s->stopped_at, now);
    }
    if (number == SIGINT && ++s->interrupts > 1) s->killed_at = fmin(s->killed_at, now);
    if (again && ends && number != SIGINT) return; /* ranks already have a signal */
    if (s->killed_at < INFINITY)
        act(s, LAUNCH_DO_KILL, 0, NULL);
    else
        act(s, LAUNCH_DO_SIGNAL, number, NULL);
    if (number == SIGTERM) s->terminated = true;
    if (s->phase != PHASE_PAUSE || !s->stop_signal) return;
    s->phase = PHASE_DONE;
    release_hosts(s);
}

/* ---- agents ---- */

static double answer_due(const LaunchState *s, int h)
{
    double due = s->times.connect;
    if (s->restarts) due = fmin(due, s->times.retry[0]);
    if (s->sites[h].lost_in) due = fmin(due, s->times.retry[1]);
    return s->begun + due;
}

/* Once all agents have answered or are lost: without all of them only a later start continues. */
static void await_agents(LaunchState *s, double now)
{
    int missing = 0, left = 0;
    for (int h = 0; h < s->n_hosts; h++) {
        if (s->hosts[h].lost || s->hosts[h].met) continue;
        if (now >= answer_due(s, h))
            lose_host(s, h, "no answer in time", now);
        else
            wake_at(s, answer_due(s, h));
    }
    if (s->wake < INFINITY) return;
    for (int h = 0; h < s->n_hosts; h++) {
        left += !s->hosts[h].lost;
        if (!s->sites[h].open || !s->hosts[h].lost) continue;
        missing++;
        s->sites[h].open = false;
        s->sites[h].lost_in = s->restarts + 1;
    }
    s->phase = PHASE_READY;
    if (missing && (s->restarts == 0 || left == 0)) launch_on(s, &(LaunchEvent){.kind = LAUNCH_NO_START}, now);
}

/* After a suspension of this process the agents' messages have yet to come. */
static void forgive_silence(LaunchState *s, double now)
{
    if (now - s->turned <= s->times.silence / 2) return;
    for (int h = 0; h < s->n_hosts; h++) s->hosts[h].heard = now;
}

/* Loses agents that have answered and fell silent. */
static void lose_silent(LaunchState *s, double now)
{
    double silence = s->times.silence;
    for (int h = 0; h < s->n_hosts; h++) {
        const Host *host = &s->hosts[h];
        if (host->lost || !host->met) continue;
        if (now >= host->heard + silence) lose_host(s, h, "it fell silent", now);
        if (!host->lost) wake_at(s, host->heard + silence);
    }
}

static bool has_agents(const LaunchState *s) { return s->hosts && s->phase <= (s->standby ? PHASE_START : PHASE_RUNS); }

static void take_time(LaunchState *s, double now)
{
    if (has_agents(s)) forgive_silence(s, now);
    if (has_agents(s) && s->standby) lose_silent(s, now); /* also between two starts */
    s->wake = INFINITY;
    if (s->phase == PHASE_AGENTS) await_agents(s, now);
    if (s->phase == PHASE_READY || s->phase == PHASE_RUNS) lose_silent(s, now);
    if (s->phase == PHASE_RUNS) end_ranks(s, now);
    if (s->phase == PHASE_RUNS && s->running == 0) s->phase = PHASE_ENDED;
    s->turned = now;
    if (has_agents(s) && now >= s->beat_at) {
        act(s, LAUNCH_DO_BEAT, 0, NULL);
        s->beat_at = now + WIRE_BEAT_S;
    }
    if (has_agents(s)) wake_at(s, s->beat_at);
    if (s->phase == PHASE_PAUSE && now >= s->pause_until) s->phase = PHASE_START;
    if (s->phase == PHASE_PAUSE) wake_at(s, s->pause_until);
}

void launch_on(LaunchState *s, const LaunchEvent *e, double now)
{
    s->wake = now; /* to look what follows from the event */
    switch (e->kind) {
    case LAUNCH_START:
        begin_start(s, now);
        break;
    case LAUNCH_HELLO:
        s->hosts[e->host].met = true;
        break;
    case LAUNCH_HEARD:
        s->hosts[e->host].heard = now;
        break;
    case LAUNCH_GONE:
        lose_host(s, e->host, e->why, now);
        break;
    case LAUNCH_PLACED:
        place_ranks(s, now);
        break;
    case LAUNCH_NO_START:
        s->verdict = (Verdict){CAUSE_NO_START, status_exit_code(E_PEER), -1, -1, s->restarts > 0 && !s->stop_signal};
        s->phase = PHASE_OVER;
        break;
    case LAUNCH_REPORT:
        take_report(s, e, now);
        break;
    case LAUNCH_END:
        take_end(s, e, now);
        break;
    case LAUNCH_STANDS:
        take_end(s, &(LaunchEvent){.rank = e->rank, .code = status_exit_code(E_PEER)}, now);
        break;
    case LAUNCH_FAILED:
        s->failed = true;
        break;
    case LAUNCH_SIGNAL:
        take_signal(s, e->number, now);
        break;
    case LAUNCH_AUDITED:
        launch_judge(s, e);
        break;
    case LAUNCH_NEXT:
        launch_next(s, e->trained, now);
        release_hosts(s);
        break;
    case LAUNCH_TIME:
        take_time(s, now);
        break;
    }
}

void launch_state_free(LaunchState *s)
{
    free_start(s);
    free(s->actions);
}
