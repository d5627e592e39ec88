#include "train/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_S 30.0 /* for the leader and its members: a launcher may end all when one ends */
#define GRACE_S    0.05 /* for a value that is there or never comes */

enum { NAME_BYTES = 64 };

static Status put(const Team *t, const char *what, int rank, const void *data, size_t size)
{
    char name[NAME_BYTES];
    if (!t->comm->store) return fail(E_PEER, "there is no store");
    snprintf(name, sizeof name, "%s-%d", what, rank);
    return store_set(t->comm->store, name, data, size);
}

static Status get(const Team *t, const char *what, int rank, double within_s, void **data, size_t *size)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s-%d", what, rank);
    return store_get(t->comm->store, name, within_s > GRACE_S ? within_s : GRACE_S, data, size);
}

/* ---- who can write ---- */

typedef struct {
    int64_t step;
    int32_t able, count;
} Announcement; /* `count` pieces follow */

static bool announce(const Team *t, bool able, const TeamMember *m)
{
    Buf text = {0};
    Announcement head = {m->step, able, m->count};
    buf_append(&text, &head, sizeof head);
    if (m->count) buf_append(&text, m->pieces, (size_t)m->count * sizeof *m->pieces);
    bool done = put(t, "survivor", m->rank, text.data, text.len) == OK;
    buf_free(&text);
    return done;
}

/* False: the rank does not come in time, or cannot write. */
static bool hear(const Team *t, int rank, double within_s, TeamMember *m)
{
    void *data = NULL;
    size_t size;
    Announcement head = {0};
    *m = (TeamMember){.rank = rank};
    if (get(t, "survivor", rank, within_s, &data, &size) != OK) return false;
    if (size >= sizeof head) memcpy(&head, data, sizeof head);
    bool able = head.able && head.count >= 0 && size == sizeof head + (size_t)head.count * sizeof *m->pieces;
    if (able) {
        m->step = head.step;
        m->count = head.count;
        m->pieces = mem_array((size_t)head.count, sizeof *m->pieces);
        if (head.count) memcpy(m->pieces, (char *)data + sizeof head, (size_t)head.count * sizeof *m->pieces);
        for (int i = 0; i < m->count; i++) m->pieces[i].rank = rank;
    }
    free(data);
    return able;
}

static void add_member(Team *t, TeamMember m)
{
    MEM_GROW(t->members, t->count, t->cap);
    t->members[t->count++] = m;
}

void team_meet(Team *t, Comm *c, bool able, TeamMember mine, double within_s)
{
    double until = clock_monotonic() + within_s;
    int lost = comm_lost(c);
    TeamMember m;
    *t = (Team){.comm = c, .leader = able ? c->rank : -1};
    t->deaf = !c->store || !announce(t, able, &mine);
    add_member(t, mine);
    for (int r = 0; r < c->size && !t->deaf; r++) {
        if (r == c->rank) continue;
        if (!hear(t, r, r == lost ? 0 : until - clock_monotonic(), &m)) continue;
        if (t->leader != c->rank || r < c->rank) {
            t->leader = r;
            free(m.pieces);
            return;
        }
        add_member(t, m);
    }
}

SnapshotPiece *team_pieces(const Team *t, int *count)
{
    SnapshotPiece *all = NULL;
    int cap = 0;
    *count = 0;
    for (int i = 0; i < t->count; i++)
        for (int k = 0; k < t->members[i].count; k++) {
            MEM_GROW(all, *count, cap);
            all[(*count)++] = t->members[i].pieces[k];
        }
    return all;
}

/* ---- who writes what ---- */

typedef struct {
    int64_t step;
    int32_t writers, pieces;
} Plan; /* `writers` ranks (int32_t) and `pieces` pieces follow. A single byte: nothing is to be done */

/* One part in a member's answer; the intervals of both spaces follow. */
typedef struct {
    Digest digest;
    int64_t count[2];
} Written;

static Status write_part(const TeamSource *s, int64_t step, const CheckpointPart *part, CheckpointRead read,
                         void *context, Buf *answer)
{
    Written w = {.count = {part->part[0]->count, part->params[1] ? part->part[1]->count : 0}};
    TRY(checkpoint_write_part(s->out, step, part, read, context, &w.digest));
    buf_append(answer, &w, sizeof w);
    for (int space = 0; space < 2; space++)
        if (w.count[space]) buf_append(answer, part->part[space]->intervals, (size_t)w.count[space] * sizeof(Interval));
    return OK;
}

