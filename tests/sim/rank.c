/* A rank's watch and votes, as src/comm/watch/watch.c and src/train/ranks/ranks.c drive them; its exchanges, as
   src/comm/mesh/collectives.c ends them. */
#include "rank.h"

#define BEAT_S 2.0 /* watch.c */

/* ---- waits ---- */

void wait_for(Trainer *t, Wait what, double until, void (*next)(Trainer *t))
{
    t->wait = what;
    t->due = until;
    t->next = next;
}

void wait_until(Trainer *t, double at, void (*next)(Trainer *t)) { wait_for(t, WAITS_TIME, at, next); }

bool comes_to(Trainer *t, Point at, int number, void (*again)(Trainer *t))
{
    bool ended = t->ends;
    wait_until(t, w.now, again);
    return point(t->proc, at, number) || t->ends != ended;
}

bool rank_ends(const Proc *p) { return p->trainer && p->trainer->ends; }

void report(Trainer *t, Report what, int about, bool silent)
{
    if (t->proc->parent)
        say(t->proc, t->proc->parent,
            (Letter){.word = SAY_REPORT, .rank = t->rank, .report = what, .about = about, .silent = silent});
}

void say_to_all(Trainer *t, Letter l)
{
    for (int r = 0; r < t->size; r++)
        if (t->open[r]) say(t->proc, start_rank(t->proc->start, r), l);
}

PeerState rank_peer(const Trainer *t, int rank)
{
    if (!t->watching) return PEER_WELL;
    PeerState is = watch_state_peer(&t->watch, rank, 0, w.now);
    if (is == PEER_SILENT) check_silent(t, rank);
    return is;
}

static void report_silent(Trainer *t)
{
    for (int r = 0; r < t->size; r++)
        if (watch_state_peer(&t->watch, r, 2, w.now) == PEER_SILENT) report(t, REPORT_SILENT, r, false);
}

void report_loss(Trainer *t)
{
    const Loss *l = &t->watch.loss;
    if (l->reason == LOSS_SILENT) report_silent(t);
    report(t, REPORT_LOST, l->rank, l->reason == LOSS_SILENT);
}

/* ---- the machines' actions ---- */

static void do_watch_order(Trainer *t, WatchOrder o)
{
    Letter l = {.word = o.what == WATCH_SEND_BEAT ? SAY_BEAT : SAY_LOSS, .loss = t->watch.loss};
    l.number = (int)t->exchanges;
    t->aborted = t->aborted || o.what == WATCH_ABORT;
    if (o.what == WATCH_ABORT) return; /* a thread that waits looks for the verdict itself */
    if (o.to < 0)
        say_to_all(t, l);
    else if (t->open[o.to])
        say(t->proc, start_rank(t->proc->start, o.to), l);
}

static void do_votes_action(Trainer *t, VotesAction what)
{
    Letter l = {.word = what == SEND_VOTE ? SAY_VOTE : SAY_DECISION, .votes = votes_message(&t->votes)};
    if (what == REPORT_LEFT) {
        watch_on(&t->watch,
                 &(WatchEvent){.kind = WATCH_FOUND, .loss = {votes_missing(&t->votes), LOSS_LEFT, t->rank, 0}}, w.now);
    } else if (what == SEND_VOTE) {
        if (t->open[0]) say(t->proc, start_rank(t->proc->start, 0), l);
    } else {
        l.size = (size_t)t->size * sizeof(double);
        l.data = sim_alloc(l.size);
        memcpy(l.data, t->votes.all_own_s, l.size);
        say_to_all(t, l);
    }
}

static void act(Trainer *t)
{
    while (t->watch.n_actions || t->votes.n_actions) {
        for (int i = 0; i < t->watch.n_actions; i++) do_watch_order(t, t->watch.actions[i]);
        t->watch.n_actions = 0;
        for (int i = 0; i < t->votes.n_actions; i++) do_votes_action(t, t->votes.actions[i]);
        t->votes.n_actions = 0;
    }
}

static void tell_votes(Trainer *t, VotesEvent e)
{
    votes_on(&t->votes, &e);
    act(t);
}

