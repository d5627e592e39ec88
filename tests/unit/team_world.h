/* A world of survivors in virtual time, for tests/unit/test_team_state.c: machines of train/keep/team_state.h, a driver
   of each, letters that are delayed and overtake those of other pairs, and ranks that die, freeze, are cut off, come
   late, or cannot write, at any event. What must always hold is checked after each event. CAIRN_TEST_TRACE shows the
   events. */
#pragma once

#include <inttypes.h>
#include <math.h>

#include "testing.h"
#include "train/keep/team_state.h"

enum { RANKS_MOST = 16, STEP = 40, STEPS = 2, NEVER = -1 };

#define MEET_S    5.0
#define ANSWER_S  30.0
#define END_S     120.0
#define TIMEOUT_S 10.0 /* of silence, after which a rank counts as gone */
#define LIFE_S    2.0  /* between looks at the ranks that are gone, at most */
#define DELAY_S   0.5  /* of a letter, at most */

typedef struct {
    double at;
    int from;
    char *data;
    size_t size;
} Post;

typedef enum { IDLE, JOIN, WRITE, LOCK, OWN, GATHER, COMMIT } Stage;

typedef struct {
    TeamState x;
    bool begun, dead, exited, able, frozen, failed; /* failed: to write a part, once */
    double begins, ends;                            /* ends: dead or exited */
    double writes;                                  /* seconds of its part; 0: drawn */
    double froze, thaws, next, busy;                /* busy: when it had been next, but for the freeze */
    uint32_t has;                                   /* the slices that it can write */
    int64_t has_step;
    Stage stage;
    TeamAction job; /* that a stage is about */
    int done;       /* of its actions */
    Post *inbox;    // (n_inbox)
    int n_inbox, cap_inbox;
    uint32_t asked[RANKS_MOST], written; /* of the leader: the slices of its plan; those that were written */
    bool lacks, drops;                   /* of the leader: a writer was left out of this plan, or ever */
    double wrote, told, freed; /* own part of a plan; last news that prolongs its wait; end of what kept it busy */
    TeamEnd end;
    int who, follows;
    int64_t step;
} Node;

typedef enum { NO_FAULT, DIE, FREEZE, FAIL } FaultKind;
typedef struct {
    FaultKind kind;
    int rank;
    TeamActionKind at;    /* before its action `nth` of this kind, from 0 on */
    int nth;              /* −1: at `when` */
    double when, seconds; /* seconds: frozen for so long */
} Fault;

typedef struct {
    uint64_t seed, random;
    double now;
    int n, lost, slices; /* slices 0: all have the whole state */
    bool calm;           /* no letter is slow, nobody comes late, freezes or is cut off, no disk fails */
    Node node[RANKS_MOST];
    double cut[RANKS_MOST][RANKS_MOST], heals[RANKS_MOST][RANKS_MOST]; /* INFINITY: never */
    bool troubled[RANKS_MOST][RANKS_MOST];                             /* may not have heard each other for a while */
    double last[RANKS_MOST][RANKS_MOST];                               /* arrival of the last letter */
    double fault_at;                                                   /* the last one */
    Fault faults[4];
    int n_faults, saves;
    bool saved[STEPS]; /* from STEP on */
    double write_s;
    bool has_to_follow; /* rank 0 */
    double first;       /* rank 0 ends until then; 0: it need not */
    double bad_disk;    /* how often a part cannot be written */
    bool trace;
} World;

#define must(w, condition, ...)                                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error("schedule %" PRIu64 ", at %.3f s: ", (w)->seed, (w)->now);                                     \
            fail_msg(__VA_ARGS__);                                                                                     \
        }                                                                                                              \
    } while (0)

static inline double draw(World *w, double most) { return most * (double)(testing_random(&w->random) >> 11) / 0x1p53; }
static inline bool chance(World *w, double p) { return draw(w, 1) < p; }
static inline int draw_int(World *w, int below) { return (int)(testing_random(&w->random) % (uint64_t)below); }

