/* The decisions of the control plane, of many ranks in one process and in virtual time: the watch's and the meetings'.
   The network delays and cuts, processes die, freeze, continue, leave and get signals at any moment; all drawn from a
   seed. A failure prints it: CAIRN_TEST_SEED=N runs that schedule alone. */
#include "testing.h"

#include <math.h>

#include "comm/watch/watch_state.h"
#include "train/ranks/votes.h"

enum { MOST = 8, MEETINGS = 6, MOST_FAULTS = 4 };
#define TIMEOUT 30.0
#define BEAT    5.0
#define DELAY   0.2 /* of a message, at most */
#define TURN    0.5 /* of a rank's way to its end, at most */

/* ---- the world ---- */

typedef enum { BEATS, LOSSES, BYES, VOTES, DECISIONS, ENDS, EOFS } LetterKind;

typedef struct {
    double at;
    int from, to;
    LetterKind kind;
    Loss loss;
    VotesMessage message;
    double own_s[MOST];
} Letter;

typedef struct {
    enum { RUNNING, FROZEN, DEAD, OUT } life;
    bool waits;        /* in a meeting */
    double next;       /* when its work ends, or it leaves */
    double since, was; /* frozen or dead; seconds of earlier times */
    double awake;      /* again, since then */
    WatchState watch;
    Votes votes;
    uint32_t voted[MEETINGS + 1], decided[MEETINGS + 1];
    int64_t counted;            /* decisions that were checked */
    double end_at;              /* when it learned of an end; INFINITY */
    double signal_at, hurry_at; /* when it got a signal; learned of one */
    double judged;              /* when its verdict came, and was checked; INFINITY */
} Process;

typedef struct {
    double at;
    enum { KILL, FREEZE, THAW, CUT, HEAL, SIGNAL, FAIL, DESERT } kind; /* DESERT: leaves without a word */
    int rank, other;
} Disaster;

static struct {
    uint64_t number, seed; /* of the schedule */
    double now;
    int size;
    Process of[MOST];
    Letter *letters; // (n_letters)
    int n_letters, cap_letters;
    double last[MOST][MOST];                    /* arrival of the last letter between two */
    double cut_at[MOST][MOST], cut[MOST][MOST]; /* since when; seconds of earlier cuts. INFINITY: whole */
    double cut_end[MOST][MOST];
    Disaster faults[MOST_FAULTS * 2];
    int n_faults;
    bool harmless; /* no fault but signals, and cuts and freezes that end in time */
    uint32_t signals;
} w;

#define hold(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) fail_msg("schedule %llu, %.3f s: not true: %s", (unsigned long long)w.number, w.now, #what);      \
    } while (0)

static double drawn(double most) { return most * (double)(testing_random(&w.seed) >> 11) * 0x1p-53; }
static int below(int n) { return (int)(testing_random(&w.seed) % (uint64_t)n); }

static void post(Letter l)
{
    double *last = &w.last[l.from][l.to];
    l.at = fmax(*last, w.now + drawn(below(4) ? DELAY / 20 : DELAY));
    *last = l.at;
    MEM_PUSH(w.letters, w.n_letters, w.cap_letters, l);
}

static void post_all(int from, Letter l)
{
    for (int to = 0; to < w.size; to++) {
        l.from = from;
        l.to = to;
        if (to != from) post(l);
    }
}

/* ---- what the machines say ---- */

static void leave(int r)
{
    watch_on(&w.of[r].watch, &(WatchEvent){.kind = WATCH_LEAVE}, w.now);
    post_all(r, (Letter){.kind = BYES});
    post_all(r, (Letter){.kind = EOFS});
    w.of[r].life = OUT;
}

static void act(int r);

static void tell_votes(int r, VotesEvent e)
{
    votes_on(&w.of[r].votes, &e);
    act(r);
}

static void tell_watch(int r, WatchEvent e)
{
    watch_on(&w.of[r].watch, &e, w.now);
    act(r);
}