/* Writer i's even share of the space. */
static Interval share_of(const ParamTable *params, int i, int writers)
{
    return (Interval){params->size * i / writers, params->size * (i + 1) / writers};
}

/* This rank's part: its pieces, or share number `i` of its own state. */
static Status write_mine(const TeamSource *s, int64_t step, int rank, int i, int writers, Buf *answer)
{
    if (!s->plan) {
        Interval x = share_of(s->params, i, writers);
        CheckpointPart part = {{s->params}, {&(Intervals){&x, 1, 1, x.end - x.begin}}};
        return write_part(s, step, &part, s->read, s->context, answer);
    }
    for (int k = 0; k < s->n_plan; k++) {
        const SnapshotPiece *p = &s->plan[k];
        if (p->rank != rank) continue;
        if (p->file < 0 || p->file >= s->list->count) return fail(E_FAIL, "the plan of the save is not valid");
        PersistPiece piece = {&s->list->files[p->file], p->slot};
        CheckpointPart part = persist_part(&piece);
        TRY(write_part(s, step, &part, persist_read, &piece, answer));
    }
    return OK;
}

Status team_follow(Team *t, const TeamSource *source, int64_t *step)
{
    Status status = OK;
    TeamSource mine = *source;
    void *data = NULL, *end = NULL;
    size_t size = 0, end_size;
    Buf answer = {0};
    Plan plan = {0};
    *step = -1;
    TRY_DONE(get(t, "survivors-plan", t->leader, PATIENCE_S, &data, &size));
    if (size >= sizeof plan) memcpy(&plan, data, sizeof plan);
    size_t ranks = (size_t)plan.writers * sizeof(int32_t), pieces = (size_t)plan.pieces * sizeof(SnapshotPiece);
    if (size < sizeof plan || size != sizeof plan + ranks + pieces) goto done;
    *step = plan.step;
    SnapshotPiece *copy = mem_array((size_t)plan.pieces, sizeof *copy); /* aligned */
    memcpy(copy, (char *)data + sizeof plan + ranks, pieces);
    mine.plan = plan.pieces ? copy : NULL;
    mine.n_plan = plan.pieces;
    for (int i = 0; i < plan.writers && status == OK; i++) {
        int32_t rank;
        memcpy(&rank, (char *)data + sizeof plan + (size_t)i * sizeof rank, sizeof rank);
        if (rank == t->comm->rank) status = write_mine(&mine, plan.step, rank, i, plan.writers, &answer);
    }
    if (status != OK) log_warn("this rank's part of the save: %s", status_message());
    free(copy);
    if (status != OK) (void)put(t, "survivors-wrote", t->comm->rank, "-", 1);
    else if (answer.len) (void)put(t, "survivors-wrote", t->comm->rank, answer.data, answer.len);
    (void)get(t, "survivors-saved", t->leader, PATIENCE_S, &end, &end_size);
done:
    free(end);
    free(data);
    buf_free(&answer);
    return status;
}

static Status read_state(void *state, int array, int64_t begin, int64_t end, float *to)
{
    const TrainingState *t = state;
    const float *from[] = {t->weights, t->m, t->v};
    memcpy(to, from[array] + begin, (size_t)(end - begin) * sizeof *to);
    return OK;
}

/* Takes the intervals of a part from an answer. False: it is cut. */
static bool take_intervals(const char **data, size_t *size, int64_t count, Intervals *list)
{
    *list = (Intervals){0};
    if (count < 0 || (uint64_t)count > *size / sizeof(Interval)) return false;
    for (int64_t i = 0; i < count; i++) {
        Interval x;
        memcpy(&x, *data + (size_t)i * sizeof x, sizeof x);
        intervals_add(list, x.begin, x.end);
    }
    *data += (size_t)count * sizeof(Interval);
    *size -= (size_t)count * sizeof(Interval);
    return true;
}