static inline bool is_busy(const Node *me) { return me->stage != IDLE && me->stage != GATHER; }

static inline bool runs(const Node *node) { return node->begun && !node->dead && !node->exited; }

static inline bool is_cut(const World *w, int a, int b) { return w->now >= w->cut[a][b] && w->now < w->heals[a][b]; }

/* Whether rank `a` takes `b` for gone. */
static inline bool is_gone(const World *w, int a, int b)
{
    const Node *its = &w->node[b];
    bool cut = is_cut(w, a, b) && w->now >= w->cut[a][b] + TIMEOUT_S;
    bool ended = (its->dead || its->exited) && w->now >= fmax(its->ends, w->last[b][a]) && !is_cut(w, a, b);
    return cut || ended || (its->frozen && w->now >= its->froze + TIMEOUT_S) || (b == w->lost && !its->begun);
}

static inline void trouble(World *w, int rank)
{
    for (int r = 0; r < w->n; r++) w->troubled[rank][r] = w->troubled[r][rank] = true;
}

/* ---- what must hold after each event ---- */

static inline void check_leaders(const World *w, int rank)
{
    for (int r = 0; r < w->n; r++) {
        const Node *its = &w->node[r];
        if (r == rank || !runs(its) || !its->x.leads || its->x.over) continue;
        must(w, w->troubled[rank][r], "ranks %d and %d both lead", r, rank);
    }
}

static inline void check_drop(const World *w, int rank, int writer)
{
    const Node *me = &w->node[rank], *its = &w->node[writer];
    bool may = its->dead || its->x.over || its->x.leads || w->troubled[rank][writer] || its->x.ranks[rank].gone ||
               w->now >= me->wrote + ANSWER_S || its->failed;
    must(w, may, "rank %d leaves rank %d out", rank, writer);
}

static inline void check_end(World *w, int rank, const TeamAction *a)
{
    Node *me = &w->node[rank];
    bool saved = a->end == TEAM_SAVED || a->end == TEAM_FOUND;
    me->end = a->end;
    me->who = a->rank;
    me->step = a->step;
    must(w, !saved || (a->step >= STEP && w->saved[a->step - STEP]), "rank %d says that step %" PRId64 " is saved",
         rank, a->step);
    must(w, !saved || a->rank == me->follows || a->step >= me->has_step, "rank %d ends with an earlier step", rank);
    must(w, a->end != TEAM_UNCLEAR || w->now >= me->told + END_S, "rank %d ends after %g s without news", rank,
         w->now - me->told);
    must(w, me->x.leads || w->now <= fmax(me->told, me->freed) + END_S + MEET_S + LIFE_S,
         "rank %d ends only %g s after the last news", rank, w->now - me->told);
    for (int r = 0; r < w->n; r++) {
        const Node *its = &w->node[r];
        bool here = runs(its) && its->able && !its->x.over && !w->troubled[rank][r] && its->begins + DELAY_S < w->now;
        must(w, a->end != TEAM_NOBODY || !here, "rank %d ends though rank %d can write", rank, r);
    }
}

static inline void give(World *w, int rank, TeamEvent e)
{
    Node *me = &w->node[rank];
    bool led = me->x.leads;
    team_on(&me->x, &e, w->now);
    if (w->trace)
        printf("%9.3f rank %d event %d from %d: leader %d leads %d over %d actions %d\n", w->now, rank, (int)e.kind,
               e.rank, me->x.leader, me->x.leads, me->x.over, me->x.n_actions);
    if (me->x.leads && !led) check_leaders(w, rank);
    must(w, !led || me->x.leads, "rank %d leads no more", rank);
    must(w, !me->x.leads || me->able, "rank %d leads, which cannot write", rank);
    must(w, e.kind != TEAM_TIME || me->x.over || me->x.leads || me->x.wake < INFINITY, "rank %d waits for nothing",
         rank);
}

/* ---- faults ---- */