/* Behind each event of the watch: ranks.c's on_turn, and comm.c's abort_waits. */
static void heed_watch(Trainer *t)
{
    act(t);
    if (t->watch.loss.reason == LOSS_NONE || t->judged) return;
    check_times(t);
    must(t->aborted, "rank %d knows of a loss, and still waits", t->rank);
    t->judged = true;
    t->judged_at = w.now;
    check_verdict(t);
    tell_votes(t, (VotesEvent){.kind = VOTES_LOST});
    if (t->met && t->size > 1) report_loss(t);
}

static void tell_watch(Trainer *t, WatchEvent e)
{
    watch_on(&t->watch, &e, w.now);
    if (t->watch.n_actions || t->watch.loss.reason != LOSS_NONE) heed_watch(t);
    if (e.kind != WATCH_BYE) return;
    tell_votes(t, (VotesEvent){.kind = VOTES_LEFT, .rank = e.rank});
    heed_watch(t);
}

/* ---- connecting ---- */

static void admit(Trainer *t, int r)
{
    t->open[r] = true;
    if (r > t->rank) say(t->proc, start_rank(t->proc->start, r), (Letter){.word = SAY_CARD});
    tell_watch(t, (WatchEvent){.kind = WATCH_MET, .rank = r});
}

bool knows_all(const Trainer *t)
{
    for (int r = 0; r < t->size; r++)
        if (r != t->rank && !t->open[r] && t->watch.peers[r].life < PEER_LEFT) return false;
    return true;
}

static void connect_to(Trainer *t, int r)
{
    Proc *p = t->proc, *q = start_rank(p->start, r);
    if (q->life == PROC_DEAD && !is_cut(p->host, q->host) && !q->vanished) {
        tell_watch(t, (WatchEvent){.kind = p->host == q->host ? WATCH_CLOSED : WATCH_UNREACHED, .rank = r});
        return;
    }
    line_open(p, q);
    say(p, q, (Letter){.word = SAY_CARD});
}

/* Ranks of this host that have ended, and so will never connect. */
void look_for_ended(Trainer *t)
{
    for (int r = t->rank + 1; r < t->size && t->watch.loss.reason == LOSS_NONE; r++) {
        const Proc *q = start_rank(t->proc->start, r);
        if (!t->open[r] && t->watch.peers[r].life == PEER_ABSENT && q->host == t->proc->host && q->life == PROC_DEAD)
            tell_watch(t, (WatchEvent){.kind = WATCH_CLOSED, .rank = r});
    }
}

static void take_letter(Trainer *t, const Letter *l);

void begin_watch(Trainer *t)
{
    size_t n = (size_t)t->size;
    t->watch = watch_state(t->rank, t->size, w.schedule.timeout, BEAT_S);
    t->votes = votes_new(t->rank, t->size);
    t->open = sim_alloc(n * sizeof *t->open);
    t->watching = true;
    for (int r = 0; r < t->rank; r++) connect_to(t, r);
    for (const Letter *l = t->early; l; l = l->next) take_letter(t, l);
    tell_watch(t, (WatchEvent){.kind = WATCH_TIME});
}

void leave_watch(Trainer *t)
{
    Proc *p = t->proc;
    t->leaving = true;
    if (t->met && t->judged) report_silent(t);
    tell_watch(t, (WatchEvent){.kind = WATCH_LEAVE});
    say_to_all(t, (Letter){.word = SAY_BYE});
    for (int r = 0; r < t->size; r++)
        if (r != t->rank) line_close(p, start_rank(p->start, r));
}

/* ---- meetings and exchanges ---- */

static void *grown(void *old, int64_t *n, int64_t need, size_t size)
{
    if (need <= *n) return old;
    void *grown = sim_alloc((size_t)(2 * need + 16) * size);
    if (*n) memcpy(grown, old, (size_t)*n * size);
    *n = 2 * need + 16;
    return grown;
}

static void end_meeting(Trainer *t)
{
    if (t->votes.met < t->votes.came)
        peer_lost(t);
    else
        t->met_next(t);
}

