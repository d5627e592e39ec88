/* What must hold of the launcher, in terms of what has really befallen its ranks, agents and hosts. */
#include "launching.h"

#define NOTICE_S 1.0 /* from a rank's end to the launcher's knowing */

static Proc *agent_of(const Launcher *l, int host) { return l->remotes[host].agent; }

static const Agent *agent_of_rank(const Proc *rank) { return rank->parent->agent; }

/* The launcher and the agent of this host have always heard each other, as far as they were asked to. */
static bool in_reach(const Launcher *l, int host)
{
    const Proc *agent = agent_of(l, host);
    return agent && agent->life == PROC_RUNS && !troubled(l->p, agent) && !l->s.hosts[host].lost;
}

static bool ever_froze(const Proc *p) { return p->life == PROC_FROZEN || p->frozen_s > 0; }

static bool hangs(int rank)
{
    for (int i = 0; i < w.schedule.n_faults; i++) {
        const Fault *f = &w.schedule.faults[i];
        if (f->struck && f->kind == FAULT_HANG && f->target == rank) return true;
    }
    return false;
}

/* Neither by its agent, nor with it. */
static bool killed_by_fault(const Proc *rank)
{
    const Proc *agent = rank->parent;
    bool with_agent = agent->life == PROC_DEAD && agent->since <= rank->since;
    bool by_agent = agent->agent && rank->since >= agent_of_rank(rank)->killed_at;
    return rank->life == PROC_DEAD && rank->signal == SIGKILL && !with_agent && !by_agent;
}

bool launcher_is_stuck(const Launcher *l)
{
    bool frozen = false, alive = false;
    for (int i = 0; i < l->s.n_ranks; i++) {
        const Proc *p = w.ranks[i];
        if (hangs(i)) return true;
        frozen = frozen || (p && p->life == PROC_FROZEN);
        alive = alive || proc_runs(p);
    }
    return frozen && !alive;
}

/* ---- events ---- */

/* A rank's end is told as it was, and soon. */
static void check_end(const Launcher *l, const LaunchEvent *e)
{
    const Proc *p = w.ranks[e->rank];
    must(p && p->life == PROC_DEAD, "rank %d has not ended, but the launcher hears so", e->rank);
    must(p->code == e->code && p->signal == e->number, "the launcher hears of another end of rank %d", e->rank);
    if (troubled(l->p, p->parent)) return;
    must(w.now <= p->since + NOTICE_S, "the launcher hears of rank %d's end after %g s", e->rank, w.now - p->since);
}

void launcher_notes(Launcher *l, const LaunchEvent *e)
{
    const Host *host = l->s.hosts && e->kind == LAUNCH_GONE ? &l->s.hosts[e->host] : NULL;
    bool loss = host && host->n_ranks > 0 && !host->lost, stop = false;
    if (e->kind == LAUNCH_END || e->kind == LAUNCH_STANDS) {
        check_end(l, e);
        trace(l->p, "hears that rank %d has ended with %d, signal %d", e->rank, e->code, e->number);
        stop = !e->number && e->code == status_exit_code(E_STOPPED);
        loss = !stop && (e->number || e->code);
    }
    if (e->kind == LAUNCH_REPORT)
        trace(l->p, "hears report %d of rank %d about %d%s", e->report, e->rank, e->about, e->silent ? ", silent" : "");
    if (e->kind == LAUNCH_REPORT && e->report == REPORT_SAVED) l->first_saved = fmin(l->first_saved, w.now);
    if (e->kind == LAUNCH_REPORT && e->report == REPORT_MET) {
        if (w.schedule.standby && w.starts > 1 && l->met_at == INFINITY) standby_check_met(l);
        l->met_at = fmin(l->met_at, w.now);
    }
    if (e->kind == LAUNCH_SIGNAL) {
        trace(l->p, "gets signal %d", e->number);
        stop = e->number != SIGTSTP && e->number != SIGCONT;
        l->interrupts += e->number == SIGINT;
    }
    if (loss) l->first_loss = fmin(l->first_loss, w.now);
    if (stop) l->first_stop = fmin(l->first_stop, w.now);
}