static inline void die(World *w, int rank)
{
    Node *me = &w->node[rank];
    me->dead = true;
    me->ends = w->now + draw(w, 1);
    me->next = INFINITY;
    w->fault_at = w->now;
    for (int r = 0; r < w->n; r++) { /* what it had not sent yet is lost */
        Node *its = &w->node[r];
        bool lost = false;
        int kept = 0;
        for (int i = 0; i < its->n_inbox; i++) {
            lost = lost || (its->inbox[i].from == rank && its->inbox[i].at > w->now && chance(w, 0.3));
            if (lost && its->inbox[i].from == rank && its->inbox[i].at > w->now)
                free(its->inbox[i].data);
            else
                its->inbox[kept++] = its->inbox[i];
        }
        its->n_inbox = kept;
    }
}

static inline void freeze(World *w, int rank, double seconds)
{
    Node *me = &w->node[rank];
    me->frozen = true;
    me->froze = w->now;
    me->busy = me->next;
    me->thaws = me->next = w->now + seconds;
    w->fault_at = fmax(w->fault_at, me->thaws);
    trouble(w, rank);
}

/* True: the rank does not come to this action now. */
static inline bool strike(World *w, int rank, int at)
{
    for (int i = 0; i < w->n_faults; i++) {
        Fault *f = &w->faults[i];
        if (f->rank != rank || f->kind == NO_FAULT || f->kind == FAIL) continue;
        if (f->nth < 0 ? w->now < f->when : (int)f->at != at || f->nth-- > 0) continue;
        FaultKind kind = f->kind;
        f->kind = NO_FAULT;
        if (w->trace) printf("%9.3f rank %d %s at %d\n", w->now, rank, kind == DIE ? "dies" : "freezes", (int)at);
        if (kind == DIE) die(w, rank);
        if (kind == FREEZE) freeze(w, rank, f->seconds);
        return true;
    }
    return false;
}

/* Lets the faults happen that are due, to ranks that wait or write. */
static inline bool strike_in_time(World *w, double now)
{
    bool struck = false;
    for (int i = 0; i < w->n_faults; i++) {
        const Fault *f = &w->faults[i];
        bool comes = (f->kind == DIE || f->kind == FREEZE) && f->nth < 0 && f->when <= now;
        if (!comes || !runs(&w->node[f->rank]) || w->node[f->rank].frozen) continue;
        w->now = fmax(w->now, f->when);
        struck = strike(w, f->rank, NEVER) || struck;
    }
    return struck;
}

static inline bool fails(World *w, int rank, TeamActionKind at)
{
    for (int i = 0; i < w->n_faults; i++) {
        Fault *f = &w->faults[i];
        if (f->rank != rank || f->at != at || f->kind != FAIL || f->nth-- > 0) continue;
        f->kind = NO_FAULT;
        return true;
    }
    return w->bad_disk && chance(w, w->bad_disk);
}

/* ---- the driver, as train/keep/team.c and survive.c ---- */

static inline void post(World *w, int from, TeamAction *a)
{
    Node *to = &w->node[a->rank];
    double at = w->now + draw(w, chance(w, 0.1) ? DELAY_S : DELAY_S / 20);
    if (is_cut(w, from, a->rank) || (w->cut[from][a->rank] > w->now && w->cut[from][a->rank] < at))
        at = w->heals[from][a->rank] + DELAY_S;
    at = fmax(at, w->last[from][a->rank]);
    if (at < INFINITY) w->last[from][a->rank] = at;
    if (to->dead || to->exited || at == INFINITY) return;
    MEM_PUSH(to->inbox, to->n_inbox, to->cap_inbox, (Post){at, from, a->data, a->size});
    a->data = NULL;
    if (to->begun && !is_busy(to) && !to->frozen) to->next = fmin(to->next, fmax(at, w->now));
}