void meet(Trainer *t, void (*next)(Trainer *t))
{
    Start *s = t->start;
    int64_t k = t->votes.came;
    s->meetings = grown(s->meetings, &s->n_meetings, k + 1, sizeof *s->meetings);
    s->meetings[k].come++;
    s->meetings[k].voted |= t->votes.mine | t->votes.signals;
    t->met_next = next;
    t->began = w.now;
    wait_for(t, WAITS_MEETING, INFINITY, end_meeting);
    t->votes.own_s = (double)(k + 1) * (t->rank + 1);
    tell_votes(t, (VotesEvent){.kind = VOTES_COME});
    heed_watch(t);
}

Exchange *last_exchange(const Trainer *t) { return &t->start->exchanges[t->exchanges - 1]; }

/* Whether the bytes of all others have come. */
static bool is_whole(const Trainer *t)
{
    if (last_exchange(t)->ready > w.now || w.now < t->due) return false;
    if (w.disturbed <= 0) return true;
    for (int r = 0; r < t->size; r++) {
        const Proc *q = start_rank(t->proc->start, r);
        bool sends = q->life == PROC_RUNS || q->trainer->exchanged >= t->exchanges;
        if (r != t->rank && (!sends || is_cut(t->proc->host, q->host))) return false;
    }
    return true;
}

/* The end of an exchange's data connections shows which rank has left; the patience, which one is late. */
static void look_at_exchange(Trainer *t)
{
    double patience = 20 * w.schedule.timeout;
    Loss loss = {.by = t->rank, .rank = -1};
    for (int left = -1; loss.rank < 0 && (left = watch_state_left(&t->watch, left + 1)) >= 0;)
        if (trainer_of(t, left)->exchanged < t->exchanges) loss.rank = left, loss.reason = LOSS_LEFT;
    if (loss.rank < 0 && w.now >= t->began + patience) {
        loss = (Loss){watch_state_laggard(&t->watch, (uint64_t)t->exchanges), LOSS_LATE, t->rank, patience};
        if (loss.rank < 0) loss.rank = (t->rank + 1) % t->size;
    }
    if (loss.rank >= 0) tell_watch(t, (WatchEvent){.kind = WATCH_FOUND, .rank = t->rank, .loss = loss});
    if (w.now >= t->due) t->due = w.now + 0.25;
}

static bool exchange_ends(Trainer *t)
{
    if (t->exchanged == t->exchanges) return true;
    if (t->judged) return true;
    if (is_whole(t)) {
        t->exchanged = t->exchanges;
        return true;
    }
    look_at_exchange(t);
    return t->judged;
}

static void end_exchange(Trainer *t)
{
    if (t->exchanged < t->exchanges)
        peer_lost(t);
    else
        t->exchanged_next(t);
}

static void start_exchange(Trainer *t, Exchange *x)
{
    x->ready = w.now + uniform(0, w.schedule.delay / 10);
    for (int r = 0; r < t->size; r++) {
        Trainer *its = trainer_of(t, r);
        if (its->wait != WAITS_EXCHANGE || its->exchanges != t->exchanges) continue; /* it has given up */
        its->due = x->ready + uniform(0, w.schedule.delay / 10);
        proc_wake(its->proc, its->due);
    }
}

void exchange(Trainer *t, void (*next)(Trainer *t))
{
    Start *s = t->start;
    int64_t k = t->exchanges++;
    s->exchanges = grown(s->exchanges, &s->n_exchanges, k + 1, sizeof *s->exchanges);
    Exchange *x = &s->exchanges[k];
    if (!x->come) *x = (Exchange){.step = t->step, .ready = INFINITY};
    must(x->step == t->step, "rank %d comes to step %" PRId64 " with an exchange of step %" PRId64, t->rank, t->step,
         x->step);
    x->come++;
    if (!x->code) x->code = t->code;
    if (t->rank == 0) x->value = t->value;
    x->sum += t->share;
    t->began = w.now;
    t->code = 0;
    t->exchanged_next = next;
    wait_for(t, WAITS_EXCHANGE, w.now + 5, end_exchange);
    if (x->come == t->size) start_exchange(t, x);
}

static void end_all(Trainer *t) { t->all_next(t, last_exchange(t)->code); }