static void act(int r)
{
    Process *p = &w.of[r];
    for (int i = 0; i < p->watch.n_actions; i++) {
        WatchOrder o = p->watch.actions[i];
        Letter l = {.kind = o.what == WATCH_SEND_BEAT ? BEATS : LOSSES, .from = r, .to = o.to, .loss = p->watch.loss};
        if (o.what == WATCH_ABORT) continue;
        if (o.to < 0)
            post_all(r, l);
        else
            post(l);
    }
    p->watch.n_actions = 0;
    for (int i = 0; i < p->votes.n_actions; i++) {
        VotesAction a = p->votes.actions[i];
        Letter l = {.kind = a == SEND_VOTE ? VOTES : DECISIONS, .from = r};
        l.message = votes_message(&p->votes);
        memcpy(l.own_s, p->votes.all_own_s, (size_t)w.size * sizeof *l.own_s);
        if (a == REPORT_LEFT)
            watch_on(&p->watch, &(WatchEvent){.kind = WATCH_FOUND, .loss = {votes_missing(&p->votes), LOSS_LEFT, r, 0}},
                     w.now);
        else if (a == SEND_VOTE)
            post(l);
        else
            post_all(r, l);
    }
    p->votes.n_actions = 0;
    if (p->watch.n_actions) act(r);
    if (p->watch.loss.reason != LOSS_NONE && p->votes.end == VOTES_GOING)
        votes_on(&p->votes, &(VotesEvent){.kind = VOTES_LOST});
    for (int left = -1; (left = watch_state_left(&p->watch, left + 1)) >= 0;)
        if (!p->votes.left[left]) tell_votes(r, (VotesEvent){.kind = VOTES_LEFT, .rank = left});
}

static void receive(const Letter *l)
{
    Process *p = &w.of[l->to];
    VotesEvent v = {.kind = l->kind == VOTES       ? VOTES_VOTE
                            : l->kind == DECISIONS ? VOTES_DECISION
                                                   : VOTES_END,
                    .rank = l->from,
                    .message = &l->message,
                    .all_own_s = l->own_s};
    WatchEvent e = {.kind = l->kind == BYES   ? WATCH_BYE
                            : l->kind == EOFS ? WATCH_CLOSED
                                              : WATCH_HEARD,
                    .rank = l->from};
    if (l->kind == LOSSES) e.kind = WATCH_NEWS, e.loss = l->loss;
    if (p->life != RUNNING) return;
    tell_watch(l->to, e);
    if (l->kind == VOTES || l->kind == DECISIONS || l->kind == ENDS) tell_votes(l->to, v);
}

/* ---- invariants ---- */

/* What `by` may have heard nothing of `rank` for: nearly the timeout. */
static bool was_silent(int rank, int by)
{
    const double least = TIMEOUT - 2 * BEAT - DELAY;
    const Process *p = &w.of[rank];
    double frozen = p->was + (p->life == FROZEN || p->life == DEAD ? w.now - p->since : 0);
    double cut = w.cut[rank][by] + fmax(0, w.now - w.cut_at[rank][by]);
    return frozen + cut >= least; /* one may follow the other */
}

static void check_verdict(int r)
{
    Process *p = &w.of[r];
    const Loss *l = &p->watch.loss;
    if (l->reason == LOSS_NONE || isfinite(p->judged)) return;
    p->judged = w.now;
    int life = w.of[l->rank].life;
    if (l->reason == LOSS_CLOSED) hold(life == DEAD);
    if (l->reason == LOSS_LEFT) hold(life == OUT);
    if (l->reason == LOSS_SILENT) hold(was_silent(l->rank, l->by));
    hold(!w.harmless);
}

/* A decision is the same on all, comes when all have come, and has all votes that came with them. */
static void check_decisions(int r)
{
    Process *p = &w.of[r];
    for (; p->counted < p->votes.met; p->counted++) {
        int64_t k = p->counted + 1;
        uint32_t all = 0;
        hold(p->votes.met == k); /* none is left out */
        p->decided[k] = p->votes.decided;
        for (int i = 0; i < w.size; i++) {
            const Process *q = &w.of[i];
            hold(q->votes.came >= k);
            all |= q->voted[k];
            if (q->counted >= k) hold(q->decided[k] == p->decided[k]);
            hold(fabs(p->votes.all_own_s[i] - (double)k * (i + 1)) < 1e-9);
        }
        hold((p->decided[k] & all) == all);
        hold((p->decided[k] & ~(all | w.signals)) == 0);
    }
}

/* A rank in touch learns of a dead one, of a verdict and of a signal of another within a second, of a frozen one within
   the timeout. */
static void check_times(int r)
{
    Process *p = &w.of[r];
    for (int i = 0; i < w.size && p->life == RUNNING && p->votes.end == VOTES_GOING; i++) {
        const Process *q = &w.of[i];
        double touch = fmax(p->awake, w.cut_end[r][i]), since = fmax(q->since, touch);
        if (isfinite(w.cut_at[r][i])) continue;
        if (isfinite(q->judged)) hold(w.now <= fmax(q->judged, touch) + 1);
        if (isfinite(q->signal_at) && r == 0) hold(p->votes.hurry || w.now <= fmax(q->signal_at, touch) + 1);
        if (isfinite(q->hurry_at) && i == 0) hold(p->votes.hurry || w.now <= fmax(q->hurry_at, touch) + 1);
        if (q->life == DEAD) hold(w.now <= since + 1);
        if (q->life == FROZEN) hold(w.now <= since + TIMEOUT + 2 * DELAY);
    }
}

