/* Moves over random grids: collect, then spread, is the identity for any two grids of a model. */
#include "testing.h"

#include "fiber_ranks.h"
#include "holding/move.h"
#include "holding_draw.h"

/* An end is a whole array, or this rank's elements of one as a run has them. */
typedef struct {
    const Run *run; /* NULL: the whole array */
    float *x[RANKS_MOST];
} End;

typedef struct {
    HeldKind kind;
    int64_t size;
    int ranks;
    const Intervals *from, *to; // (ranks)
    End giver, taker;
    bool in_place, partly; /* `partly`: nobody gives some elements */
    int failing, calls;    /* a rank whose read number `calls` (from 0) fails; −1: none */
    bool failing_write;
} Moves;

typedef struct {
    const Moves *moves;
    int rank, reads, writes;
    int64_t at, written;
} Mover;

static void fill_values(uint64_t *random, int64_t size, float *values)
{
    uint64_t seed = testing_random(random);
    for (int64_t e = 0; e < size; e++) values[e] = value(seed, 0, e);
}

static float *place_in(const Mover *m, const End *end, int64_t begin, int64_t last)
{
    const Moves *s = m->moves;
    if (!end->run) return end->x[m->rank] + begin;
    const Holding *h = &end->run->h[m->rank];
    int64_t place = holding_place(h, s->kind, m->rank, begin);
    bool whole =
        holding_has(h, s->kind, m->rank, begin) && holding_place(h, s->kind, m->rank, last) - place == last - begin;
    return whole ? end->x[m->rank] + place : NULL;
}

static bool within(const Intervals *list, int64_t begin, int64_t end)
{
    Interval v = {begin, begin};
    return intervals_next(list, end, &v) && v.begin == begin && v.end == end;
}

static Status read_values(void *giver, int64_t begin, int64_t end, float *to)
{
    Mover *m = giver;
    const Moves *s = m->moves;
    const float *from = place_in(m, &s->giver, begin, end - 1);
    EXPECT(from && within(&s->from[m->rank], begin, end) && end - begin <= MOVE_MOST, "rank %d reads %lld to %lld",
           m->rank, (Long)begin, (Long)end);
    if (m->reads++ == s->calls && m->rank == s->failing && !s->failing_write) return fail(E_IO, "an unreadable piece");
    memcpy(to, from, (size_t)(end - begin) * sizeof *to);
    return OK;
}

static Status write_values(void *taker, int64_t begin, int64_t end, const float *from)
{
    Mover *m = taker;
    const Moves *s = m->moves;
    float *to = place_in(m, &s->taker, begin, end - 1);
    EXPECT(to && within(&s->to[m->rank], begin, end) && begin >= m->at, "rank %d writes %lld to %lld behind %lld",
           m->rank, (Long)begin, (Long)end, (Long)m->at);
    m->at = end;
    m->written += end - begin;
    if (m->writes++ == s->calls && m->rank == s->failing && s->failing_write) return fail(E_IO, "an unreadable piece");
    memcpy(to, from, (size_t)(end - begin) * sizeof *to);
    return OK;
}

/* Where elements lie, with which they need no copy. */
static float *given_at(void *giver, int64_t begin)
{
    return place_in(giver, &((Mover *)giver)->moves->giver, begin, begin);
}

static float *taken_at(void *taker, int64_t begin)
{
    return place_in(taker, &((Mover *)taker)->moves->taker, begin, begin);
}

static Status move_rank(int rank, void *arg)
{
    const Moves *s = arg;
    static const int everyone[RANKS_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    Comm comm = fiber_comm(everyone, s->ranks, rank);
    Mover m = {.moves = s, .rank = rank};
    int64_t way = s->failing >= 0 ? 3 : (s->from[0].size / NORM_BLOCK + rank) % 4; /* with calls, or without */
    const MoveEnds ends = {.giver = &m,
                           .taker = &m,
                           .read = read_values,
                           .write = write_values,
                           .given_at = way & 1 ? NULL : given_at,
                           .taken_at = way & 2 ? NULL : taken_at,
                           .in_place = s->in_place};
    TRY(holding_move(s->ranks > 1 ? &comm : NULL, s->from, s->to, &ends));
    EXPECT(s->in_place || s->partly || ends.taken_at || m.written == s->to[rank].size,
           "%lld of %lld elements came to rank %d", (Long)m.written, (Long)s->to[rank].size, rank);
    return OK;
}

/* What a rank has of `values`, which are of all elements; NULL: zeros. */
static float *make_array(const Run *r, HeldKind kind, int rank, const float *values)
{
    const Intervals *has = &r->h[0].has[kind][rank];
    float *x = mem_array((size_t)has->size, sizeof *x), *to = x;
    for (int i = 0; values && i < has->count; i++) {
        Interval v = has->intervals[i];
        memcpy(to, values + v.begin, (size_t)(v.end - v.begin) * sizeof *to);
        to += v.end - v.begin;
    }
    return x;
}

/* The arrays of a run have the values; what was moved is taken out again. */
static Status check_arrays(const Run *r, HeldKind kind, const float *values, End *end)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        size_t bytes = (size_t)r->h[0].has[kind][rank].size * sizeof(float);
        float *expected = make_array(r, kind, rank, values);
        bool same = memcmp(end->x[rank], expected, bytes) == 0;
        memset(end->x[rank], 0, bytes);
        free(expected);
        EXPECT(same, "rank %d has other values of kind %d than were moved", rank, (int)kind);
    }
    return OK;
}