/* What a member says it wrote, against the files, and against the leader's own state where it has one. */
static Status check_answer(const TeamFill *f, const TrainingState *t, const char *data, size_t size)
{
    Status status = OK;
    while (size > 0 && status == OK) {
        Written w;
        Digest own;
        Intervals lists[2] = {{0}};
        CheckpointPart part = {{t->params, t->sets[0] ? NULL : t->kfac}, {&lists[0], &lists[1]}};
        if (size < sizeof w) return fail(E_PEER, "its answer is cut");
        memcpy(&w, data, sizeof w);
        data += sizeof w;
        size -= sizeof w;
        for (int space = 0; space < 2 && status == OK; space++)
            if (!take_intervals(&data, &size, w.count[space], &lists[space]))
                status = fail(E_PEER, "its answer is cut");
        if (status == OK) status = checkpoint_check_part(f->source.out, t->step, &part, w.digest);
        if (status == OK && t->weights) {
            status = checkpoint_part_digest(&part, read_state, (void *)(uintptr_t)t, &own);
            if (status == OK && !digest_equal(own, w.digest)) status = fail(E_CORRUPT, "its state has other bits");
        }
        for (int space = 0; space < 2; space++) intervals_free(&lists[space]);
    }
    return status;
}

/* The members that write: all with a piece in the plan, or all whose own state is of this step. The leader is first. */
static int choose_writers(const TeamFill *f, int32_t *ranks)
{
    int n = 0;
    for (int i = 0; i < f->team->count; i++) {
        const TeamMember *m = &f->team->members[i];
        bool writes = !f->source.plan && m->step == f->step;
        for (int k = 0; k < f->source.n_plan; k++) writes = writes || f->source.plan[k].rank == m->rank;
        if (writes) ranks[n++] = m->rank;
    }
    return n;
}

Status team_fill(void *team_fill, const TrainingState *t)
{
    TeamFill *f = team_fill;
    Team *team = f->team;
    const TeamSource *s = &f->source;
    int me = team->comm->rank;
    Status status = OK;
    Buf text = {0}, own = {0};
    TeamSource mine = *s;
    if (t->weights) { /* a copy in the save buffer, perhaps; training has ended, so both are the same */
        mine.read = read_state;
        mine.context = (void *)(uintptr_t)t;
    }
    int32_t *ranks = mem_array((size_t)team->count, sizeof *ranks);
    int writers = choose_writers(f, ranks);
    Plan plan = {t->step, writers, s->n_plan};
    buf_append(&text, &plan, sizeof plan);
    buf_append(&text, ranks, (size_t)writers * sizeof *ranks);
    if (s->n_plan) buf_append(&text, s->plan, (size_t)s->n_plan * sizeof *s->plan);
    team->planned = true;
    TRY_DONE(put(team, "survivors-plan", me, text.data, text.len));
    TRY_DONE(write_mine(&mine, t->step, me, 0, writers, &own));
    TRY_DONE(check_answer(f, t, own.data, own.len));
    double until = clock_monotonic() + PATIENCE_S;
    for (int i = 0; i < writers; i++) {
        void *data = NULL;
        size_t size = 0;
        if (ranks[i] == me) continue;
        status = get(team, "survivors-wrote", ranks[i], until - clock_monotonic(), &data, &size);
        if (status == OK && size <= 1) status = fail(E_PEER, "see its message");
        if (status == OK) status = check_answer(f, t, data, size);
        free(data);
        if (status == OK) continue;
        char *why = mem_strdup(status_message());
        status = fail(E_PEER, "%s did not write its part: %s", comm_peer_name(team->comm, ranks[i]), why);
        free(why);
        goto done;
    }
    team->writers = writers;
done:
    buf_free(&text);
    buf_free(&own);
    free(ranks);
    return status;
}

void team_end(Team *t)
{
    int me = t->comm->rank;
    if (t->deaf) return;
    if (!t->planned && put(t, "survivors-plan", me, "-", 1) != OK) log_debug("%s", status_message());
    if (put(t, "survivors-saved", me, "1", 1) != OK) log_debug("%s", status_message());
}

void team_free(Team *t)
{
    for (int i = 0; i < t->count; i++) free(t->members[i].pieces);
    free(t->members);
    *t = (Team){0};
}