static inline void hear(World *w, int rank)
{
    Node *me = &w->node[rank];
    bool gone[RANKS_MOST];
    for (int r = 0; r < w->n; r++) gone[r] = r != rank && is_gone(w, rank, r);
    for (;;) {
        int first = -1;
        for (int i = 0; i < me->n_inbox; i++)
            if (me->inbox[i].at <= w->now && (first < 0 || me->inbox[i].at < me->inbox[first].at)) first = i;
        if (first < 0) break;
        Post p = me->inbox[first];
        me->n_inbox--;
        memmove(&me->inbox[first], &me->inbox[first + 1], (size_t)(me->n_inbox - first) * sizeof p);
        give(w, rank, (TeamEvent){.kind = TEAM_MAIL, .rank = p.from, .data = p.data, .size = p.size});
        free(p.data);
    }
    for (int r = 0; r < w->n; r++)
        if (gone[r] != me->x.ranks[r].gone)
            give(w, rank, (TeamEvent){.kind = gone[r] ? TEAM_GONE : TEAM_BACK, .rank = r});
    give(w, rank, (TeamEvent){.kind = TEAM_TIME});
}

static inline void work(World *w, int rank, Stage stage, double seconds)
{
    w->node[rank].stage = stage;
    w->node[rank].next = w->now + seconds;
}

static inline double writing(World *w, int rank)
{
    if (w->node[rank].writes) return w->node[rank].writes;
    return draw(w, chance(w, w->calm ? 0 : 0.05) ? 2 * ANSWER_S : w->write_s);
}

static inline void tried(World *w, int rank, TeamEnd end)
{
    w->node[rank].stage = IDLE;
    int64_t step = w->node[rank].has_step;
    while (end == TEAM_FOUND && !w->saved[step - STEP]) step++;
    if (end == TEAM_SAVED) w->saved[step - STEP] = true;
    if (end == TEAM_SAVED) w->saves++;
    w->node[rank].drops = w->node[rank].drops || end == TEAM_FAILED; /* it may go on alone */
    give(w, rank, (TeamEvent){.kind = TEAM_TRIED, .end = end, .step = step});
}

/* Every rank in touch that can write is counted, and each slice has one writer. */
static inline void plan(World *w, int rank)
{
    Node *me = &w->node[rank];
    int32_t writers[RANKS_MOST];
    int n = 0;
    bool alone = true;
    uint32_t all = w->slices ? (1u << w->slices) - 1 : (1u << w->n) - 1, found = 0;
    memset(me->asked, 0, sizeof me->asked);
    me->written = 0;
    me->lacks = false;
    if ((w->saved[me->has_step - STEP] || w->saved[STEPS - 1]) && chance(w, 0.9)) { /* else its folder is another */
        tried(w, rank, TEAM_FOUND);
        return;
    }
    for (int i = 1; i <= w->n; i++) {
        int r = (rank + i) % w->n; /* itself at last */
        const Node *its = &w->node[r];
        bool here = runs(its) && its->able && !its->x.over && !its->x.leads && w->now > its->begins + DELAY_S &&
                    !w->troubled[rank][r] && !me->drops;
        bool counted = team_has(&me->x, r);
        must(w, counted || !here, "rank %d does not count rank %d", rank, r);
        must(w, !counted || !me->x.ranks[r].left, "rank %d counts rank %d, which has left", rank, r);
        if (!counted) continue;
        alone = alone && r == rank;
        bool can = r != rank && its->has_step == me->has_step;
        uint32_t its_slices = w->slices ? its->has & all & ~found : can ? 1u << r : 0;
        if (w->slices) must(w, me->x.ranks[r].size == sizeof its->has, "rank %d knows no slices of %d", rank, r);
        me->asked[r] = its_slices;
        found |= its_slices;
        if (its_slices || r == rank) writers[n++] = r;
    }
    if (w->slices && found != all) {
        for (int r = 0; r < w->n; r++)
            must(w, !team_has(&me->x, r) || !(w->node[r].has & all & ~found), "rank %d misses what rank %d has", rank,
                 r);
        tried(w, rank, TEAM_NOTHING);
        return;
    }
    if (!alone)
        give(w, rank,
             (TeamEvent){.kind = TEAM_PLANNED,
                         .step = me->has_step,
                         .data = me->asked,
                         .size = sizeof me->asked,
                         .writers = writers,
                         .n_writers = n});
    work(w, rank, OWN, writing(w, rank));
}

