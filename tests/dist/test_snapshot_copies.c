/* Copies of slices on other hosts: three ranks, as if each had its own host. No rank waits for a slice that cannot be
   made or arrives damaged: all soon finish that generation, and the next one is complete. */
#include <sys/wait.h>

#include "dist/ranks.h"
#include "slices_of.h"
#include "state/checkpoint_sample.h"
#include "state/snapshot/snapshot_copies.h"

enum { RANKS = 3, REPLICAS = 2 };

static const Digest run_number = {.hi = 7, .lo = 9};

typedef struct {
    const char *dir;
    int damage; /* this rank's slot is flipped behind its digest in generation 3; −1: none */
} Work;

typedef struct {
    SnapshotCopies copies;
    bool damage;
} Hook;

static Status exchange(void *context, Snapshot *own, int slot, bool whole)
{
    Hook *h = context;
    if (h->damage) ((uint8_t *)(uintptr_t)snapshot_slot_data(own, slot))[4096] ^= 1; /* its text */
    h->damage = false;
    return copies_exchange(&h->copies, own, slot, whole);
}

static Snapshot *open_one(const Work *w, int holder, int slice, const ParamTable *t, Intervals *parts)
{
    char *output = mem_printf("%s/out", w->dir), *dir = mem_printf("%s/host%d", w->dir, holder);
    SnapshotPlace place = {.dir = dir,
                           .output = output,
                           .run = run_number,
                           .world = RANKS,
                           .slice = slice,
                           .holder = holder,
                           .own = {{t, &(ParamTable){0}}, {&parts[slice], &(Intervals){0}}}};
    Snapshot *s;
    require(file_make_directories(dir) == OK);
    require(snapshot_open(&place, &s) == OK);
    free(output);
    free(dir);
    return s;
}

/* The complete slices of `generation` on this host. */
static int whole_in(const Work *w, int holder, int64_t generation)
{
    char *dir = mem_printf("%s/host%d", w->dir, holder);
    SnapshotList list;
    int n = 0;
    require(snapshot_find(dir, NULL, &list) == OK);
    for (int i = 0; i < list.count; i++)
        for (int s = 0; s < SNAPSHOT_SLOTS; s++)
            n += list.files[i].slots[s].whole && list.files[i].slots[s].generation == generation;
    snapshot_list_free(&list);
    free(dir);
    return n;
}

static SnapshotOutcome take(Snapshot *own, SnapshotCopies *copies, const Sample *s, int64_t generation, int64_t keep)
{
    SnapshotSource source = {.arrays = {s->arrays[0], s->arrays[1], s->arrays[2]},
                             .generation = generation,
                             .step = s->state.step,
                             .state = s->text,
                             .state_size = s->state.state_size};
    copies->generation = generation;
    copies->keep = keep;
    require(snapshot_begin(own, &source, keep) == OK);
    return snapshot_poll(own, true); /* without a message of the others it would wait for hours */
}

static int work(Comm *c, void *arg)
{
    const Work *w = arg;
    const int node[RANKS] = {0, 1, 2};
    ParamTable t = sample_table();
    Intervals parts[RANKS] = {{0}};
    Hook h = {.damage = false};
    slices_of(&t, NULL, 0, RANKS, parts);
    require(comm_dup(c, &h.copies.comm) == OK);
    copies_place(&h.copies, node, RANKS, RANKS, REPLICAS);
    require(h.copies.count == RANKS * REPLICAS);
    Snapshot *own = open_one(w, c->rank, c->rank, &t, parts);
    for (int i = 0; i < h.copies.count; i++)
        if (h.copies.items[i].holder == c->rank)
            h.copies.items[i].file = open_one(w, c->rank, h.copies.items[i].slice, &t, parts);
    snapshot_set_after(own, exchange, &h);

    Sample *good = sample_of(10), *bad = sample_of(20);
    require(take(own, &h.copies, good, 1, 0) == SNAPSHOT_COMPLETE && whole_in(w, c->rank, 1) == RANKS);
    bad->arrays[0][parts[1].intervals[0].begin] = f32_from_bits(0x7f800000); /* infinite, in rank 1's slice alone */
    SnapshotOutcome outcome = take(own, &h.copies, bad, 2, 1);
    require(outcome == (c->rank == 1 ? SNAPSHOT_FAILED : SNAPSHOT_COMPLETE));
    if (c->rank == 1) require(strstr(status_message(), "step 20: weights are not finite"));
    require(whole_in(w, c->rank, 2) == RANKS - 1 && whole_in(w, c->rank, 1) == RANKS);
    require(comm_barrier(c) == OK);
    h.damage = c->rank == w->damage;
    outcome = take(own, &h.copies, good, 3, 1);
    require(outcome == (c->rank == w->damage ? SNAPSHOT_COMPLETE : SNAPSHOT_FAILED));
    if (c->rank != w->damage) require(strstr(status_message(), "the received copy of generation 3 is not whole"));
    require(whole_in(w, c->rank, 3) == RANKS - 1 && whole_in(w, c->rank, 1) == RANKS);
    require(comm_barrier(c) == OK);
    require(take(own, &h.copies, good, 4, 1) == SNAPSHOT_COMPLETE && whole_in(w, c->rank, 4) == RANKS);
    require(comm_barrier(c) == OK);

    snapshot_close(own);
    for (int i = 0; i < h.copies.count; i++) snapshot_close(h.copies.items[i].file);
    for (int r = 0; r < RANKS; r++) intervals_free(&parts[r]);
    comm_close(h.copies.comm);
    copies_free(&h.copies);
    sample_free(good);
    sample_free(bad);
    return 0;
}

static void test_bad_slice(void **state)
{
    for (int damage = 0; damage < RANKS; damage++) {
        char *dir = mem_printf("%s/%d", (char *)*state, damage);
        Work w = {.dir = dir, .damage = damage};
        assert_ok(file_make_directories(dir));
        Ranks r = ranks_of(RANKS);
        r.arg = &w;
        ranks_run(&r, work);
        free(dir);
    }
}

/* Two hosts with two ranks each; three hosts, one of them with a single rank. */
static void test_holders(void **state)
{
    (void)state;
    const int even[] = {0, 0, 1, 1}, odd[] = {0, 0, 1, 2, 2};
    const int even_holders[] = {2, 3, 0, 1}, odd_holders[] = {2, 2, 3, 0, 1};
    SnapshotCopies c = {0};
    copies_place(&c, even, 4, 2, 1);
    assert_int_equal(c.count, 4);
    for (int i = 0; i < 4; i++) assert_true(c.items[i].slice == i && c.items[i].holder == even_holders[i]);
    copies_free(&c);
    copies_place(&c, odd, 5, 3, 1);
    assert_int_equal(c.count, 5);
    for (int i = 0; i < 5; i++) assert_true(c.items[i].slice == i && c.items[i].holder == odd_holders[i]);
    copies_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holders),
        cmocka_unit_test_setup_teardown(test_bad_slice, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
