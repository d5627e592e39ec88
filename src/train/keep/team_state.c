/* All events but TEAM_TIME bring facts; decisions follow at TEAM_TIME, behind all mail that has come. */
#include "train/keep/team_state.h"

enum { WAIT = -1, NONE = -2 }; /* in place of a leader */

/* ---- letters ---- */

typedef enum {
    SAYS_HERE,   /* number: whether it can write; step; what it can write follows */
    SAYS_FOLLOW, /* number: the rank that it follows, itself if it leads */
    SAYS_PLAN,   /* number, step; the plan follows */
    SAYS_WROTE,  /* number: of the plan; step: whether it is written; the answer follows */
    SAYS_LEFT,   /* number: a TeamEnd; step */
} Word;

typedef struct {
    int32_t word, number;
    int64_t step;
} Letter;

static TeamAction *act(TeamState *x, TeamActionKind kind, int rank)
{
    MEM_PUSH(x->actions, x->n_actions, x->cap_actions, (TeamAction){.kind = kind, .rank = rank});
    return &x->actions[x->n_actions - 1];
}

static void *copy_of(const void *data, size_t size)
{
    void *copy = mem_alloc(size);
    if (size) memcpy(copy, data, size);
    return copy;
}

static void say(TeamState *x, int to, Letter letter, const void *data, size_t size)
{
    Buf text = {0};
    buf_append(&text, &letter, sizeof letter);
    if (size) buf_append(&text, data, size);
    TeamAction *a = act(x, TEAM_SEND, to);
    a->data = text.data;
    a->size = text.len;
}

static void say_to_all(TeamState *x, Letter letter, const void *data, size_t size)
{
    for (int r = 0; r < x->size; r++)
        if (r != x->rank && !x->ranks[r].left) say(x, r, letter, data, size);
}

/* ---- the choice of a leader ---- */

static bool in_touch(const TeamRank *r) { return !r->gone && !r->left; }

static bool leads(const TeamState *x, int rank) { return x->ranks[rank].follows == rank; }

bool team_has(const TeamState *x, int rank)
{
    const TeamRank *r = &x->ranks[rank];
    return in_touch(r) && r->able && !r->dropped && !leads(x, rank);
}

/* Whether a rank may still announce itself. */
static bool may_come(const TeamState *x, const TeamRank *r) { return !r->here && !r->gone && !x->met; }

static int choose(const TeamState *x)
{
    if (x->leader >= 0 && leads(x, x->leader)) return x->leader;
    for (int r = 0; r < x->size; r++)
        if (in_touch(&x->ranks[r]) && leads(x, r)) return r;
    for (int r = 0; r < x->size; r++) {
        const TeamRank *its = &x->ranks[r];
        if (may_come(x, its)) return WAIT;
        if (in_touch(its) && its->able) return r;
    }
    return NONE;
}

/* Whether all others that can write follow this rank, and none may still come. */
static bool agreed(const TeamState *x)
{
    for (int r = 0; r < x->size; r++) {
        const TeamRank *its = &x->ranks[r];
        if (r == x->rank) continue;
        if (may_come(x, its)) return false;
        if (in_touch(its) && its->able && its->follows != x->rank && !x->met) return false;
    }
    return true;
}

static void meet(TeamState *x, double now)
{
    x->leader = -1;
    x->step = -1;
    x->met = false;
    x->until = now + x->times.meet_s;
}

static void try(TeamState *x)
{
    x->asked = x->less = false;
    (void)act(x, TEAM_TRY, x->rank);
}

static void end(TeamState *x, TeamEnd how, int rank, int64_t step)
{
    TeamAction *a = act(x, TEAM_OVER, rank);
    a->end = how;
    a->step = step;
    x->over = true;
    if (!x->leads && how == TEAM_SAVED) how = TEAM_FOUND; /* for the others */
    say_to_all(x, (Letter){SAYS_LEFT, (int32_t)how, step}, NULL, 0);
}

/* Ends this rank's save if the state is saved, or if the leader has said that it is not. Meets again if the leader is
   gone, or has left without having led. */