static void check(int r)
{
    Process *p = &w.of[r];
    check_verdict(r);
    check_decisions(r);
    check_times(r);
    hold(w.signals || !p->votes.hurry);
    if (p->votes.hurry && !isfinite(p->hurry_at)) p->hurry_at = w.now;
    if (p->votes.end != VOTES_GOING && !isfinite(p->end_at)) {
        p->end_at = w.now;
        if (p->life == RUNNING) p->next = w.now + drawn(TURN);
    }
}

/* ---- a rank's life ---- */

static void go_on(int r)
{
    Process *p = &w.of[r];
    int64_t k = p->votes.came + 1;
    p->next = INFINITY;
    if (p->votes.end != VOTES_GOING || k > MEETINGS) {
        leave(r);
        return;
    }
    p->waits = true;
    if (below(3) == 0) p->voted[k] = 1u << (5 + below(8));
    p->votes.mine |= p->voted[k];
    p->votes.own_s = (double)k * (r + 1);
    tell_votes(r, (VotesEvent){.kind = VOTES_COME});
}

/* Behind a meeting the rank works, now and then longer than any time-out. */
static void after_meeting(int r)
{
    Process *p = &w.of[r];
    if (!p->waits || p->votes.met < p->votes.came) return;
    p->waits = false;
    p->votes.agreed = 0;
    p->next = w.now + drawn(below(30) ? 2 : 3 * TIMEOUT);
}

static void befall(const Disaster *f)
{
    Process *p = &w.of[f->rank];
    bool there = p->life == RUNNING || p->life == FROZEN;
    bool cut = isfinite(w.cut_at[f->rank][f->other]);
    if (f->kind == CUT && !cut) {
        w.cut_at[f->rank][f->other] = w.cut_at[f->other][f->rank] = w.now;
    } else if (f->kind == HEAL && cut) {
        w.cut[f->rank][f->other] += w.now - w.cut_at[f->rank][f->other];
        w.cut[f->other][f->rank] = w.cut[f->rank][f->other];
        w.cut_at[f->rank][f->other] = w.cut_at[f->other][f->rank] = INFINITY;
        w.cut_end[f->rank][f->other] = w.cut_end[f->other][f->rank] = w.now;
    } else if (f->kind == KILL && there) {
        if (p->life == FROZEN) p->was += w.now - p->since;
        p->since = w.now;
        p->life = DEAD;
        post_all(f->rank, (Letter){.kind = EOFS});
    } else if (f->kind == FREEZE && p->life == RUNNING) {
        p->life = FROZEN;
        p->since = w.now;
    } else if (f->kind == THAW && p->life == FROZEN) {
        p->life = RUNNING;
        p->was += w.now - p->since;
        p->awake = w.now;
        p->next = fmax(p->next, w.now);
    } else if (f->kind == SIGNAL && p->life == RUNNING) {
        w.signals |= 1u << (f->other % 5);
        p->signal_at = fmin(p->signal_at, w.now);
        tell_votes(f->rank, (VotesEvent){.kind = VOTES_SIGNAL, .signal = 1u << (f->other % 5)});
    } else if ((f->kind == FAIL || f->kind == DESERT) && p->life == RUNNING) {
        if (f->kind == FAIL) post_all(f->rank, (Letter){.kind = ENDS});
        leave(f->rank);
    }
}

static void draw_faults(void)
{
    int n = below(MOST_FAULTS + 1);
    w.harmless = true;
    w.n_faults = 0;
    for (int i = 0; i < n; i++) {
        Disaster f = {drawn(20), (int[]){KILL, FREEZE, CUT, SIGNAL, SIGNAL, FAIL, DESERT}[below(7)], below(w.size),
                      below(w.size)};
        Disaster end = {f.at + drawn(3 * TIMEOUT), f.kind == FREEZE ? THAW : HEAL, f.rank, f.other};
        bool ends = f.kind == FREEZE || f.kind == CUT;
        if (f.kind == CUT && f.rank == f.other) continue;
        if (ends && below(2)) end.at = f.at + drawn(TIMEOUT / 2);
        w.faults[w.n_faults++] = f;
        if (ends && below(4)) w.faults[w.n_faults++] = end;
        w.harmless = w.harmless && f.kind == SIGNAL;
    }
}

