#include "holding/move.h"

/* The walk of a list of intervals: those before `at` lie behind it. */
typedef struct {
    const Intervals *list;
    int at;
} Walk;

typedef struct {
    Comm *comm;
    const MoveEnds *ends;
    int ranks, rank;
    Walk *from, *to; // (ranks)
    int *members;    // (n) of a piece: the rank that gives it, then those that it comes to
    int n;
    float *block; // (MOVE_MOST)
    Status status;
    char *message; /* of the first failure */
} Move;

static void note(Move *m, Status status)
{
    if (status == OK || m->status != OK) return;
    m->status = status;
    m->message = mem_strdup(status_message());
}

/* Whether the list has the element `at`, which only grows; *end comes down to where that changes. */
static bool walk_has(Walk *w, int64_t at, int64_t *end)
{
    while (w->at < w->list->count && w->list->intervals[w->at].end <= at) w->at++;
    if (w->at == w->list->count) return false;
    const Interval *v = &w->list->intervals[w->at];
    bool has = v->begin <= at;
    int64_t next = has ? v->end : v->begin;
    if (next < *end) *end = next;
    return has;
}

/* The piece that begins at `at`. */
static int64_t find_members(Move *m, int64_t at)
{
    int64_t end = INT64_MAX;
    int giver = -1;
    m->n = 0;
    for (int r = 0; r < m->ranks; r++)
        if (walk_has(&m->from[r], at, &end) && giver < 0) giver = r;
    m->members[m->n++] = giver;
    for (int r = 0; r < m->ranks; r++)
        if (walk_has(&m->to[r], at, &end) && r != giver) m->members[m->n++] = r;
    return end;
}

/* To all members along a binomial tree, in which each receives once and then sends. */
static Status pass(const Move *m, float *data, size_t bytes)
{
    int mine = 0, bit = 1;
    while (mine < m->n && m->members[mine] != m->rank) mine++;
    if (mine == m->n) return OK;
    for (; bit < m->n; bit *= 2)
        if (mine & bit) {
            TRY(comm_receive(m->comm, m->members[mine - bit], data, bytes));
            break;
        }
    for (bit /= 2; bit >= 1; bit /= 2)
        if (mine + bit < m->n) TRY(comm_send(m->comm, m->members[mine + bit], data, bytes));
    return OK;
}

/* `keeps`: the piece also comes to the rank that gives it. */
static Status move_piece(Move *m, int64_t begin, int64_t end, bool keeps)
{
    const MoveEnds *ends = m->ends;
    bool gives = m->members[0] == m->rank, comes = gives && keeps && !ends->in_place;
    size_t bytes = (size_t)(end - begin) * sizeof *m->block;
    for (int i = 1; i < m->n; i++) comes = comes || m->members[i] == m->rank;
    float *given = gives && ends->given_at ? ends->given_at(ends->giver, begin) : NULL;
    float *taken = comes && ends->taken_at ? ends->taken_at(ends->taker, begin) : NULL;
    float *data = given ? given : taken ? taken : m->block; /* on its way */
    if (gives && !given && (m->n > 1 || comes)) note(m, ends->read(ends->giver, begin, end, data));
    TRY(pass(m, data, bytes));
    if (comes && !taken) note(m, ends->write(ends->taker, begin, end, data));
    if (taken && taken != data) memcpy(taken, data, bytes);
    return OK;
}

static bool has(const Walk *w, int64_t at) { return w->at < w->list->count && w->list->intervals[w->at].begin <= at; }

static Status move_all(Move *m)
{
    for (int64_t at = 0, end; (end = find_members(m, at)) != INT64_MAX; at = end) {
        int giver = m->members[0];
        for (int64_t next; giver >= 0 && at < end; at = next) {
            next = end - at < MOVE_MOST ? end : at + MOVE_MOST;
            TRY(move_piece(m, at, next, has(&m->to[giver], at)));
        }
    }
    return OK;
}

Status holding_move(Comm *comm, const Intervals *from, const Intervals *to, const MoveEnds *ends)
{
    int ranks = comm ? comm->size : 1;
    Move m = {.comm = comm, .ends = ends, .ranks = ranks, .rank = comm ? comm->rank : 0};
    m.from = mem_array((size_t)ranks, sizeof *m.from);
    m.to = mem_array((size_t)ranks, sizeof *m.to);
    m.members = mem_array((size_t)ranks + 1, sizeof *m.members);
    m.block = mem_array(MOVE_MOST, sizeof *m.block);
    for (int r = 0; r < ranks; r++) {
        m.from[r].list = &from[r];
        m.to[r].list = &to[r];
    }
    Status status = move_all(&m);
    if (status == OK && m.status != OK) status = fail(m.status, "%s", m.message);
    MEM_FREE(m.from, m.to, m.members, m.block, m.message);
    return status;
}