static inline void gathered(World *w, int rank)
{
    Node *me = &w->node[rank];
    uint32_t all = 0;
    for (int r = 0; r < w->n; r++)
        if (r != rank) all |= me->asked[r];
    if (me->lacks && w->slices) {
        tried(w, rank, TEAM_FAILED);
        return;
    }
    must(w, me->lacks || me->written == all, "rank %d took parts %x of %x", rank, me->written, all);
    work(w, rank, COMMIT, me->lacks ? writing(w, rank) : 1);
}

/* The end of what a rank was busy with. */
static inline void finish(World *w, int rank)
{
    Node *me = &w->node[rank];
    uint32_t part;
    bool fail_now;
    switch (me->stage) {
    case WRITE:
        memcpy(&part, me->job.data + (size_t)rank * sizeof part, sizeof part);
        fail_now = fails(w, rank, TEAM_WRITE);
        me->failed = me->failed || fail_now;
        me->told = w->now;
        me->stage = IDLE;
        give(w, rank,
             (TeamEvent){.kind = TEAM_WROTE,
                         .rank = me->job.rank,
                         .number = me->job.number,
                         .data = fail_now ? NULL : &part,
                         .size = fail_now ? 0 : sizeof part});
        free(me->job.data);
        me->job.data = NULL;
        break;
    case LOCK:
        hear(w, rank);
        plan(w, rank);
        break;
    case OWN:
        me->wrote = w->now;
        me->stage = GATHER;
        if (fails(w, rank, TEAM_TRY))
            tried(w, rank, TEAM_FAILED);
        else if (me->x.asked)
            give(w, rank, (TeamEvent){.kind = TEAM_WROTE, .rank = rank, .data = "", .size = 0});
        else
            work(w, rank, COMMIT, 1);
        break;
    case COMMIT:
        tried(w, rank, TEAM_SAVED);
        break;
    default:
        me->stage = IDLE;
    }
}

static inline void take(World *w, int rank, const TeamAction *a)
{
    Node *me = &w->node[rank];
    uint32_t part;
    assert_int_equal(a->size, sizeof part);
    memcpy(&part, a->data, sizeof part);
    must(w, part == me->asked[a->rank], "rank %d takes an answer of rank %d to another plan", rank, a->rank);
    if (fails(w, a->rank, TEAM_TAKE)) {
        me->lacks = me->drops = true;
        give(w, rank, (TeamEvent){.kind = TEAM_REFUSED, .rank = a->rank});
    } else {
        me->written |= part;
    }
}

/* A leader that is gone is reported before the next one is followed. */
static inline void check_follow(const World *w, int rank)
{
    const Node *me = &w->node[rank];
    must(w, me->follows < 0 || me->x.ranks[me->follows].left || !me->x.ranks[me->follows].gone,
         "rank %d does not report rank %d", rank, me->follows);
}

/* Performs one action. */
static inline void perform(World *w, int rank, TeamAction *a)
{
    Node *me = &w->node[rank];
    switch (a->kind) {
    case TEAM_SEND:
        post(w, rank, a);
        break;
    case TEAM_FOLLOW:
        check_follow(w, rank);
        me->follows = a->rank;
        me->told = w->now;
        if (rank == 0) work(w, rank, JOIN, draw(w, chance(w, 0.1) ? 2 * END_S : 1)); /* the last save ends before */
        break;
    case TEAM_LOST:
        must(w, is_gone(w, rank, a->rank) || w->troubled[rank][a->rank], "rank %d is well", a->rank);
        me->follows = -1;
        me->told = w->now;
        break;
    case TEAM_WRITE:
        must(w, !me->x.ranks[a->rank].gone, "rank %d writes for rank %d, which is gone", rank, a->rank);
        me->job = *a;
        a->data = NULL;
        work(w, rank, WRITE, writing(w, rank));
        break;
    case TEAM_TRY:
        check_follow(w, rank);
        work(w, rank, LOCK, draw(w, 1));
        break;
    case TEAM_TAKE:
        take(w, rank, a);
        break;
    case TEAM_DROP:
        check_drop(w, rank, a->rank);
        me->lacks = me->drops = true;
        break;
    case TEAM_GATHERED:
        gathered(w, rank);
        break;
    case TEAM_OVER:
        check_end(w, rank, a);
        break;
    }
}

