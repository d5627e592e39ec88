/* The launcher's driver, as src/launch/command_launch.c, fleet.c and start.c, and its rendezvous. */
#include "launching.h"

#define CONNECT_S   300.0 /* --connect-timeout */
#define REACH_S     8.0   /* for the agents to try an address */
#define IMPATIENT_S 1000.0
#define UNENDING_S  4000.0

static LaunchTimes times(void)
{
    double timeout = w.schedule.timeout;
    return (LaunchTimes){.connect = CONNECT_S,
                         .retry = {20, 10},
                         .silence = fmax(timeout, 10),
                         .notice = timeout + 5,
                         .fail = 2,
                         .save = 115,
                         .saved = 10,
                         .stop = 600};
}

/* ---- orders ---- */

static void order(Launcher *l, int h, Letter o)
{
    Remote *r = &l->remotes[h];
    if (!r->orders || l->s.hosts[h].lost) return;
    if (r->agent) {
        say(l->p, r->agent, o);
    } else if (o.word != SAY_ALIVE) {
        Letter *copy = sim_alloc(sizeof *copy);
        *copy = o;
        *r->waiting_end = copy;
        r->waiting_end = &copy->next;
    }
}

static void order_all(Launcher *l, Letter o)
{
    for (int h = 0; h < l->s.n_hosts; h++) order(l, h, o);
}

void launcher_close_orders(Launcher *l, int h)
{
    Remote *r = &l->remotes[h];
    if (r->orders && r->agent) line_close(l->p, r->agent);
    r->orders = false;
}

static void lose_agent(Launcher *l, int h, const char *why)
{
    Remote *r = &l->remotes[h];
    trace(l->p, "has lost host %d: %s", h, why);
    launcher_close_orders(l, h);
    if (!l->list[h].here || !r->agent) return;
    proc_signal(r->agent, SIGKILL);
    r->runs = false;
}

/* How long SIGTSTP suspends the job. */
static double pause_seconds(void)
{
    for (int i = 0; i < w.schedule.n_faults; i++) {
        const Fault *f = &w.schedule.faults[i];
        if (f->struck && f->kind == FAULT_SIGNAL_LAUNCHER && f->number == SIGTSTP && f->seconds < INFINITY)
            return f->seconds;
    }
    return uniform(1, 60);
}

static void perform(Launcher *l, const LaunchAction *a)
{
    launcher_check_action(l, a);
    switch (a->kind) {
    case LAUNCH_DO_SIGNAL:
        trace(l->p, "sends signal %d to all ranks", a->number);
        order_all(l, (Letter){.word = SAY_SIGNAL, .number = a->number});
        break;
    case LAUNCH_DO_KILL:
        trace(l->p, "has all ranks killed");
        order_all(l, (Letter){.word = SAY_KILL});
        break;
    case LAUNCH_DO_WARN:
        trace(l->p, "%d of %d ranks did not end in time", l->s.running, l->s.n_ranks);
        break;
    case LAUNCH_DO_LOSE:
        lose_agent(l, a->number, a->why);
        break;
    case LAUNCH_DO_BEAT:
        order_all(l, (Letter){.word = SAY_ALIVE});
        break;
    case LAUNCH_DO_PAUSE:
        l->paused = true;
        proc_freeze(l->p, pause_seconds());
        break;
    case LAUNCH_DO_RELEASE:
        launcher_close_orders(l, a->number);
        break;
    }
}

void launcher_tell(Launcher *l, LaunchEvent e)
{
    LaunchState *s = &l->s;
    launcher_notes(l, &e);
    launch_on(s, &e, w.now);
    if (l->acting) return; /* an action has failed, and more may follow it */
    l->acting = true;
    for (int i = 0; i < s->n_actions; i++) {
        LaunchAction a = s->actions[i];
        perform(l, &a);
    }
    s->n_actions = 0;
    l->acting = false;
}

/* ---- the rendezvous ---- */

static void end_round(Launcher *l, bool failed)
{
    trace(l->p, "%d of %d ranks have come: %s", l->n_came, l->s.n_ranks, failed ? "they cannot meet" : "they meet");
    l->round_over = true;
    l->round_failed = failed;
    l->round_until = INFINITY;
    for (int i = 0; i < l->s.n_ranks; i++)
        if (l->came[i]) say(l->p, l->came[i], (Letter){.word = SAY_GO, .number = failed ? 0 : l->s.n_ranks});
}