/* ---- actions ---- */

/* A rank that others call frozen is killed when no more of them end; later, where it may only be out of their reach, or
   may have to save because they could not. */
static void check_kill_of_frozen(const Launcher *l, int rank)
{
    const LaunchState *s = &l->s;
    const Rank *r = &s->ranks[rank];
    const Host *host = &s->hosts[w.ranks[rank]->host];
    must(w.now >= s->last_end + 2, "rank %d is killed as others still end", rank);
    must(!r->aware || l->first_saved < INFINITY || w.now >= s->last_end + s->times.saved,
         "rank %d is killed, which may go on and save", rank);
    if (r->aware || r->stuck) return;
    must(host->heard >= r->silent_at + LAUNCH_SIGN_S && w.now >= r->silent_at + LAUNCH_SIGN_S + 2,
         "rank %d is killed, and may only be out of reach", rank);
}

/* Nobody is killed who lives, and may still save, before the documented times. */
static void check_kill(const Launcher *l)
{
    const LaunchTimes *t = &l->s.times;
    bool due = w.now >= l->first_loss + t->notice + t->save || w.now >= l->first_stop + t->stop || l->interrupts > 1 ||
               w.now >= l->first_saved + t->saved;
    bool unmet = l->met_at == INFINITY && w.now >= l->first_loss + t->notice + t->saved;
    for (int i = 0; i < l->s.n_ranks && !due && !unmet; i++) {
        const Proc *p = w.ranks[i];
        if (!p || p->life == PROC_DEAD || l->s.ranks[i].ended || l->s.hosts[p->host].lost) continue;
        check_kill_of_frozen(l, i);
        if (l->s.ranks[i].led) continue; /* others could not reach it while it led their save */
        if (!proc_runs(p) || hangs(i) || ever_froze(p) || !in_reach(l, p->host)) continue;
        sim_fail("rank %d is killed, which lives and may save; the first loss was at %g", i, l->first_loss);
    }
}

/* A rank that could say what it knows, and could always do so. */
static const Proc *find_witness(const Launcher *l)
{
    for (int i = 0; i < l->s.n_ranks; i++) {
        const Proc *p = w.ranks[i];
        if (proc_runs(p) && !ever_froze(p) && !hangs(i) && in_reach(l, p->host)) return p;
    }
    return NULL;
}

static bool some_aware(const LaunchState *s)
{
    for (int i = 0; i < s->n_ranks; i++)
        if (s->ranks[i].aware) return true;
    return false;
}

/* That a rank is frozen is known soon, where another one is there that can say so. */
static void check_known(const Launcher *l)
{
    const LaunchState *s = &l->s;
    const Proc *witness = w.kinds[FAULT_FREEZE] && s->phase == PHASE_RUNS && s->met ? find_witness(l) : NULL;
    if (!witness || s->stop_signal || fmin(fmin(s->lost_at, s->failed_at), s->last_end) < INFINITY) return;
    if (some_aware(s)) return;
    for (int i = 0; i < s->n_ranks; i++) {
        const Proc *p = w.ranks[i];
        if (!p || p->life != PROC_FROZEN || is_cut(p->host, witness->host)) continue;
        if (rank_ends(p)) continue; /* it may have left in order */
        double touch = fmax(fmax(p->since, l->met_at), w.healed[p->host][witness->host]);
        must(w.now <= touch + w.schedule.timeout + 5, "rank %d is frozen since %g, and the launcher does not know", i,
             p->since);
    }
}

void launcher_check_action(Launcher *l, const LaunchAction *a)
{
    if (a->kind == LAUNCH_DO_LOSE && l->s.hosts[a->number].n_ranks > 0) l->first_loss = fmin(l->first_loss, w.now);
    if (a->kind == LAUNCH_DO_KILL) check_kill(l);
    if (a->kind == LAUNCH_DO_SIGNAL && a->number == SIGTERM) {
        bool told = w.kinds[FAULT_SIGNAL_LAUNCHER] || w.kinds[FAULT_SCHEDULER] || l->impatient;
        must(!l->asked || told, "ranks are asked to end again");
        l->asked = true;
    }
    if (a->kind == LAUNCH_DO_BEAT) check_known(l);
}

