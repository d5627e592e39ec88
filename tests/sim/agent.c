/* The agent's driver, as src/launch/agent.c. */
#include "launching.h"

/* ---- what must hold ---- */

/* An agent that has lost its launcher was told of its end, or has heard nothing of it for the limit. */
static void check_loss(const Proc *p, const Agent *a)
{
    const Proc *launcher = p->parent;
    if (a->closed) return;
    must(!a->state.asleep, "agent %d loses a launcher that is suspended", p->host);
    double silent = silent_s(launcher, p);
    must(silent >= a->state.silence - WIRE_BEAT_S - 2 * w.schedule.delay - 0.01,
         "agent %d loses its launcher, which was silent for %g s", p->host, silent);
}

static void check_kill(const Proc *p, const Agent *a)
{
    if (a->ordered) return;
    must(w.now >= a->lost_at + GRACE_S - 1e-9,
         "agent %d kills its ranks, unasked and before their time to save is over", p->host);
}

/* An agent that was never frozen knows of its launcher's loss in time, and its ranks have ended in time. */
static void check_bounds(const Proc *p, const Agent *a)
{
    const AgentState *s = &a->state;
    const Proc *launcher = p->parent;
    must(!s->lost || !s->asleep, "agent %d has lost its launcher, and its ranks are still suspended", p->host);
    for (int i = 0; i < a->n && s->asked; i++)
        must(a->asked[i] || a->ranks[i]->life == PROC_DEAD, "agent %d did not pass SIGTERM on to rank %d", p->host,
             a->first + i);
    if (p->frozen_s > 0 || s->asleep) return;
    if (w.now > a->lost_at + GRACE_S + 1e-6) must(a->killed_at < INFINITY, "agent %d does not kill its ranks", p->host);
    if (s->lost || launcher->life != PROC_DEAD) return;
    bool cut = is_cut(launcher->host, p->host) || w.healed[launcher->host][p->host] >= launcher->since;
    double late = cut || troubled(launcher, p) ? s->silence + 1 : 1;
    must(w.now <= launcher->since + late, "agent %d has not noticed its launcher's end", p->host);
}

/* ---- actions ---- */

static void tell_launcher(Proc *p, Letter l)
{
    if (!p->agent->deaf) say(p, p->parent, l);
}

static void signal_ranks(Agent *a, int number)
{
    for (int i = 0; i < a->n; i++) {
        Proc *rank = a->ended[i] ? a->ranks[i] : proc_last(a->ranks[i]); /* it may wait, and not be heard yet */
        if (!rank || rank->life == PROC_DEAD) continue;
        a->asked[i] = a->asked[i] || number == SIGTERM;
        proc_signal(rank, number);
    }
}

static void perform(Proc *p, const AgentAction *action)
{
    Agent *a = p->agent;
    const Proc *rank;
    switch (action->kind) {
    case AGENT_DO_SIGNAL:
        a->terms += action->number == SIGTERM && !a->starting;
        must(a->terms <= 1, "agent %d sends SIGTERM again", p->host);
        trace(p, "signals its ranks: %d", action->number);
        signal_ranks(a, action->number);
        break;
    case AGENT_DO_KILL:
        check_kill(p, a);
        trace(p, "kills its ranks");
        a->killed_at = fmin(a->killed_at, w.now);
        signal_ranks(a, SIGKILL);
        break;
    case AGENT_DO_BEAT:
        tell_launcher(p, (Letter){.word = SAY_ALIVE});
        break;
    case AGENT_DO_TELL:
        rank = a->ranks[action->number];
        tell_launcher(p, (Letter){.word = rank->again ? SAY_STANDS : SAY_END,
                                  .rank = rank->rank,
                                  .code = rank->code,
                                  .number = rank->signal});
        break;
    }
}

static void agent_tell(Proc *p, AgentEvent e)
{
    Agent *a = p->agent;
    AgentState *s = &a->state;
    bool lost = s->lost;
    agent_on(s, &e, w.now);
    if (s->lost && !lost) {
        trace(p, "has lost its launcher%s", a->closed ? "" : ", which is silent");
        check_loss(p, a);
        a->lost_at = w.now;
        for (int i = 0; i < a->n_idle; i++) proc_signal(a->idle[i], SIGTERM);
    }
    if (a->acting) return; /* an action has ended a rank */
    a->acting = true;
    for (int i = 0; i < s->n_actions; i++) {
        AgentAction action = s->actions[i];
        perform(p, &action);
    }
    s->n_actions = 0;
    a->acting = false;
}

static void lose_launcher(Proc *p)
{
    p->agent->deaf = p->agent->closed = true;
    agent_tell(p, (AgentEvent){.kind = AGENT_GONE});
}

/* ---- events ---- */

/* A launcher on another host has the agent end when it is silent; the local one's end is always noticed. */
static void begin(Proc *p)
{
    Agent *a = p->agent = sim_alloc(sizeof *a);
    double silence = p->host == p->parent->host ? 0 : fmax(w.schedule.timeout, 10);
    a->state = (AgentState){.silence = silence, .grace = GRACE_S, .heard = w.now};
    a->lost_at = a->killed_at = INFINITY;
    a->hello_at = w.now + (p->host == p->parent->host ? uniform(0.01, 0.05) : uniform(0.05, 1));
}