/* Ranks of another start have another token, and after the start nobody answers. */
static void take_guest(Launcher *l, Proc *rank)
{
    if (rank->start != w.starts || l->stage < STAGE_RUNS || l->stage > STAGE_ENDING) {
        line_close(l->p, rank);
        return;
    }
    l->n_came += !l->came[rank->rank];
    l->came[rank->rank] = rank;
    if (l->round_over) {
        must(l->round_failed, "rank %d comes to the rendezvous again", rank->rank);
        say(l->p, rank, (Letter){.word = SAY_GO});
        return;
    }
    l->round_until = fmin(l->round_until, w.now + CONNECT_S);
    if (l->n_came == l->s.n_ranks) end_round(l, false);
}

void launcher_close_rendezvous(Launcher *l)
{
    for (int i = 0; i < l->s.n_ranks; i++)
        if (l->came[i]) line_close(l->p, l->came[i]);
    memset(l->came, 0, sizeof l->came);
    l->n_came = 0;
    l->round_until = INFINITY;
    l->round_over = l->round_failed = false;
}

/* ---- the begin of a start ---- */

static void begin_start(Launcher *l)
{
    w.starts++;
    w.n_ranks = 0;
    memset(w.ranks, 0, sizeof w.ranks);
    memset(w.agents, 0, sizeof w.agents);
    l->stage = STAGE_AGENTS;
    l->first_loss = l->first_stop = l->first_saved = l->met_at = INFINITY;
    l->asked = false;
    trace(l->p, "begins start %d", w.starts);
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_START});
    for (int h = 0; h < l->s.n_hosts; h++) {
        Remote *r = &l->remotes[h];
        if (l->s.hosts[h].met) {
            must(r->orders, "host %d goes on, whose agent does not", h);
            w.agents[h] = r->agent;
            order(l, h, (Letter){.word = SAY_AGAIN, .number = w.starts});
            continue;
        }
        *r = (Remote){.connect_at = INFINITY, .pause = 1, .reached = -1};
        r->waiting_end = &r->waiting;
        if (!l->list[h].open) continue;
        r->orders = r->runs = true;
        r->connect_at = w.now;
    }
}

/* A host that is down refuses at once, or does not answer; a cut line may heal before the time is over. */
static void connect(Launcher *l, int h)
{
    Remote *r = &l->remotes[h];
    r->connect_at = INFINITY;
    if (l->s.hosts[h].lost) return;
    if (is_cut(host_of_launcher(), h)) {
        if (w.down[h] && chance(0.5)) {
            r->runs = false;
            launcher_tell(l, (LaunchEvent){.kind = LAUNCH_GONE, .host = h, .why = "its connection ended"});
            return;
        }
        r->connect_at = w.now + r->pause;
        r->pause = fmin(2 * r->pause, 16);
        return;
    }
    r->agent = proc_begin(PROC_AGENT, h, w.starts, -1, l->p);
    line_open(l->p, r->agent);
    for (const Letter *o = r->waiting; o; o = o->next) say(l->p, r->agent, *o);
}

static void place_ranks(Launcher *l)
{
    int64_t all = w.schedule.hosts * w.schedule.each, room = sites_room(&l->sites);
    int64_t wanted = w.schedule.standby ? all : l->wanted;
    if (l->s.restarts && wanted > room) wanted = room; /* hosts were lost */
    for (int h = 0; h < l->sites.n; h++) l->list[h].usual = w.schedule.each;
    must(sites_place(&l->sites, wanted) == OK, "%" PRId64 " ranks have no place", wanted);
    for (int h = 0; h < l->sites.n; h++)
        if (l->list[h].limit == 0) l->list[h].limit = l->list[h].ranks;
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_PLACED});
    w.n_ranks = l->s.n_ranks;
    trace(l->p, "has places for %d ranks", w.n_ranks);
}

static void start_ranks(Launcher *l)
{
    l->stage = STAGE_RUNS;
    launcher_close_rendezvous(l);
    for (int h = 0; h < l->s.n_hosts; h++) {
        const Host *host = &l->s.hosts[h];
        if (host->n_ranks > 0)
            order(l, h, (Letter){.word = SAY_RANKS, .rank = host->first_rank, .number = host->n_ranks});
    }
}

static bool is_local(const Launcher *l)
{
    for (int h = 0; h < l->s.n_hosts; h++)
        if (!l->s.hosts[h].lost && !l->list[h].here) return false;
    return true;
}