/* ---- times ---- */

void launcher_check_time(const Launcher *l)
{
    const LaunchState *s = &l->s;
    const LaunchTimes *t = &s->times;
    double most = fmin(l->first_loss + t->notice + t->save, l->first_stop + t->stop);
    if (s->phase == PHASE_RUNS && w.now > l->first_loss + t->notice + 1e-6)
        must(l->asked, "ranks are not asked to end, though one is lost");
    if (s->phase != PHASE_RUNS || w.now <= most + 1e-6) return;
    must(s->killed_at < INFINITY, "ranks are not killed in time");
    most = fmax(fmax(most, l->p->thawed), w.disturbed);
    must(w.now <= most + t->silence + 2 * LAUNCH_SIGN_S + 1 + 2 * w.schedule.delay, "start %d has not ended in time",
         w.starts);
}

/* ---- the verdict ---- */

static bool was_cut(const Launcher *l, int host)
{
    for (int h = 0; h < l->s.n_hosts; h++)
        if (h != host && l->s.hosts[h].n_ranks > 0 && (w.cut[host][h] || w.healed[host][h] >= l->s.begun)) return true;
    return false;
}

/* All cuts were of this one host from all others. -1: else. */
static int only_cut(void)
{
    int host = -1;
    for (int i = 0; i < w.schedule.n_faults; i++) {
        const Fault *f = &w.schedule.faults[i];
        if (!f->struck || f->kind != FAULT_CUT) continue;
        if (f->other >= 0 || (host >= 0 && host != f->target)) return -1;
        host = f->target;
    }
    return host;
}

/* The side of the launcher's host goes on, else the larger one, or that of rank 0. */
static bool goes_on(const Launcher *l, int far, int host)
{
    int ranks = far < l->s.n_hosts ? l->s.hosts[far].n_ranks : 0, rest = l->s.n_ranks - ranks;
    bool far_goes_on = ranks != rest ? ranks > rest : far == launch_host_of(&l->s, 0);
    if (w.schedule.here && l->s.hosts[0].n_ranks > 0) far_goes_on = far == 0;
    return far_goes_on == (host == far);
}

/* The first rank that a signal has ended; -1: none. */
static int first_killed(const Launcher *l)
{
    const Rank *ranks = l->s.ranks;
    int first = -1;
    for (int i = 0; i < l->s.n_ranks; i++)
        if (ranks[i].ended && ranks[i].signal && (first < 0 || ranks[i].when < ranks[first].when)) first = i;
    return first;
}

static void check_cut_off(const Launcher *l, int host)
{
    bool known = true; /* every rank has said what it knows, and none froze besides */
    int far = only_cut(), killed = first_killed(l);
    must(killed < 0 || launch_host_of(&l->s, killed) == host, "host %d is blamed for the end of rank %d", host, killed);
    int froze = 0;
    for (int i = 0; i < l->s.n_ranks; i++) froze += w.ranks[i] && ever_froze(w.ranks[i]);
    /* Or it froze as others connected, or several froze in turn, and each missed another one. */
    bool missed = was_cut(l, host) || froze > 1 || (froze && l->met_at == INFINITY);
    must(missed, "host %d is blamed as cut off, and never was", host);
    must(!l->list[host].here, "the launcher's own host is blamed as cut off");
    for (int i = 0; i < l->s.n_ranks; i++)
        known = known && l->s.ranks[i].aware && w.ranks[i] && !ever_froze(w.ranks[i]);
    if (known && far >= 0) must(!goes_on(l, far, host), "host %d is blamed, on the side that goes on", host);
}

static void check_lost_host(const Launcher *l, int host)
{
    const Proc *agent = agent_of(l, host);
    bool lost = !agent || agent->life != PROC_RUNS || troubled(l->p, agent);
    must(lost, "host %d is blamed, whose agent lives and was always in reach", host);
}

