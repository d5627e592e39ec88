/* The driver of one survivor's machine. */
#include "train/keep/team.h"

#include "base/test_switch.h"

#define MEET_MOST_S 5.0
#define ANSWER_S    30.0
#define END_S       120.0 /* a launcher may end all when one ends */
#define LOOK_S      2.0   /* between looks at the ranks that are gone, at most */

/* The letters at the head of the actions. */
static void send_letters(Team *t)
{
    TeamState *x = &t->state;
    for (; t->next < x->n_actions && x->actions[t->next].kind == TEAM_SEND; t->next++) {
        TeamAction *a = &x->actions[t->next];
        watch_send(comm_watch(t->comm), a->rank, MAIL_SURVIVOR, a->data, a->size);
        free(a->data);
        a->data = NULL;
    }
}

void team_tell(Team *t, TeamEvent event)
{
    team_on(&t->state, &event, clock_monotonic());
    send_letters(t);
}

static void hear_until(Team *t, double until)
{
    TeamState *x = &t->state;
    Watch *watch = comm_watch(t->comm);
    bool *gone = mem_array((size_t)x->size, sizeof *gone);
    Mail mail;
    bool came = watch && watch_receive(watch, MAIL_SURVIVOR, until, &mail);
    for (int r = 0; r < x->size; r++) gone[r] = watch_peer(watch, r, 0) != PEER_WELL; /* before the last look */
    for (; came || (watch && watch_receive(watch, MAIL_SURVIVOR, 0, &mail)); came = false) {
        team_tell(t, (TeamEvent){.kind = TEAM_MAIL, .rank = mail.from, .data = mail.data, .size = mail.size});
        free(mail.data);
    }
    for (int r = 0; r < x->size; r++)
        if (gone[r] != x->ranks[r].gone) team_tell(t, (TeamEvent){.kind = gone[r] ? TEAM_GONE : TEAM_BACK, .rank = r});
    team_tell(t, (TeamEvent){.kind = TEAM_TIME});
    free(gone);
}

void team_hear(Team *t) { hear_until(t, 0); }

bool team_next(Team *t, TeamAction *action)
{
    TeamState *x = &t->state;
    for (;;) {
        send_letters(t);
        if (t->next < x->n_actions) {
            *action = x->actions[t->next];
            x->actions[t->next++].data = NULL;
            return true;
        }
        t->next = x->n_actions = 0;
        if (x->over) return false;
        hear_until(t, fmin(x->wake, clock_monotonic() + LOOK_S));
    }
}

void team_begin(Team *t, Comm *c, bool scattered, bool able, int64_t step, const SnapshotPiece *pieces, int count)
{
    TeamTimes times = {.meet_s = fmin(c->peer_timeout_s / 2, test_seconds("SURVIVE", MEET_MOST_S)),
                       .answer_s = test_seconds("SURVIVE", ANSWER_S),
                       .end_s = test_seconds("SURVIVE", END_S)};
    *t = (Team){.comm = c};
    team_state_init(&t->state, c->rank, c->size, scattered, times);
    test_at("meet", c->rank);
    team_tell(
        t, (TeamEvent){
               .kind = TEAM_BEGIN, .able = able, .step = step, .data = pieces, .size = (size_t)count * sizeof *pieces});
    test_at("announced", c->rank);
}

bool team_choose(const Team *t, SnapshotSet *set, Buf *missing)
{
    SnapshotPiece *all = NULL;
    int count = 0, cap = 0;
    for (int r = 0; r < t->state.size; r++) {
        const TeamRank *its = &t->state.ranks[r];
        const SnapshotPiece *pieces = its->pieces;
        size_t n = team_has(&t->state, r) ? its->size / sizeof *pieces : 0;
        for (size_t k = 0; k < n; k++) {
            MEM_PUSH(all, count, cap, pieces[k]);
            all[count - 1].rank = r;
        }
    }
    snapshot_choose(all, count, set, missing);
    if (set->generation) snapshot_share(all, count, t->state.rank, set);
    free(all);
    return set->generation != 0;
}

bool team_alone(const Team *t)
{
    for (int r = 0; r < t->state.size; r++)
        if (r != t->state.rank && team_has(&t->state, r)) return false;
    return true;
}

void team_free(Team *t)
{
    team_state_free(&t->state);
    *t = (Team){0};
}