/* What has reached a host before the cable is cut is there when the process reads. */
static bool may_arrive(const Letter *l) { return w.of[l->to].life != FROZEN && l->at < w.cut_at[l->from][l->to]; }

/* The next thing that happens. False: nothing. */
static bool turn(double limit)
{
    double at = limit;
    int letter = -1, rank = -1, fault = -1, who = -1; /* to whom it happens */
    for (int i = 0; i < w.n_letters; i++)
        if (may_arrive(&w.letters[i]) && w.letters[i].at < at) at = w.letters[i].at, letter = i;
    for (int r = 0; r < w.size; r++)
        if (w.of[r].life == RUNNING && fmin(w.of[r].next, w.of[r].watch.wake) < at)
            at = fmin(w.of[r].next, w.of[r].watch.wake), rank = r;
    for (int i = 0; i < w.n_faults; i++)
        if (w.faults[i].at < at) at = w.faults[i].at, fault = i;
    w.now = fmax(w.now, at);
    if (fault >= 0) {
        who = w.faults[fault].rank;
        befall(&w.faults[fault]);
        w.faults[fault].at = INFINITY;
    } else if (rank >= 0 && w.of[rank].next <= at) {
        go_on(who = rank);
    } else if (rank >= 0) {
        tell_watch(who = rank, (WatchEvent){.kind = WATCH_TIME});
    } else if (letter >= 0) {
        Letter l = w.letters[letter];
        memmove(&w.letters[letter], &w.letters[letter + 1], (size_t)(--w.n_letters - letter) * sizeof l);
        receive(&l);
        who = l.to;
    }
    if (who >= 0) check(who);
    if (who >= 0 && w.of[who].life == RUNNING) after_meeting(who);
    return fault >= 0 || rank >= 0 || letter >= 0;
}

static void run_schedule(uint64_t number)
{
    memset(&w, 0, sizeof w);
    w.number = number;
    w.seed = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w.size = 2 + below(MOST - 1);
    for (int r = 0; r < w.size; r++) {
        Process *p = &w.of[r];
        *p = (Process){.next = drawn(2), .watch = watch_state(r, w.size, TIMEOUT, BEAT), .end_at = INFINITY};
        p->judged = p->signal_at = p->hurry_at = INFINITY;
        p->votes = votes_new(r, w.size);
        for (int i = 0; i < w.size; i++) {
            w.cut_at[r][i] = INFINITY;
            if (i != r) watch_on(&p->watch, &(WatchEvent){.kind = WATCH_MET, .rank = i}, 0);
        }
    }
    draw_faults();
    /* Work at its longest, then each fault's loss one after the other. */
    while (turn(MEETINGS * 3 * TIMEOUT + 20 + 2 * TIMEOUT * (MOST_FAULTS + 1))) {}
    for (int r = 0; r < w.size; r++) {
        Process *p = &w.of[r];
        hold(p->life != RUNNING); /* every rank ends */
        if (w.harmless) hold(p->votes.met == MEETINGS);
        watch_state_free(&p->watch);
        votes_free(&p->votes);
    }
    free(w.letters);
}

static void test_schedules(void **state)
{
    const char *only = getenv("CAIRN_TEST_SEED");
    int first = only ? atoi(only) : 0, rounds = only ? 1 : testing_rounds(20000, 1000000);
    (void)state;
    for (int i = 0; i < rounds; i++) run_schedule((uint64_t)(first + i));
}

/* A process that was stopped does not take the others for silent before its watch has read what they sent. */
static void test_continued(void **state)
{
    bool silent;
    WatchState s = watch_state(0, 3, TIMEOUT, BEAT);
    double now = 100;
    (void)state;
    for (int r = 1; r < 3; r++) watch_on(&s, &(WatchEvent){.kind = WATCH_MET, .rank = r}, now);
    now += 2 * TIMEOUT;
    assert_false(watch_state_gone(&s, 1, now, &silent));
    for (double end = now + TIMEOUT + BEAT; now < end; now += BEAT)
        watch_on(&s, &(WatchEvent){.kind = WATCH_HEARD, .rank = 1}, now);
    assert_false(watch_state_gone(&s, 1, now, &silent));
    assert_true(watch_state_gone(&s, 2, now, &silent) && silent);
    assert_false(watch_state_gone(&s, 0, now, &silent) || silent);
    watch_state_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedules), cmocka_unit_test(test_continued)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