/* A rank that a signal ended. */
static void check_killed_rank(const Launcher *l, int rank)
{
    const Rank *r = &l->s.ranks[rank];
    const Proc *p = w.ranks[rank];
    bool late = rank_killed_late(&l->s, r), reach = in_reach(l, p->host);
    bool hidden = r->led && was_cut(l, p->host); /* a cut while it led the save looks the same to the others */
    if (late && rank_is_frozen(r) && reach)
        must(ever_froze(p) || hangs(rank) || hidden, "rank %d is called frozen, and never was", rank);
    if (!late)
        must(killed_by_fault(p) || l->s.terminated || w.kinds[FAULT_SIGNAL] || w.kinds[FAULT_SCHEDULER] || !reach,
             "rank %d is called killed, and nobody did it", rank);
}

static void check_beside(const Launcher *l)
{
    for (int rank = -1; (rank = launch_lost_beside(&l->s, rank)) >= 0;) {
        const Proc *p = w.ranks[rank];
        must(l->s.ranks[l->s.verdict.rank].signal, "rank %d is blamed beside rank %d, which no signal has ended", rank,
             l->s.verdict.rank);
        must(killed_by_fault(p) || ever_froze(p) || p->signal != SIGKILL || !in_reach(l, p->host),
             "rank %d is blamed besides, and was neither killed nor frozen", rank);
    }
}

/* Ranks that are blamed must have had something happen to them. */
static void check_rank(const Launcher *l, int rank)
{
    const Rank *r = &l->s.ranks[rank];
    const Proc *p = w.ranks[rank];
    if (r->signal) check_killed_rank(l, rank);
    if (!r->signal && r->code == 77 && r->silent_at < INFINITY)
        must(ever_froze(p) || w.kinds[FAULT_CUT] || w.kinds[FAULT_HOST], "rank %d is said to have been silent", rank);
}

/* A failure is never hidden, nor by a stop; a killed rank is named where nothing else comes before it. */
static void check_complete(const Launcher *l)
{
    const Verdict *v = &l->s.verdict;
    bool lost = false;
    for (int h = 0; h < l->s.n_hosts; h++) lost = lost || (l->s.hosts[h].lost && l->s.hosts[h].n_ranks > 0);
    for (int i = 0; i < l->s.n_ranks; i++) {
        const Rank *r = &l->s.ranks[i];
        bool failed = r->ended && !r->signal && launch_is_failure(r->code);
        if (failed) must(v->code == r->code || v->code == 130, "rank %d's failure is hidden by %d", i, v->code);
        lost = lost || failed;
    }
    for (int i = 0; i < l->s.n_ranks && !lost; i++) {
        const Rank *r = &l->s.ranks[i];
        if (!r->ended || r->when > l->s.killed_at || !killed_by_fault(w.ranks[i])) continue;
        must(v->cause == CAUSE_RANK && l->s.ranks[v->rank].signal && l->s.ranks[v->rank].when <= r->when,
             "rank %d was killed, and another one is blamed", i);
    }
}

/* All ranks lost others, and none died, froze or failed: some were out of reach of each other. */
static void check_apart(const Launcher *l)
{
    const Verdict *v = &l->s.verdict;
    bool apart = l->s.met && !l->s.stop_signal;
    for (int i = 0; i < l->s.n_ranks; i++) {
        const Rank *r = &l->s.ranks[i];
        apart = apart && r->ended && !r->signal && r->code == 77 && r->aware && !ever_froze(w.ranks[i]);
    }
    bool named = v->rank < 0 || l->s.ranks[v->rank].silent_at < INFINITY || w.kinds[FAULT_HANG]; /* or: was late */
    if (apart) must(named, "hosts did not reach each other, and rank %d is blamed for its end", v->rank);
}

static bool struck_any(const FaultKind *kinds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (w.kinds[kinds[i]]) return true;
    return false;
}
#define struck(...) struck_any((const FaultKind[]){__VA_ARGS__}, sizeof((FaultKind[]){__VA_ARGS__}) / sizeof(FaultKind))