/* One call fails on one rank: all ranks return, and that one says why. */
static Status check_failure(Moves *m, uint64_t *random)
{
    int f = m->failing = (int)draw_below(random, m->ranks);
    m->calls = 0;
    m->failing_write = draw_below(random, 2);
    TRY(fibers_run(m->ranks, random, move_rank, m));
    bool called = m->failing_write ? m->to[f].size > 0 : fibers.of[f].status != OK;
    for (int r = 0; r < m->ranks; r++) {
        Status expected = r == f && called ? E_IO : OK;
        EXPECT(fibers.of[r].status == expected, "rank %d returns %s where a call of rank %d fails", r,
               status_name(fibers.of[r].status), f);
        EXPECT(expected == OK || strcmp(fibers.of[r].message, "an unreadable piece") == 0, "the message is %s",
               fibers.of[r].message);
    }
    m->failing = -1;
    return OK;
}

static Status check_moves(Draw *d, HeldKind kind)
{
    const Run *a = &d->run[0], *b = &d->run[1];
    static const Intervals none;
    int64_t size = a->h[0].params[held_space(kind)]->size;
    End has_a = {.run = a}, has_b = {.run = b}, whole = {.x = {mem_array((size_t)size, sizeof(float))}};
    float *values = mem_array((size_t)size, sizeof *values);
    Intervals first[RANKS_MOST] = {{0}}, own[RANKS_MOST] = {{0}}, to[RANKS_MOST] = {{0}};
    int most = a->ranks > b->ranks ? a->ranks : b->ranks;
    Status status = OK;
    intervals_add(first, 0, size);
    fill_values(&d->random, size, values);
    for (int r = 0; r < RANKS_MOST; r++) {
        own[r] = r < a->ranks ? a->h[0].own[held_space(kind)][r] : none;
        to[r] = r < b->ranks ? b->h[0].has[kind][r] : none;
        if (r < a->ranks) has_a.x[r] = make_array(a, kind, r, values);
        if (r < b->ranks) has_b.x[r] = make_array(b, kind, r, NULL);
    }
    Moves collect = {kind, size, a->ranks, a->h[0].has[kind], first, has_a, whole, .failing = -1};
    Moves spread = {kind, size, b->ranks, first, b->h[0].has[kind], whole, has_b, .failing = -1};
    Moves direct = {kind, size, most, own, to, has_a, has_b, .failing = -1};
    TRY_DONE(fibers_succeed(a->ranks, &d->random, move_rank, &collect));
    if (memcmp(whole.x[0], values, (size_t)size * sizeof *values) != 0)
        TRY_DONE(fail(E_FAIL, "other values of kind %d came to rank 0", (int)kind));
    TRY_DONE(fibers_succeed(b->ranks, &d->random, move_rank, &spread));
    TRY_DONE(check_arrays(b, kind, values, &has_b));
    if (b->h[0].has[kind][0].size == size) { /* rank 0 has all where it uses them */
        memcpy(has_b.x[0], whole.x[0], (size_t)size * sizeof(float));
        spread.giver = has_b;
        spread.in_place = true;
        TRY_DONE(fibers_succeed(b->ranks, &d->random, move_rank, &spread));
        TRY_DONE(check_arrays(b, kind, values, &has_b));
    }
    if (draw_below(&d->random, 4) == 0) TRY_DONE(check_failure(&direct, &d->random));
    TRY_DONE(fibers_succeed(most, &d->random, move_rank, &direct));
    TRY_DONE(check_arrays(b, kind, values, &has_b));
done:
    for (int r = 0; r < RANKS_MOST; r++) MEM_FREE(has_a.x[r], has_b.x[r]);
    MEM_FREE(whole.x[0], values);
    intervals_free(first);
    return status;
}

static Status check_pair(Draw *d)
{
    TRY(check_moves(d, HELD_WEIGHTS));
    if (d->run[0].h[0].shard || d->run[1].h[0].shard) TRY(check_moves(d, HELD_MOMENTS));
    return d->kfac.interval ? check_moves(d, HELD_SETS) : OK;
}

static void test_random_grids(void **state)
{
    (void)state;
    walk_grids(check_pair);
    fibers_free();
}

/* An interval is longer than a piece; of two givers the lower rank's values come; what nobody gives stays. */
static void test_long_intervals(void **state)
{
    enum { RANKS = 3, SIZE = 5 * MOVE_MOST / 2, GAP = MOVE_MOST / 3 };
    Intervals from[RANKS] = {{0}}, to[RANKS] = {{0}};
    End giver = {NULL, {NULL}}, taker = {NULL, {NULL}};
    uint64_t random = GRIDS_SEED;
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        giver.x[r] = mem_array(SIZE, sizeof(float));
        taker.x[r] = mem_array(SIZE, sizeof(float));
        for (int64_t e = 0; e < SIZE; e++) giver.x[r][e] = (float)(r + 1);
        intervals_add(&to[r], r, SIZE - r);
    }
    intervals_add(&from[2], 0, SIZE);
    from[2].intervals[0].end -= GAP;
    from[2].size -= GAP;
    intervals_add(&from[1], GAP, SIZE - GAP);
    Moves m = {HELD_WEIGHTS, SIZE, RANKS, from, to, giver, taker, .failing = -1, .partly = true};
    assert_ok(fibers_succeed(RANKS, &random, move_rank, &m));
    for (int r = 0; r < RANKS; r++) {
        for (int64_t e = 0; e < SIZE; e++) {
            float expected = e < r || e >= SIZE - GAP ? 0 : e < GAP ? 3 : 2;
            if (taker.x[r][e] != expected) fail_msg("rank %d: element %lld is %g", r, (Long)e, (double)taker.x[r][e]);
        }
        intervals_free(&from[r]);
        intervals_free(&to[r]);
        MEM_FREE(giver.x[r], taker.x[r]);
    }
    fibers_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grids), cmocka_unit_test(test_long_intervals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