static void exchange_all(Trainer *t) { exchange(t, end_all); }

void all(Trainer *t, int code, void (*next)(Trainer *t, int code))
{
    t->code = code;
    t->all_next = next;
    meet(t, exchange_all);
}

/* ---- the rank's threads ---- */

static bool is_ready(Trainer *t)
{
    if (!proc_runs(t->proc) || w.now < t->hung) return false;
    switch (t->wait) {
    case WAITS_NOT:
        return false;
    case WAITS_TIME:
    case WAITS_TEAM:
        return w.now >= t->due;
    case WAITS_GO:
        return w.now >= t->due || t->signal;
    case WAITS_LINES:
        return w.now >= t->due || t->judged || knows_all(t);
    case WAITS_ROUND:
        return w.now >= t->due || t->judged || t->start->connected == t->size;
    case WAITS_MEETING:
        return t->votes.met >= t->votes.came || t->votes.end != VOTES_GOING;
    case WAITS_EXCHANGE:
        return exchange_ends(t);
    case WAITS_PART:
        return t->part == PART_NONE || t->part == PART_WRITTEN;
    case WAITS_SAVER:
        return t->saver == SAVER_IDLE;
    }
    return false;
}

static void go_on(Trainer *t)
{
    if (t->busy) return;
    t->busy = true;
    while (is_ready(t)) t->next(t);
    t->busy = false;
    if (!proc_runs(t->proc)) return;
    rank_check(t->proc);
    bool timed = t->wait != WAITS_NOT && t->due < INFINITY;
    double at = timed ? fmax(t->due, t->hung) : INFINITY;
    if (w.now < t->hung) at = fmin(at, t->hung);
    if (t->watching && !t->leaving) at = fmin(at, t->watch.wake);
    if (t->saver == SAVER_WRITES) at = fmin(at, t->saver_due);
    if (t->part == PART_BEGINS || t->part == PART_WRITES) at = fmin(at, t->part_due);
    proc_wake(t->proc, at);
}

/* After a freeze the main thread may go on before the watch does. */
static void go_on_first(Trainer *t)
{
    if (w.now <= t->proc->thawed && chance(0.5)) go_on(t);
}

static Start *start_of(const Proc *p)
{
    for (int r = 0; r < w.n_ranks; r++) {
        const Proc *q = w.ranks[r];
        if (q && q->start == p->start && q->trainer) return q->trainer->start;
    }
    Start *s = sim_alloc(sizeof *s);
    s->number = p->start;
    s->unreached = sim_alloc((size_t)(w.schedule.hosts * w.schedule.each) * sizeof *s->unreached);
    return s;
}

static void begin(Proc *p)
{
    Start *s = start_of(p);
    Trainer *t = p->trainer = sim_alloc(sizeof *t);
    *t = (Trainer){.proc = p,
                   .start = s,
                   .rank = p->rank,
                   .hung = -INFINITY,
                   .full = -INFINITY,
                   .wrong = -INFINITY,
                   .slow = -INFINITY,
                   .save_again = INFINITY};
    t->early_end = &t->early;
    t->team.mail_end = &t->team.mail;
    t->judged_at = t->signal_at = t->hurry_at = INFINITY;
    wait_until(t, p->born < p->start ? w.now : w.now + uniform(0.1, 0.5), come);
}

static void rank_time(Proc *p)
{
    if (!p->trainer) begin(p);
    Trainer *t = p->trainer;
    go_on_first(t);
    if (proc_runs(p) && t->watching && !t->leaving && w.now >= t->watch.wake) {
        tell_watch(t, (WatchEvent){.kind = WATCH_TIME, .rank = t->rank});
        check_times(t);
    }
    saver_turn(t);
    part_turn(t);
    go_on(t);
}

/* ---- letters and signals ---- */