static void heed_ends(TeamState *x, double now)
{
    for (int r = 0; r < x->size; r++) {
        const TeamRank *its = &x->ranks[r];
        bool saved = its->end == TEAM_SAVED || its->end == TEAM_FOUND, mine = r == x->leader;
        if (!its->left) continue;
        if ((mine && leads(x, r)) || (saved && (mine || its->end_step >= x->ranks[x->rank].step))) {
            end(x, its->end, r, its->end_step);
            return;
        }
        if (mine) meet(x, now);
    }
    if (x->leader >= 0 && x->ranks[x->leader].gone) {
        (void)act(x, TEAM_LOST, x->leader);
        meet(x, now);
    }
}

static void settle_leader(TeamState *x, double now)
{
    heed_ends(x, now);
    if (x->over) return;
    if (now >= x->until) x->met = true;
    int leader = choose(x);
    if (leader == NONE) {
        end(x, TEAM_NOBODY, -1, -1);
        return;
    }
    if (leader != WAIT && leader != x->leader) {
        x->leader = leader;
        if (leader != x->rank) {
            say_to_all(x, (Letter){SAYS_FOLLOW, leader, 0}, NULL, 0);
            (void)act(x, TEAM_FOLLOW, leader);
            x->met = true;
            x->until = now + x->times.end_s;
        }
    }
    if (x->leader == x->rank && agreed(x)) {
        x->leads = true;
        say_to_all(x, (Letter){SAYS_FOLLOW, x->rank, 0}, NULL, 0);
        try(x);
    } else if (now >= x->until) {
        end(x, TEAM_UNCLEAR, x->leader, x->step);
    }
}

/* The plans that have come, but for those of ranks that are gone: another one will lead. */
static void settle_plans(TeamState *x)
{
    for (int r = 0; r < x->size; r++) {
        TeamRank *its = &x->ranks[r];
        if (!its->plan.data || its->gone || its->left) continue;
        MEM_PUSH(x->actions, x->n_actions, x->cap_actions, its->plan);
        x->step = its->plan.step;
        its->plan.data = NULL;
    }
}

/* ---- of the leader: the parts ---- */

static void drop(TeamState *x, int rank, const char *why)
{
    x->ranks[rank].due = false;
    x->ranks[rank].dropped = x->less = true;
    act(x, TEAM_DROP, rank)->why = why;
}

static void settle_parts(TeamState *x, double now)
{
    bool due = false;
    for (int r = 0; r < x->size; r++) {
        const TeamRank *its = &x->ranks[r];
        if (!its->due) continue;
        if (its->gone)
            drop(x, r, "it has ended or is frozen");
        else if (its->left || leads(x, r))
            drop(x, r, "it does not take part any more");
        else if (x->wrote && now >= x->until)
            drop(x, r, "it lives, but wrote nothing in time");
        due = due || its->due;
    }
    if (due || !x->wrote) return;
    x->gathers = false;
    (void)act(x, TEAM_GATHERED, x->rank);
}

static void settle(TeamState *x, double now)
{
    if (!x->over && !x->leads) settle_leader(x, now);
    if (!x->over && !x->leads) settle_plans(x);
    if (x->gathers) settle_parts(x, now);
    bool waits = !x->over && (!x->leads || (x->gathers && x->wrote));
    x->wake = waits ? x->until : INFINITY;
}

/* ---- events ---- */

static void take_plan(TeamState *x, const TeamEvent *e)
{
    x->asked = x->gathers = true;
    x->wrote = false;
    x->plan++;
    for (int r = 0; r < x->size; r++) x->ranks[r].due = false;
    for (int i = 0; i < e->n_writers; i++) x->ranks[e->writers[i]].due = e->writers[i] != x->rank;
    say_to_all(x, (Letter){SAYS_PLAN, x->plan, e->step}, e->data, e->size);
}