static void say_hello(Proc *p)
{
    Agent *a = p->agent;
    if (w.now < a->hello_at) return;
    tell_launcher(p, (Letter){.word = SAY_HELLO});
    a->hello_at = INFINITY;
}

/* The launcher's host is up again, without the launcher: it refuses what comes. */
static bool is_refused(const Proc *p)
{
    const Proc *launcher = p->parent;
    return launcher->vanished && !is_cut(launcher->host, p->host);
}

static void agent_time(Proc *p)
{
    if (!p->agent) begin(p);
    say_hello(p);
    if (is_refused(p)) lose_launcher(p);
    agent_tell(p, (AgentEvent){.kind = AGENT_TIME});
    check_bounds(p, p->agent);
    if (agent_is_done(&p->agent->state))
        proc_end(p, 0, 0);
    else
        proc_wake(p, fmin(p->agent->state.wake, p->agent->hello_at));
}

static void begin_again(Proc *p, int start)
{
    Agent *a = p->agent;
    p->start = start;
    agent_tell(p, (AgentEvent){.kind = AGENT_AGAIN});
    memset(a->ended, 0, sizeof a->ended);
    memset(a->asked, 0, sizeof a->asked);
    a->killed_at = INFINITY;
    a->ordered = false;
    a->terms = 0;
}

static void start_ranks(Proc *p, const Letter *l)
{
    Agent *a = p->agent;
    a->first = l->rank;
    a->n = l->number;
    a->starting = true;
    for (int i = 0; i < a->n; i++) {
        Proc *idle = standby_take(a);
        a->ranks[i] = idle ? proc_go_on(idle, PROC_RANK, p->start, a->first + i)
                           : proc_begin(PROC_RANK, p->host, p->start, a->first + i, p);
        line_open(p, a->ranks[i]);
        agent_tell(p, (AgentEvent){.kind = AGENT_STARTED});
    }
    if (p->start == 1) standby_begin(p);
    a->starting = false;
}

static void take_order(Proc *p, const Letter *l)
{
    agent_tell(p, (AgentEvent){.kind = AGENT_HEARD});
    if (p->agent->state.lost) return;
    switch (l->word) {
    case SAY_AGAIN:
        begin_again(p, l->number);
        break;
    case SAY_RANKS:
        start_ranks(p, l);
        break;
    case SAY_REACH:
        tell_launcher(p, (Letter){.word = SAY_REACH, .number = !is_cut(p->host, p->parent->host)});
        break;
    case SAY_SIGNAL:
        agent_tell(p, (AgentEvent){.kind = AGENT_SIGNAL, .number = l->number});
        break;
    case SAY_KILL:
        p->agent->ordered = true;
        agent_tell(p, (AgentEvent){.kind = AGENT_KILL});
        break;
    default:
        must(l->word == SAY_ALIVE, "agent %d gets an unknown order, %d", p->host, l->word);
    }
}

static void take_stand(Proc *p, const Letter *l)
{
    Agent *a = p->agent;
    a->ended[l->rank - a->first] = true;
    a->idle[a->n_idle++] = l->from->again;
    if (a->state.lost) proc_signal(l->from->again, SIGTERM);
    agent_tell(p, (AgentEvent){.kind = AGENT_ENDED, .child = l->rank - a->first});
}

static void agent_hears(Proc *p, const Letter *l)
{
    if (!p->agent) begin(p);
    if (l->from == p->parent && l->word == SAY_CLOSED)
        lose_launcher(p);
    else if (l->from == p->parent)
        take_order(p, l);
    else if (l->word == SAY_STANDS)
        take_stand(p, l);
    else if (l->word == SAY_REPORT)
        tell_launcher(p, (Letter){.word = SAY_REPORT,
                                  .rank = l->from->rank,
                                  .report = l->report,
                                  .about = l->about,
                                  .silent = l->silent});
    bool quiet = l->word == SAY_ALIVE || l->word == SAY_REPORT; /* nothing becomes due by these */
    if (!quiet) proc_wake(p, w.now);
}

/* Order by signal. Others are ignored by agents. */
static void agent_signalled(Proc *p, int number)
{
    if (!p->agent) begin(p);
    if (number == SIGTERM) agent_tell(p, (AgentEvent){.kind = AGENT_SIGNAL, .number = SIGTERM});
    if (number == SIGHUP) lose_launcher(p);
    proc_wake(p, w.now);
}

static void agent_child(Proc *p, Proc *child)
{
    Agent *a = p->agent;
    if (child->kind == PROC_IDLE) return;
    int i = child->rank - a->first;
    must(i >= 0 && i < a->n && a->ranks[i] == child && !a->ended[i], "agent %d has no such rank", p->host);
    a->ended[i] = true;
    agent_tell(p, (AgentEvent){.kind = AGENT_ENDED, .child = i, .killed = child->signal == SIGKILL});
    proc_wake(p, w.now);
}

void agent_free(Agent *a)
{
    free(a->state.actions);
    a->state.actions = NULL;
}

const Behaviour agent_behaviour = {
    .hears = agent_hears, .time = agent_time, .signalled = agent_signalled, .child = agent_child};
