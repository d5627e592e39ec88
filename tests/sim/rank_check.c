/* What must hold between the ranks of a start: of verdicts, of decisions, and of the time in which they are known. */
#include "rank.h"

static bool in_touch(const Proc *p, const Proc *q, double *since)
{
    *since = fmax(p->thawed, w.healed[p->host][q->host]);
    return !is_cut(p->host, q->host);
}

/* A rank that counts as silent was silent for nearly the timeout; the observer's own freezes do not count. */
void check_silent(const Trainer *t, int rank)
{
    const Proc *p = start_rank(t->proc->start, rank);
    if (t->watch.loss.rank == rank && t->watch.loss.reason == LOSS_SILENT) return; /* as another rank has said */
    must(silent_s(p, t->proc) >= w.schedule.timeout - 3 * t->watch.beat_s - w.schedule.delay,
         "rank %d counts rank %d as silent, which was so for %g s", t->rank, rank, silent_s(p, t->proc));
}

/* A verdict is true: its rank has ended, has left, or may have been silent for nearly the timeout. */
void check_verdict(const Trainer *t)
{
    const Loss *l = &t->watch.loss;
    const Proc *p = start_rank(t->proc->start, l->rank), *by = start_rank(t->proc->start, l->by);
    double least = w.schedule.timeout - 3 * t->watch.beat_s - w.schedule.delay;
    bool quiet = true;
    trace(t->proc, "rank %d is lost: it %s, says rank %d", l->rank, loss_text(l->reason), l->by);
    for (int k = 0; k < N_FAULT_KINDS; k++) quiet = quiet && !w.kinds[k];
    must(!quiet, "rank %d is lost, and nothing had happened", l->rank);
    if (l->reason == LOSS_CLOSED) /* also where it leaves before the two have proved who they are */
        must(p->life == PROC_DEAD || p->trainer->leaving, "rank %d is blamed as ended, and lives", l->rank);
    if (l->reason == LOSS_LEFT)
        must(p->life == PROC_DEAD || p->trainer->leaving, "rank %d is blamed as one that left, and has not", l->rank);
    bool suspended = t->proc->frozen_s >= 20 * w.schedule.timeout; /* Gloo's limit passes meanwhile */
    if (l->reason == LOSS_LATE && l->by == t->rank && !suspended)
        must(p->trainer->exchanges < t->exchanges || last_exchange(t)->come == t->size,
             "rank %d is blamed as late, and has come", l->rank);
    if (l->reason == LOSS_SILENT)
        must(silent_s(p, by) >= least, "rank %d is blamed as silent, and was in touch with rank %d for all but %g s",
             l->rank, l->by, silent_s(p, by));
    if (l->reason == LOSS_SILENT && l->by == t->rank && t->watch.peers[l->rank].life == PEER_THERE)
        must(rank_peer(t, l->rank) != PEER_WELL, "rank %d counts rank %d as silent, and waits for it", t->rank,
             l->rank);
}

static void check_decisions(Trainer *t)
{
    for (; t->counted < t->votes.met; t->counted++) {
        Meeting *m = &t->start->meetings[t->counted];
        must(t->votes.met == t->counted + 1, "rank %d leaves out a decision", t->rank);
        must(t->counted < t->start->n_meetings && m->come == t->size, "a meeting is decided without all ranks");
        if (!m->known) m->decided = t->votes.decided;
        m->known = true;
        must(m->decided == t->votes.decided, "rank %d acts on votes %x, another one on %x", t->rank, t->votes.decided,
             m->decided);
        uint32_t lacks = m->voted & ~m->decided; /* a later signal takes the place of one before */
        must(!(lacks & ~VOTES_OF_SIGNALS), "votes %x are decided of %x", m->decided, m->voted);
        must(!(lacks & VOTES_OF_SIGNALS) || (m->decided & VOTES_OF_SIGNALS), "a signal is forgotten");
        must((m->decided & ~(m->voted | t->start->signals)) == 0, "votes %x are decided of %x", m->decided, m->voted);
        const int stride = t->size > 8 ? t->size - 1 : 1;
        for (int r = 0; r < t->size; r += stride)
            must(fabs(t->votes.all_own_s[r] - (double)(t->counted + 1) * (r + 1)) < 1e-9,
                 "rank %d has other seconds of rank %d than it said", t->rank, r);
    }
}

/* A rank that has left without the present exchange, or the present meeting, is not waited for. */
static void check_left(const Trainer *t, const Proc *q, double touch)
{
    const Trainer *its = q->trainer;
    double since = fmax(fmax(q->since, touch), fmax(t->began, t->hung)), soon = 1 + 2 * w.schedule.delay;
    bool counts = t->rank == 0 || q->rank == 0; /* others may have left with a decision that is on its way */
    if (t->watch.peers[q->rank].life != PEER_LEFT || !its) return;
    if (t->wait == WAITS_MEETING && counts && its->votes.came < t->votes.came)
        must(w.now <= since + soon, "rank %d waits for a meeting without rank %d, which has left", t->rank, q->rank);
    if (t->wait == WAITS_EXCHANGE && its->exchanged < t->exchanges)
        must(w.now <= since + 5 + soon, "rank %d waits for bytes of rank %d, which has left", t->rank, q->rank);
}

/* In touch, a rank knows of a dead one, of a verdict, and of a signal within a second, of a frozen one within the
   timeout. Called before a rank learns of a loss, and with its signs of life. */
void check_times(const Trainer *t)
{
    const Proc *p = t->proc;
    double soon = 1 + 2 * w.schedule.delay, late = w.schedule.timeout + 2 * w.schedule.delay + 0.1, touch;
    if (!t->met || t->judged || t->leaving || t->votes.end != VOTES_GOING) return;
    for (int r = 0; r < t->size; r++) {
        const Proc *q = start_rank(p->start, r);
        if (r != t->rank && q->life == PROC_DEAD && !q->vanished && in_touch(p, q, &touch)) check_left(t, q, touch);
        if (r == t->rank || t->watch.peers[r].life == PEER_LEFT || !in_touch(p, q, &touch)) continue;
        bool closed = q->life == PROC_DEAD && !q->vanished;
        if (closed)
            must(w.now <= fmax(q->since, touch) + soon, "rank %d does not know that rank %d has ended", p->rank, r);
        if (q->life == PROC_FROZEN)
            must(w.now <= fmax(q->since, touch) + late, "rank %d does not know that rank %d is frozen", p->rank, r);
        const Trainer *its = q->trainer;
        if (its->judged && !its->leaving && q->life == PROC_RUNS && q->thawed < its->judged_at)
            must(w.now <= fmax(its->judged_at, touch) + soon, "rank %d does not know of the loss that rank %d knows of",
                 p->rank, r);
        if (t->rank == 0 && q->life == PROC_RUNS && q->thawed < its->signal_at)
            must(t->votes.hurry || w.now <= fmax(its->signal_at, touch) + soon,
                 "rank 0 does not know that rank %d has a signal", r);
        if (r == 0 && q->life == PROC_RUNS && q->thawed < its->hurry_at)
            must(t->votes.hurry || w.now <= fmax(its->hurry_at, touch) + soon, "rank %d does not know of a signal",
                 p->rank);
    }
}

void rank_check(Proc *p)
{
    Trainer *t = p->trainer;
    check_decisions(t);
    must(t->rank || t->signal_at == INFINITY || t->votes.hurry, "rank 0 has a signal, and does not hurry");
    must(t->start->signals || !t->votes.hurry, "rank %d hurries without a signal", t->rank);
    if (t->votes.hurry && t->hurry_at == INFINITY) t->hurry_at = w.now;
}