void launcher_check_verdict(const Launcher *l)
{
    const Verdict *v = &l->s.verdict;
    bool quiet = w.disturbed == 0;
    for (int i = 0; i < N_FAULT_KINDS; i++) quiet = quiet && !w.kinds[i];
    if (quiet) must(v->cause == CAUSE_NONE && v->code == 0, "cause %d and code %d without a fault", v->cause, v->code);
    if (l->impatient) return;
    if (v->cause == CAUSE_CUT_OFF) check_cut_off(l, v->host);
    if (v->cause == CAUSE_HOST) check_lost_host(l, v->host);
    if (v->cause == CAUSE_RANK) check_rank(l, v->rank);
    check_beside(l);
    check_complete(l);
    check_apart(l);
}

/* ---- the end of the job ---- */

static void check_success(const Launcher *l)
{
    for (int i = 0; i < l->s.n_ranks; i++)
        must(w.ranks[i] && w.ranks[i]->life == PROC_DEAD && w.ranks[i]->code == 0 && !w.ranks[i]->signal,
             "the job is done, but rank %d is not", i);
    must(disk_newest(0) == w.schedule.steps, "the job is done, and the newest checkpoint is of step %" PRId64,
         disk_newest(0));
}

/* Ranks were suspended for longer than any exchange may take. */
static bool were_suspended(void)
{
    for (int i = 0; i < w.n_procs; i++)
        if (w.procs[i]->kind == PROC_RANK && w.procs[i]->frozen_s >= 20 * w.schedule.timeout) return true;
    return false;
}

/* Only what has happened makes a job end with a code (docs/cluster.md). */
void launcher_check_code(const Launcher *l, int code)
{
    bool signals = struck(FAULT_SIGNAL, FAULT_SIGNAL_LAUNCHER, FAULT_SCHEDULER) || l->impatient;
    bool silent = struck(FAULT_FREEZE_LAUNCHER, FAULT_CUT); /* agents have their ranks save and end */
    switch (code) {
    case 0:
        check_success(l);
        break;
    case 1: /* or ranks of an earlier start still have the folder */
        must(struck(FAULT_FAIL, FAULT_DESERT, FAULT_FULL) || w.starts > 1, "the job fails, and nothing did");
        break;
    case 75: /* it was stopped, or ranks of an earlier start still have the folder */
        must(signals || silent || w.starts > 1, "the job is stopped, and nobody asked for it");
        break;
    case 77:
        must(struck(FAULT_KILL, FAULT_FREEZE, FAULT_FAIL, FAULT_DESERT, FAULT_HANG, FAULT_SIGNAL, FAULT_KILL_AGENT,
                    FAULT_FREEZE_AGENT, FAULT_HOST, FAULT_CUT, FAULT_FREEZE_LAUNCHER, FAULT_SCHEDULER, FAULT_SLOW) ||
                 were_suspended(),
             "the job lost something, and nothing was");
        break;
    case 130:
        must(signals, "the job was interrupted by nobody");
        break;
    default:
        sim_fail("the job ends with %d, which is not documented", code);
    }
}

/* A process that nobody is left to end: it is frozen, or the frozen agent's, or suspended with a launcher whose host is
   gone. */
static bool is_out_of_reach(const Proc *p)
{
    const Proc *agent = p->kind >= PROC_RANK ? p->parent : p;
    bool asleep = agent->kind == PROC_AGENT && agent->agent && agent->agent->state.asleep;
    return agent->life == PROC_FROZEN || asleep;
}

void launcher_check_end(void)
{
    must(w.launcher->life == PROC_DEAD, "the launcher has not ended");
    for (int i = 0; i < w.n_procs; i++) {
        const Proc *p = w.procs[i];
        if (p->life == PROC_DEAD || is_out_of_reach(p)) continue;
        sim_fail("%s %d of start %d is left", p->kind >= PROC_RANK ? "rank" : "agent",
                 p->kind >= PROC_RANK ? p->rank : p->host, p->start);
    }
}