static void try_address(Launcher *l)
{
    l->stage = STAGE_REACH;
    l->until = w.now + REACH_S;
    for (int h = 0; h < l->s.n_hosts; h++) l->remotes[h].reached = -1;
    order_all(l, (Letter){.word = SAY_REACH});
}

/* ---- a turn ---- */

static void look_at_agents(Launcher *l)
{
    if (l->s.stop_signal) {
        launcher_stop_start(l);
    } else if (l->s.phase == PHASE_OVER) {
        launcher_give_up_start(l);
    } else if (l->s.phase == PHASE_READY) {
        place_ranks(l);
        l->addresses = 1 + pick(3);
        if (is_local(l))
            start_ranks(l);
        else
            try_address(l);
    }
}

/* Every agent that is not lost has answered, or does not in time. */
static void look_at_reach(Launcher *l)
{
    bool waiting = false, good = true;
    if (l->s.stop_signal) {
        launcher_stop_start(l);
        return;
    }
    for (int h = 0; h < l->s.n_hosts; h++) {
        if (l->s.hosts[h].lost) continue;
        waiting = waiting || l->remotes[h].reached < 0;
        good = good && l->remotes[h].reached == 1;
    }
    if (waiting && w.now < l->until) return;
    if (good)
        start_ranks(l);
    else if (--l->addresses > 0)
        try_address(l);
    else
        launcher_give_up_start(l);
}

/* ssh notices that its host is out of reach, or that it is up again without the agent. */
static void look_at_lines(Launcher *l)
{
    if (!w.kinds[FAULT_CUT] && !w.kinds[FAULT_HOST]) return;
    for (int h = 0; h < l->s.n_hosts; h++) {
        const Remote *r = &l->remotes[h];
        if (!r->agent || l->list[h].here || l->s.hosts[h].lost) continue;
        if ((is_cut(host_of_launcher(), h) || r->agent->vanished) && launcher_agent_ended(l, h))
            launcher_tell(l, (LaunchEvent){.kind = LAUNCH_GONE, .host = h, .why = "its connection ended"});
    }
}

/* A user ends a job in which nothing can happen any more. */
static void lose_patience(Launcher *l)
{
    must(w.kinds[FAULT_SLOW] || w.now < w.disturbed + UNENDING_S, "start %d does not end", w.starts);
    if (l->interrupts > 1 || w.now < w.disturbed + IMPATIENT_S || !launcher_is_stuck(l)) return;
    l->impatient = true;
    trace(l->p, "is interrupted by its user");
    for (int i = 0; i < 2; i++) launcher_tell(l, (LaunchEvent){.kind = LAUNCH_SIGNAL, .number = SIGINT});
}

static void look_at_time(Launcher *l)
{
    for (int h = 0; h < l->s.n_hosts && l->stage == STAGE_AGENTS; h++)
        if (w.now >= l->remotes[h].connect_at) connect(l, h);
    look_at_lines(l);
    if (w.now > w.disturbed + IMPATIENT_S) lose_patience(l);
    launcher_tell(l, (LaunchEvent){.kind = LAUNCH_TIME});
    launcher_check_time(l);
    if (w.now >= l->round_until) end_round(l, true);
}

/* When the launcher has to look again. */
static void plan_turn(Launcher *l)
{
    double at = l->s.wake;
    if (l->stage == STAGE_ENDING || l->stage == STAGE_OVER) return;
    if (l->stage == STAGE_REACH) at = fmin(at, l->until);
    if (l->stage == STAGE_RUNS) at = fmin(at, l->round_until);
    for (int h = 0; h < l->s.n_hosts && l->stage == STAGE_AGENTS; h++) at = fmin(at, l->remotes[h].connect_at);
    l->spins = w.now > l->spun ? 0 : l->spins + 1;
    l->spun = w.now;
    must(l->spins < 10000, "the launcher looks at the same time again and again");
    proc_wake(l->p, at);
}

