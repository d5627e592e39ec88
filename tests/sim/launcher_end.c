/* How the launcher's driver ends a start: its outcome, its agents, and what comes next. */
#include "launching.h"

#define KEEPALIVE_S  22.0 /* after which ssh notices that a host does not answer any more: 20 to 25 */
#define LONGEST_POLL 0.64

/* ---- agents ---- */

static void await_agents(Launcher *l)
{
    l->stage = STAGE_ENDING;
    l->until = w.now + (l->s.killed_at < INFINITY ? 5 : 5 + GRACE_S);
    l->poll = 0.02;
}

/* Ends the agents that do not go on, and with them their ranks. Signals that come meanwhile are read later. */
static void end_start(Launcher *l, Status status)
{
    l->status = status;
    l->judged = false;
    await_agents(l);
    for (int h = 0; h < l->s.n_hosts; h++)
        if (status != OK || !launch_goes_on(&l->s, h)) launcher_close_orders(l, h);
}

bool launcher_agent_ended(const Launcher *l, int h)
{
    const Proc *agent = l->remotes[h].agent;
    int here = host_of_launcher();
    if (!agent) return false;
    if (!is_cut(here, h)) return agent->life == PROC_DEAD;
    double since = w.cut[here][h] ? w.cut_at[here][h] : agent->since;
    return l->keepalive && w.now >= since + KEEPALIVE_S;
}

/* Reaps agents, and kills those that do not end in time. False: none is left. */
static bool some_left(Launcher *l)
{
    bool late = w.now > l->until, any = false;
    for (int h = 0; h < l->s.n_hosts; h++) {
        Remote *r = &l->remotes[h];
        const Host *host = &l->s.hosts[h];
        if (!r->runs || r->orders) continue;
        bool idle = (host->lost || !host->met) && host->n_ranks == 0;
        if ((late || idle) && l->list[h].here && r->agent) proc_signal(r->agent, SIGKILL);
        r->runs = !late && !idle && !launcher_agent_ended(l, h);
        any = any || r->runs;
    }
    return any;
}

static void end_job(Launcher *l, int code)
{
    for (int h = 0; h < l->s.n_hosts; h++) must(!l->remotes[h].orders, "the job is over, and not for host %d", h);
    story("exit %d", code);
    launcher_check_code(l, code);
    w.exit_code = code;
    l->stage = STAGE_OVER;
    proc_end(l->p, code, 0);
}

static void take_signals(Launcher *l)
{
    for (int i = 0; i < l->n_signals; i++)
        launcher_tell(l, (LaunchEvent){.kind = LAUNCH_SIGNAL, .number = l->signals[i]});
    l->n_signals = 0;
}

/* Waits for the agents that are released; then follows the job's end with `code`, or, for −1, the pause. */
static void end_agents(Launcher *l, int code)
{
    l->code = code;
    l->judged = true;
    await_agents(l);
    launcher_look_at_ending(l);
}

void launcher_look_at_pause(Launcher *l)
{
    if (l->s.phase == PHASE_DONE) end_agents(l, status_exit_code(E_STOPPED));
}

static void begin_pause(Launcher *l)
{
    l->stage = STAGE_PAUSE;
    for (int h = 0; h < l->s.n_hosts; h++)
        if (!l->remotes[h].orders) l->remotes[h] = (Remote){.connect_at = INFINITY};
    take_signals(l);
    launcher_look_at_pause(l);
}

/* A second of steps that count is a second of training. */
static void next_start(Launcher *l)
{
    LaunchState *s = &l->s;
    int before = s->restarts;
    double trained = fmax(0, (double)disk_newest(0));
    launcher_close_rendezvous(l);
    if (l->status != OK) {
        end_job(l, status_exit_code(l->status));
        return;
    }
    int code = s->verdict.code;
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_NEXT, .trained = trained});
    bool over = s->restarts == before || (s->phase == PHASE_DONE && !s->stop_signal);
    end_agents(l, over ? code : -1);
}

/* ---- the outcome ---- */

static void name_rank(const Launcher *l, int rank, const char *also)
{
    const Rank *r = &l->s.ranks[rank];
    if (r->signal && rank_is_frozen(r))
        story("%srank %d frozen", also, rank);
    else if (r->signal)
        story("%srank %d killed%s", also, rank, rank_killed_late(&l->s, r) ? " late" : "");
    else if (r->code == 77 && r->silent_at < INFINITY)
        story("%srank %d went on", also, rank);
    else if (launch_is_failure(r->code))
        story("%srank %d failed with %d", also, rank, r->code);
    else if (r->code == 77)
        story("%sranks lost each other", also);
    else
        story("%sstopped", also);
}

static void tell_story(const Launcher *l)
{
    const Verdict *v = &l->s.verdict;
    char start[32];
    snprintf(start, sizeof start, "start %d: ", w.starts);
    switch (v->cause) {
    case CAUSE_NONE:
        story("%sdone", start);
        break;
    case CAUSE_HOST:
        story("%shost %d lost", start, v->host);
        break;
    case CAUSE_CUT_OFF:
        story("%shost %d cut off", start, v->host);
        break;
    case CAUSE_NO_START:
        story("%snot begun", start);
        break;
    default:
        name_rank(l, v->rank, start);
    }
    for (int rank = -1; (rank = launch_lost_beside(&l->s, rank)) >= 0;) name_rank(l, rank, "also ");
}

void launcher_find_outcome(Launcher *l)
{
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_AUDITED, .rank = -1, .about = -1, .folder = true});
    tell_story(l);
    launcher_check_verdict(l);
    end_start(l, OK);
}

void launcher_give_up_start(Launcher *l)
{
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_NO_START});
    tell_story(l);
    end_start(l, l->s.verdict.again ? OK : E_PEER);
}

void launcher_stop_start(Launcher *l)
{
    story("start %d: stopped before it began", w.starts);
    end_start(l, E_STOPPED);
}

void launcher_look_at_ending(Launcher *l)
{
    bool standby = w.schedule.standby > 0;
    if (standby) launcher_tell(l, (LaunchEvent){.kind = LAUNCH_TIME}); /* agents that go on hear of it */
    if (some_left(l)) {
        proc_wake(l->p, fmin(w.now + l->poll, standby ? l->s.wake : INFINITY));
        l->poll = fmin(2 * l->poll, LONGEST_POLL);
    } else if (!l->judged) {
        next_start(l);
    } else if (l->code < 0) {
        begin_pause(l);
    } else {
        end_job(l, l->code);
    }
}
