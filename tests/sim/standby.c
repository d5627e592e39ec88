/* Live standby: processes without a rank, which take the ranks of a later start; and what must hold of them. They begin
   with the job, or are those of survivors that have saved. */
#include "launching.h"

#define TOGETHER_S 0.3 /* from a start to its meeting, where no process and no agent had to begin */

/* ---- processes ---- */

Proc *proc_go_on(Proc *p, ProcKind kind, int start, int rank)
{
    must(p->life != PROC_DEAD, "a process takes rank %d of start %d, and has ended or has a rank", rank, start);
    Proc *q = proc_begin(kind, p->host, start, rank, p->parent);
    q->born = p->born;
    q->life = p->life;
    q->since = p->life == PROC_FROZEN ? p->since : w.now;
    q->freezes = p->freezes;
    q->n_signals = p->n_signals;
    memcpy(q->signals, p->signals, sizeof q->signals);
    p->again = q;
    p->told = true;
    proc_end(p, status_exit_code(E_PEER), 0);
    return q;
}

Proc *proc_last(Proc *p)
{
    while (p && p->again) p = p->again;
    return p;
}

void standby_stand(Proc *p)
{
    say(p, p->parent, (Letter){.word = SAY_STANDS, .rank = p->rank});
    proc_go_on(p, PROC_IDLE, p->start, p->rank)->code = status_exit_code(E_PEER);
}

/* It has no lines, so it hears nothing. */
static void idle_time(Proc *p) { (void)p; }

static void idle_signalled(Proc *p, int number)
{
    if (number != SIGCONT) proc_end(p, p->code, 0);
}

const Behaviour idle_behaviour = {.time = idle_time, .signalled = idle_signalled};

/* ---- those of an agent ---- */

int standby_of(int host) { return (w.schedule.standby + w.schedule.hosts - 1 - host) / w.schedule.hosts; }

Proc *standby_target(int number)
{
    int idle = number - w.schedule.hosts * w.schedule.each;
    if (idle >= 0) return idle < w.schedule.standby ? w.idle[idle] : NULL;
    return number < w.n_ranks ? w.ranks[number] : NULL;
}

void standby_begin(Proc *agent)
{
    Agent *a = agent->agent;
    for (int i = 0; i < standby_of(agent->host); i++) {
        int number = agent->host + i * w.schedule.hosts;
        int rank = w.schedule.hosts * w.schedule.each + number;
        w.idle[number] = a->idle[a->n_idle++] = proc_begin(PROC_IDLE, agent->host, agent->start, rank, agent);
    }
}

Proc *standby_take(Agent *a)
{
    Proc **best = NULL;
    for (Proc **p = a->idle; p < a->idle + a->n_idle; p++)
        if ((*p)->life != PROC_DEAD && (!best || (*p)->code > (*best)->code)) best = p;
    if (!best) return NULL;
    Proc *taken = *best;
    *best = a->idle[--a->n_idle];
    return taken;
}

/* ---- what must hold ---- */

void standby_check_met(const Launcher *l)
{
    bool fresh[SIM_HOSTS] = {0}, any = false;
    int waited = 0;
    for (int r = 0; r < w.n_ranks; r++) {
        const Proc *p = w.ranks[r];
        any = any || p->born == w.starts || p->parent->begun >= l->s.begun || p->life == PROC_FROZEN || p->frozen_s > 0;
        fresh[p->host] = fresh[p->host] || p->born == w.starts;
        waited += p->born < w.starts;
    }
    for (int h = 0; h < l->s.n_hosts; h++) any = any || l->list[h].lost_in > l->s.restarts; /* it did not answer */
    for (int i = 0; i < w.n_procs; i++) {
        const Proc *p = w.procs[i];
        if (p->kind != PROC_IDLE || !proc_runs(p) || p->start == w.starts || troubled(l->p, p->parent)) continue;
        must(!fresh[p->host], "a process of start %d waits on host %d, where another one has begun for start %d",
             p->start, p->host, w.starts);
    }
    story("%d of %d ranks waited", waited, w.n_ranks);
    bool calm = w.disturbed < l->s.begun && l->p->frozen_s == 0 && !w.kinds[FAULT_CUT];
    if (!any && calm)
        must(w.now <= l->s.begun + TOGETHER_S + 10 * w.schedule.delay,
             "start %d meets after %g s, without new processes", w.starts, w.now - l->s.begun);
}

void standby_check_end(void)
{
    const Proc *launcher = w.launcher;
    double silence = fmax(w.schedule.timeout, 10);
    for (int i = 0; i < w.n_procs && launcher->frozen_s == 0; i++) { /* agents may be suspended with it */
        const Proc *p = w.procs[i], *agent = p->parent;
        if (p->kind != PROC_IDLE || p->life != PROC_DEAD || agent->frozen_s > 0 || agent->life == PROC_FROZEN) continue;
        bool far = troubled(launcher, agent) || w.kinds[FAULT_HOST];
        double last = fmax(launcher->since + (far ? silence + 1 : 1), p->begun + 1);
        if (p->frozen_s > 0) last += GRACE_S + WIRE_BEAT_S;
        must(p->since <= last, "a process without a rank ends %g s behind its launcher", p->since - launcher->since);
    }
}