static void launcher_time(Proc *p)
{
    Launcher *l = p->launcher;
    if (l->stage != STAGE_ENDING) look_at_time(l);
    if (l->paused) {
        if (!proc_runs(p)) return;
        l->paused = false;
        launcher_tell(l, (LaunchEvent){.kind = LAUNCH_SIGNAL, .number = SIGCONT});
        if (l->stage == STAGE_REACH) try_address(l); /* a signal ends the search, which then begins again */
    }
    if (l->stage == STAGE_PAUSE && l->s.phase == PHASE_START) begin_start(l);
    if (l->stage == STAGE_AGENTS)
        look_at_agents(l);
    else if (l->stage == STAGE_REACH)
        look_at_reach(l);
    else if (l->stage == STAGE_RUNS && l->s.phase == PHASE_ENDED)
        launcher_find_outcome(l);
    if (l->stage == STAGE_ENDING) launcher_look_at_ending(l);
    if (l->stage == STAGE_PAUSE) launcher_look_at_pause(l);
    plan_turn(l);
}

/* ---- what it hears ---- */

static void take_message(Launcher *l, const Letter *m)
{
    int h = m->from->host;
    LaunchEvent e = {.host = h, .rank = m->rank, .about = m->about, .code = m->code, .number = m->number};
    switch (m->word) {
    case SAY_HELLO:
        e.kind = LAUNCH_HELLO;
        break;
    case SAY_END:
        e.kind = LAUNCH_END;
        break;
    case SAY_STANDS:
        e.kind = LAUNCH_STANDS;
        break;
    case SAY_REPORT:
        e.kind = LAUNCH_REPORT;
        e.report = m->report;
        e.silent = m->silent;
        break;
    case SAY_REACH:
        l->remotes[h].reached = m->number;
        return;
    case SAY_CLOSED:
        e.kind = LAUNCH_GONE;
        e.why = "its connection ended";
        break;
    default:
        return;
    }
    launcher_tell(l, e);
}

/* Behind the end of a start the messages of agents that do not go on are read, and dropped. */
static void hear_agent(Launcher *l, const Letter *m)
{
    int h = m->from->host;
    if (m->from != l->remotes[h].agent || (l->stage > STAGE_RUNS && !l->remotes[h].orders) || l->s.hosts[h].lost)
        return;
    if (m->word != SAY_CLOSED) launcher_tell(l, (LaunchEvent){.kind = LAUNCH_HEARD, .host = h});
    take_message(l, m);
    bool quiet = m->word == SAY_ALIVE && l->s.lost_at == INFINITY; /* nothing becomes due by it */
    if (!quiet) proc_wake(l->p, w.now);
}

static void launcher_hears(Proc *p, const Letter *m)
{
    Launcher *l = p->launcher;
    if (m->from->kind == PROC_AGENT)
        hear_agent(l, m);
    else if (m->word == SAY_COME)
        take_guest(l, m->from);
    if (l->round_until < INFINITY) proc_wake(p, l->round_until);
}

static void launcher_signalled(Proc *p, int number)
{
    Launcher *l = p->launcher;
    enum { MOST = sizeof l->signals / sizeof *l->signals };
    if (l->stage != STAGE_ENDING)
        launcher_tell(l, (LaunchEvent){.kind = LAUNCH_SIGNAL, .number = number});
    else if (l->n_signals < MOST)
        l->signals[l->n_signals++] = number;
    if (l->stage == STAGE_REACH && proc_runs(p)) try_address(l);
    proc_wake(p, w.now);
}

/* ---- a job ---- */

void launcher_open(void)
{
    Launcher *l = sim_alloc(sizeof *l);
    const Schedule *s = &w.schedule;
    bool slots = chance(0.5);
    w.launcher = l->p = proc_begin(PROC_LAUNCHER, host_of_launcher(), 0, -1, NULL);
    l->p->launcher = l;
    for (int h = 0; h < s->hosts; h++) {
        int limit = s->standby ? s->each + standby_of(h) : slots ? s->each : 0;
        l->list[h] = (Site){.here = s->here && h == 0, .open = true, .slots = limit, .limit = limit};
    }
    l->sites = (Sites){.list = l->list, .n = s->hosts, .from = SITES_OF_FILE};
    l->wanted = s->all ? s->hosts * s->each : 0;
    l->keepalive = chance(0.7);
    l->round_until = INFINITY;
    l->s = (LaunchState){.sites = l->list, .n_hosts = s->hosts, .wanted = l->wanted, .max_restarts = s->restarts};
    l->s.standby = s->standby > 0;
    l->s.times = times();
    l->s.phase = PHASE_START;
    l->stage = STAGE_PAUSE;
}

void launcher_close(void)
{
    if (w.launcher) launch_state_free(&w.launcher->launcher->s);
}

const Behaviour launcher_behaviour = {.hears = launcher_hears, .time = launcher_time, .signalled = launcher_signalled};
