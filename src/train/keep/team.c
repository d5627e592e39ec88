/* The meeting of the survivors. */
#include "train/keep/team.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/test_switch.h"
#include "train/keep/team_internal.h"

#define GRACE_S 0.05 /* for a value that is there or never comes */

Status team_put(const Team *t, const char *name, const void *data, size_t size)
{
    if (!t->comm->store) return fail(E_PEER, "there is no store");
    return store_set(t->comm->store, name, data, size);
}

Status team_get(const Team *t, const char *name, double within_s, void **data, size_t *size)
{
    double end = clock_monotonic() + (within_s > GRACE_S ? within_s : GRACE_S);
    if (!t->comm->store) return fail(E_PEER, "there is no store");
    Status status = store_get(t->comm->store, name, end - clock_monotonic(), data, size);
    double left = end - clock_monotonic();
    if (status != OK && left > 0) usleep((useconds_t)(1e6 * left));
    return status;
}

/* ---- announcements ---- */

enum { LEFT = INT32_MAX }; /* the round of a rank whose save has ended */

typedef struct {
    int64_t step; /* that it can write; of one that LEFT as the leader: that it saved */
    int32_t able, round, count, saved;
} Announcement; /* `count` pieces follow */

static void announcement_name(char name[TEAM_NAME_BYTES], int rank)
{
    snprintf(name, TEAM_NAME_BYTES, "survivor-%d", rank);
}

static Status announce(const Team *t, int32_t round, bool able, const TeamMember *m)
{
    Buf text = {0};
    char name[TEAM_NAME_BYTES];
    Announcement head = {.step = m->step, .able = able, .round = round, .count = m->count, .saved = m->saved};
    announcement_name(name, m->rank);
    buf_append(&text, &head, sizeof head);
    if (m->count) buf_append(&text, m->pieces, (size_t)m->count * sizeof *m->pieces);
    Status status = team_put(t, name, text.data, text.len);
    buf_free(&text);
    return status;
}

/* What the rank announced last. False: nothing that can be read. The caller frees m->pieces. */
static bool take_announcement(const Team *t, int rank, double within_s, Announcement *head, TeamMember *m)
{
    void *data = NULL;
    size_t size;
    char name[TEAM_NAME_BYTES];
    announcement_name(name, rank);
    *m = (TeamMember){.rank = rank};
    if (team_get(t, name, within_s, &data, &size) != OK) return false;
    bool good = size >= sizeof *head;
    if (good) memcpy(head, data, sizeof *head);
    good = good && head->count >= 0 && size == sizeof *head + (size_t)head->count * sizeof *m->pieces;
    if (good) {
        m->step = head->step;
        m->saved = head->saved;
        m->count = head->count;
        m->pieces = mem_array((size_t)m->count, sizeof *m->pieces);
        if (m->count) memcpy(m->pieces, (char *)data + sizeof *head, (size_t)m->count * sizeof *m->pieces);
        for (int i = 0; i < m->count; i++) m->pieces[i].rank = rank;
    }
    free(data);
    return good;
}

/* True: the rank can write, or has saved what this rank could. False: it is gone, does not come to this round by
   `until`, or cannot write. */
static bool hear(const Team *t, int rank, double until, TeamMember *m)
{
    for (;;) {
        Announcement head;
        double left = until - clock_monotonic();
        bool gone = comm_gone(t->comm, rank); /* before the last look */
        bool came = take_announcement(t, rank, gone ? 0 : left < TEAM_POLL_S ? left : TEAM_POLL_S, &head, m);
        if (came && head.saved && head.step >= t->members[0].step) return true;
        if (came && head.round >= t->round && head.able && !gone) return true;
        free(m->pieces);
        m->pieces = NULL;
        if (gone || (came && head.round >= t->round) || left <= 0) return false;
        if (came) usleep(20000); /* of an earlier round */
    }
}

static void add_member(Team *t, TeamMember m) { MEM_PUSH(t->members, t->count, t->cap, m); }

void team_meet(Team *t, Comm *c, int round, bool able, TeamMember mine, double within_s)
{
    double until = clock_monotonic() + within_s;
    int lost = comm_lost(c);
    TeamMember m;
    *t = (Team){.comm = c, .leader = able ? c->rank : -1, .round = round, .able = able};
    test_at("meet", c->rank);
    t->deaf = announce(t, round, able, &mine) != OK;
    test_at("announced", c->rank);
    add_member(t, mine);
    for (int r = 0; r < c->size && !t->deaf; r++) {
        if (r == c->rank) continue;
        if (!hear(t, r, r == lost ? 0 : until, &m)) continue;
        if (m.saved || t->leader != c->rank || r < c->rank) {
            t->leader = r;
            free(m.pieces);
            return;
        }
        add_member(t, m);
    }
}

void team_hear_again(Team *t)
{
    int kept = 1;
    for (int i = 1; i < t->count; i++) {
        TeamMember m;
        bool there = hear(t, t->members[i].rank, 0, &m);
        free(t->members[i].pieces);
        if (there && !m.saved)
            t->members[kept++] = m;
        else if (there)
            free(m.pieces);
    }
    t->count = kept;
}

void team_catch_up(Team *t, int rank)
{
    Announcement head;
    TeamMember m;
    if (take_announcement(t, rank, 0, &head, &m) && head.round > t->round && head.round < LEFT) {
        t->round = head.round;
        if (announce(t, t->round, t->able, &t->members[0]) != OK) log_debug("%s", status_message());
    }
    free(m.pieces);
}

void team_part(Team *t)
{
    while (t->count > 1) free(t->members[--t->count].pieces);
}

void team_leave(const Team *t, int64_t saved)
{
    TeamMember none = {.rank = t->comm->rank, .step = saved, .saved = saved >= 0};
    if (!t->deaf && announce(t, LEFT, false, &none) != OK) log_debug("%s", status_message());
}

bool team_choose(const Team *t, SnapshotSet *set, Buf *missing)
{
    SnapshotPiece *all = NULL;
    int count = 0, cap = 0;
    for (int i = 0; i < t->count; i++)
        for (int k = 0; k < t->members[i].count; k++) {
            MEM_PUSH(all, count, cap, t->members[i].pieces[k]);
        }
    snapshot_choose(all, count, set, missing);
    if (set->generation) snapshot_share(all, count, t->comm->rank, set);
    free(all);
    return set->generation != 0;
}

void team_free(Team *t)
{
    for (int i = 0; i < t->count; i++) free(t->members[i].pieces);
    free(t->members);
    *t = (Team){0};
}