static void take_letter(Trainer *t, const Letter *l)
{
    int r = l->from->rank;
    WatchEvent e = {.kind = WATCH_HEARD, .rank = r};
    if (l->word == SAY_CARD) {
        admit(t, r);
        return;
    }
    if (l->word == SAY_CLOSED) {
        t->open[r] = false;
        e.kind = WATCH_CLOSED;
    } else if (l->word == SAY_BYE) {
        t->open[r] = false;
        e.kind = WATCH_BYE;
    } else if (l->word == SAY_BEAT) {
        e.kind = WATCH_BEAT;
        e.exchanges = (uint64_t)l->number;
    } else if (l->word == SAY_LOSS) {
        e.kind = WATCH_NEWS;
        e.loss = l->loss;
    }
    tell_watch(t, e);
    VotesEvent v = {.kind = VOTES_VOTE, .rank = r, .message = &l->votes, .all_own_s = (const double *)(void *)l->data};
    if (l->word == SAY_DECISION) v.kind = VOTES_DECISION;
    if (l->word == SAY_ENDED) v.kind = VOTES_END;
    if (l->word == SAY_VOTE || l->word == SAY_DECISION || l->word == SAY_ENDED) {
        tell_votes(t, v);
        heed_watch(t);
    }
    if (l->word == SAY_SURVIVOR) survivor_hears(t, r, l->data, l->size);
}

static void take_go(Trainer *t, int ranks)
{
    if (t->wait != WAITS_GO) return;
    t->size = t->start->n = ranks;
    wait_until(t, w.now, connected);
}

static void rank_hears(Proc *p, const Letter *l)
{
    Trainer *t = p->trainer;
    if (t) go_on_first(t);
    if (!t || !proc_runs(p) || t->leaving) return;
    if (l->from->kind == PROC_LAUNCHER && (l->word == SAY_GO || l->word == SAY_CLOSED)) {
        take_go(t, l->word == SAY_GO ? l->number : 0);
    } else if (l->from->kind == PROC_RANK && !t->watching) {
        Letter *copy = sim_alloc(sizeof *copy);
        *copy = *l;
        copy->next = NULL;
        *t->early_end = copy;
        t->early_end = &copy->next;
        return;
    } else if (l->from->kind == PROC_RANK) {
        take_letter(t, l);
        /* A survivor that waits for mail looks again; a sign of life changes nothing for it. */
        if (t->wait == WAITS_TEAM && (l->word != SAY_BEAT || t->team.x.ranks[l->from->rank].gone)) t->due = w.now;
    }
    if (p->inbox && chance(0.5)) return; /* it reads on */
    go_on(t);
}

static void rank_signalled(Proc *p, int number)
{
    static const int of[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    Trainer *t = p->trainer;
    uint32_t vote = 0;
    for (int v = 0; v < 5; v++)
        if (of[v] == number) vote = 1u << v;
    if (!vote) return;
    if (!t || (number == SIGINT && ++t->interrupts > 1)) {
        proc_end(p, t ? 130 : 0, t ? 0 : number);
        return;
    }
    t->signal = number;
    t->start->signals |= vote;
    if (t->met && !t->leaving) { /* ranks.c opens the votes when all have met */
        if (t->signal_at == INFINITY) t->signal_at = w.now;
        tell_votes(t, (VotesEvent){.kind = VOTES_SIGNAL, .signal = vote});
        heed_watch(t);
    }
    go_on(t);
}

void trainer_struck(Proc *p, const Fault *f)
{
    Trainer *t = p->trainer;
    if (!t) return;
    if (f->kind == FAULT_FULL) {
        *(f->number ? &t->wrong : &t->full) = w.now + f->seconds;
    } else if (f->kind == FAULT_SLOW) {
        t->slow = w.now + f->seconds;
        t->slowness = f->number;
    } else if (f->kind == FAULT_HANG) {
        t->hung = w.now + f->seconds;
        t->team.freed = t->hung;
    } else if (!t->ends) {
        leave(t, f->kind == FAULT_FAIL ? 1 : -1);
    }
    go_on(t);
}

static void rank_child(Proc *p, Proc *child)
{
    (void)p;
    (void)child;
}

const Behaviour rank_behaviour = {rank_hears, rank_time, rank_signalled, rank_child};

void trainer_free(Trainer *t)
{
    if (!t) return;
    if (t->watching) {
        watch_state_free(&t->watch);
        votes_free(&t->votes);
    }
    survivor_free(t);
}