/* What the rank does at its time `next`. */
static inline void turn(World *w, int rank)
{
    Node *me = &w->node[rank];
    if (me->frozen) {
        me->frozen = false;
        me->freed = w->now;
        if (is_busy(me)) {
            me->next = fmax(w->now, me->busy);
            return;
        }
    } else if (!me->begun) {
        me->begun = true;
        me->told = w->now;
        give(w, rank,
             (TeamEvent){
                 .kind = TEAM_BEGIN, .able = me->able, .step = me->has_step, .data = &me->has, .size = sizeof me->has});
    } else if (is_busy(me)) {
        me->freed = w->now;
        finish(w, rank);
    } else if (me->done == me->x.n_actions) {
        hear(w, rank);
    }
    while (me->done < me->x.n_actions && (!is_busy(me) || me->x.actions[me->done].kind == TEAM_SEND)) {
        if (strike(w, rank, me->x.actions[me->done].kind)) return;
        TeamAction a = me->x.actions[me->done];
        me->x.actions[me->done++].data = NULL;
        perform(w, rank, &a);
        free(a.data);
    }
    if (me->done == me->x.n_actions) me->done = me->x.n_actions = 0;
    if (is_busy(me)) return;
    me->next = fmax(w->now, fmin(me->x.wake, w->now + LIFE_S));
    for (int i = 0; i < me->n_inbox; i++) me->next = fmin(me->next, fmax(w->now, me->inbox[i].at));
    if (!me->x.over || me->x.n_actions) return;
    me->exited = true;
    me->ends = w->now + draw(w, 1);
    me->next = INFINITY;
}

static inline void world_init(World *w, uint64_t seed, int n, int slices)
{
    *w = (World){.seed = seed, .random = seed * 2654435761u + 1, .n = n, .lost = -1, .slices = slices, .calm = true};
    w->write_s = 10;
    w->trace = getenv("CAIRN_TEST_TRACE") != NULL;
    for (int r = 0; r < n; r++) {
        Node *node = &w->node[r];
        team_state_init(&node->x, r, n, slices > 0, (TeamTimes){MEET_S, ANSWER_S, END_S});
        node->able = true;
        node->has_step = STEP;
        node->follows = -1;
        node->has = slices ? 1u << r % slices : 0;
        for (int k = 0; k < n; k++) w->cut[r][k] = w->heals[r][k] = INFINITY;
    }
}

static inline void world_free(World *w)
{
    for (int r = 0; r < w->n; r++) {
        Node *node = &w->node[r];
        for (int i = 0; i < node->n_inbox; i++) free(node->inbox[i].data);
        MEM_FREE(node->inbox, node->job.data);
        team_state_free(&node->x);
    }
}

static inline void run(World *w)
{
    for (int r = 0; r < w->n; r++)
        if (!w->node[r].dead) w->node[r].next = w->node[r].begins;
    for (int64_t turns = 0;; turns++) {
        int first = -1;
        for (int r = 0; r < w->n; r++)
            if (w->node[r].next < INFINITY && !w->node[r].dead && !w->node[r].exited &&
                (first < 0 || w->node[r].next < w->node[first].next))
                first = r;
        if (first < 0) return;
        if (strike_in_time(w, w->node[first].next)) continue;
        w->now = fmax(w->now, w->node[first].next);
        turn(w, first);
        must(w, turns < 1000000, "rank %d does not end", first);
    }
}