static void take_outcome(TeamState *x, const TeamEvent *e)
{
    x->gathers = false;
    if (e->end != TEAM_FAILED || !x->scattered || !x->asked) {
        end(x, e->end, x->rank, e->step);
        return;
    }
    for (int r = 0; r < x->size && !x->less; r++) x->ranks[r].dropped = r != x->rank; /* it goes on alone */
    try(x);
}

static void take_letter(TeamState *x, const TeamEvent *e)
{
    TeamRank *from = &x->ranks[e->rank];
    Letter letter;
    if (e->size < sizeof letter) return;
    memcpy(&letter, e->data, sizeof letter);
    const char *data = (const char *)e->data + sizeof letter;
    size_t size = e->size - sizeof letter;
    switch ((Word)letter.word) {
    case SAYS_HERE:
        from->here = true;
        from->able = letter.number;
        from->step = letter.step;
        from->pieces = copy_of(data, size);
        from->size = size;
        break;
    case SAYS_FOLLOW:
        from->follows = letter.number;
        break;
    case SAYS_PLAN:
        free(from->plan.data);
        from->plan =
            (TeamAction){TEAM_WRITE, e->rank, letter.number, letter.step, .data = copy_of(data, size), .size = size};
        break;
    case SAYS_WROTE:
        if (!x->gathers || !from->due || letter.number != x->plan) break;
        from->due = false;
        if (letter.step) {
            TeamAction *a = act(x, TEAM_TAKE, e->rank);
            a->data = copy_of(data, size);
            a->size = size;
        } else {
            drop(x, e->rank, "see its message");
        }
        break;
    case SAYS_LEFT:
        from->left = true;
        from->end = (TeamEnd)letter.number;
        from->end_step = letter.step;
        break;
    }
}

static void begin(TeamState *x, const TeamEvent *e, double now)
{
    TeamRank *me = &x->ranks[x->rank];
    me->here = true;
    me->able = e->able;
    me->step = e->step;
    me->pieces = copy_of(e->data, e->size);
    me->size = e->size;
    say_to_all(x, (Letter){SAYS_HERE, e->able, e->step}, e->data, e->size);
    meet(x, now);
}

static void take_own_part(TeamState *x, const TeamEvent *e, double now)
{
    x->wrote = x->leads;
    x->until = now + (x->leads ? x->times.answer_s : x->times.end_s);
    if (!x->leads) say(x, e->rank, (Letter){SAYS_WROTE, e->number, e->data != NULL}, e->data, e->size);
}

void team_on(TeamState *x, const TeamEvent *e, double now)
{
    x->wake = now; /* decisions are due, until TEAM_TIME */
    switch (e->kind) {
    case TEAM_BEGIN:
        begin(x, e, now);
        break;
    case TEAM_MAIL:
        take_letter(x, e);
        break;
    case TEAM_GONE:
    case TEAM_BACK:
        x->ranks[e->rank].gone = e->kind == TEAM_GONE;
        break;
    case TEAM_TIME:
        settle(x, now);
        break;
    case TEAM_PLANNED:
        take_plan(x, e);
        break;
    case TEAM_WROTE:
        take_own_part(x, e, now);
        break;
    case TEAM_REFUSED:
        x->ranks[e->rank].dropped = x->less = true;
        break;
    case TEAM_TRIED:
        take_outcome(x, e);
        break;
    }
}

void team_state_init(TeamState *x, int rank, int size, bool scattered, TeamTimes times)
{
    *x = (TeamState){.rank = rank, .size = size, .scattered = scattered, .times = times, .leader = -1, .step = -1};
    x->wake = INFINITY;
    x->ranks = mem_array((size_t)size, sizeof *x->ranks);
    for (int r = 0; r < size; r++) x->ranks[r].follows = -1;
}

void team_state_free(TeamState *x)
{
    for (int i = 0; i < x->n_actions; i++) free(x->actions[i].data);
    for (int r = 0; r < x->size; r++) MEM_FREE(x->ranks[r].pieces, x->ranks[r].plan.data);
    MEM_FREE(x->ranks, x->actions);
    *x = (TeamState){0};
}
