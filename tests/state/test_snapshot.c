/* Snapshots in memory: readers get the written bits, at any number of ranks; they name and never use files that are
   torn, flipped, missing or of another run; a kill at any moment leaves a whole generation. */
#include "snapshot_world.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

enum { KILLS = 120 };

/* ---- writing and reading ---- */

static void test_round_trip_at_any_number_of_ranks(void **state)
{
    for (int n = 1; n <= MOST_RANKS; n++) {
        char *dir = mem_printf("%s/%d", (char *)*state, n);
        assert_ok(file_make_directories(dir));
        World *w = world_open(dir, n);
        assert_int_equal(step_of(w), 0);
        for (int64_t step = 1; step <= 5; step++) {
            write_all(w, 10 * step, step);
            assert_int_equal(step_of(w), 10 * step);
        }
        world_close(w);
        assert_int_equal(read_step(dir, NULL, NULL), 50); /* after the processes */
        free(dir);
    }
}

static void test_files_are_private(void **state)
{
    struct stat st;
    World *w = world_open(*state, 2);
    char *name = snapshot_name(w->output, 2, 1, 1), *path = file_join(w->dir, name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chmod(path, 0644), 0); /* open to other users, so not trusted */
    write_all(w, 3, 1);
    assert_int_equal(step_of(w), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(step_of(w), 3);
    world_close(w);
    free(name);
    free(path);
}

static void test_the_generation_before_stays(void **state)
{
    Buf missing = {0};
    World *w = world_open(*state, 3);
    Sample *s = sample_of(8);
    write_all(w, 7, 1);
    assert_int_equal(write_rank(w, 0, s, 2, 1), SNAPSHOT_COMPLETE);
    assert_int_equal(write_rank(w, 2, s, 2, 1), SNAPSHOT_COMPLETE);
    assert_int_equal(read_step(w->dir, w->output, &missing), 7);
    assert_non_null(strstr(missing.data, "generation 2 (step 8) of 3 slices lacks number 1"));
    assert_int_equal(write_rank(w, 1, s, 2, 1), SNAPSHOT_COMPLETE);
    assert_int_equal(step_of(w), 8);
    buf_free(&missing);
    sample_free(s);
    world_close(w);
}

/* A process that resumes uses the same files, and does not touch the generation that it resumed from, even if one rank
   holds part of a newer one. */
static void test_resuming_keeps_its_generation(void **state)
{
    World *w = world_open(*state, 2);
    Sample *s = sample_of(21);
    write_all(w, 20, 4);
    assert_int_equal(write_rank(w, 0, s, 5, 4), SNAPSHOT_COMPLETE);
    world_close(w);
    w = world_open(*state, 2);
    assert_int_equal(snapshot_newest(w->ranks[0]), 5);
    assert_int_equal(step_of(w), 20);
    assert_int_equal(write_rank(w, 0, s, 6, 4), SNAPSHOT_COMPLETE);
    assert_int_equal(step_of(w), 20);
    assert_int_equal(write_rank(w, 1, s, 6, 4), SNAPSHOT_COMPLETE);
    assert_int_equal(step_of(w), 21);
    sample_free(s);
    world_close(w);
}

/* A run continued without the host that held the newest generation, so its later steps have lower numbers. Then that
   host is back. */
static void test_a_later_step_wins_over_a_higher_number(void **state)
{
    (void)state;
    SnapshotPiece pieces[] = {
        {.generation = 20, .step = 40, .world = 2, .slice = 0}, {.generation = 20, .step = 40, .world = 2, .slice = 1},
        {.generation = 6, .step = 80, .world = 2, .slice = 0},  {.generation = 5, .step = 60, .world = 2, .slice = 1},
        {.generation = 5, .step = 60, .world = 2, .slice = 0},  {.generation = 4, .step = 60, .world = 2, .slice = 0},
        {.generation = 4, .step = 60, .world = 2, .slice = 1}};
    SnapshotSet set;
    Buf missing = {0};
    snapshot_choose(pieces, sizeof pieces / sizeof *pieces, &set, &missing);
    assert_int_equal(set.step, 60);
    assert_int_equal(set.generation, 5); /* the larger number of one step */
    assert_int_equal(set.newest, 20);    /* so that the next one is 21 */
    assert_string_equal(missing.data, "generation 6 (step 80) of 2 slices lacks number 1");
    snapshot_set_free(&set);
    buf_free(&missing);
    snapshot_choose(pieces, 3, &set, NULL);
    assert_int_equal(set.step, 40);
    snapshot_set_free(&set);
}

/* Ranks 1 and 2 are left of a host of three, and rank 3 of another, with a copy of slice 1 there. */
static void test_slices_are_shared_out(void **state)
{
    (void)state;
    enum { WORLD = 4, MEMBERS = 3 };
    static const int members[MEMBERS] = {1, 2, 3};
    SnapshotPiece pieces[MEMBERS * 2 * WORLD];
    SnapshotSet set;
    int n = 0, has[WORLD] = {0};
    for (int m = 0; m < MEMBERS; m++)
        for (int slice = 0; slice < WORLD; slice++) {
            bool there = members[m] == 3 ? slice == 3 || slice == 1 : slice < 3;
            for (int step = 9; there && step > 0; step -= 6)
                pieces[n++] = (SnapshotPiece){.generation = step / 3,
                                              .step = step,
                                              .world = WORLD,
                                              .slice = slice,
                                              .rank = members[m],
                                              .file = m};
        }
    snapshot_choose(pieces, n, &set, NULL);
    snapshot_share(pieces, n, 1, &set);
    for (int s = 0; s < WORLD; s++) {
        assert_int_equal(set.pieces[s].slice, s);
        assert_int_equal(set.pieces[s].step, 9);
        assert_int_equal(set.pieces[s].rank, members[set.pieces[s].file]);
        has[set.pieces[s].rank]++;
    }
    assert_int_equal(set.pieces[2].rank, 2);
    assert_int_equal(set.pieces[3].rank, 3);
    assert_int_equal(has[1] + has[2], 3);
    assert_true(has[1] > 0 && has[2] > 0);
    snapshot_set_free(&set);
    n = 0; /* rank 0 has a copy alone, and gets it */
    for (int slice = 0; slice < 2; slice++)
        pieces[n++] = (SnapshotPiece){.generation = 3, .step = 9, .world = 2, .slice = slice, .rank = 5};
    pieces[n++] = (SnapshotPiece){.generation = 3, .step = 9, .world = 2, .slice = 1, .rank = 0, .copy = 1};
    pieces[n++] = (SnapshotPiece){.generation = 3, .step = 9, .world = 2, .slice = 7, .rank = 0}; /* there is none */
    snapshot_choose(pieces, n, &set, NULL);
    snapshot_share(pieces, n, 0, &set);
    assert_int_equal(set.pieces[0].rank, 5);
    assert_int_equal(set.pieces[1].rank, 0);
    snapshot_set_free(&set);
}

/* The choice of the slot to overwrite follows the same order. */
static void test_the_slot_of_the_older_step_is_overwritten(void **state)
{
    World *w = world_open(*state, 1);
    Sample *newer = sample_of(80), *older = sample_of(40), *next = sample_of(90);
    assert_int_equal(write_rank(w, 0, older, 20, 0), SNAPSHOT_COMPLETE);
    assert_int_equal(write_rank(w, 0, newer, 6, 20), SNAPSHOT_COMPLETE);
    assert_int_equal(write_rank(w, 0, next, 21, 0), SNAPSHOT_COMPLETE);
    SnapshotList list;
    assert_ok(snapshot_find(w->dir, w->output, &list));
    int64_t steps = list.files[0].slots[0].step + list.files[0].slots[1].step;
    assert_int_equal(steps, 80 + 90);
    snapshot_list_free(&list);
    sample_free(newer);
    sample_free(older);
    sample_free(next);
    world_close(w);
}

static void test_weights_that_are_not_finite(void **state)
{
    World *w = world_open(*state, 1);
    Sample *s = sample_of(6);
    float *weights = s->arrays[0];
    int64_t n = w->table.size;
    write_all(w, 5, 1);
    for (int64_t i = 0; i < n; i += 1 + n / 67) {
        int64_t place = i + 1 + n / 67 < n ? i : n - 1; /* the last one, too */
        float before = weights[place];
        weights[place] = i % 2 ? NAN : -INFINITY;
        assert_int_equal(write_rank(w, 0, s, 2 + i, 1), SNAPSHOT_FAILED);
        assert_message("step 6: weights are not finite");
        assert_int_equal(step_of(w), 5);
        weights[place] = before;
    }
    sample_free(s);
    world_close(w);
}

/* ---- others ---- */

static void test_other_runs_worlds_and_users(void **state)
{
    SnapshotList list;
    int count, removed, kept;
    World *w = world_open(*state, 2);
    write_all(w, 4, 1);
    assert_ok(snapshot_find(w->dir, w->output, &list));
    assert_int_equal(list.count, 2);
    assert_true(list.files[0].alive);
    assert_null(snapshot_pieces(&list, (Digest){.hi = 7, .lo = 8}, 0, &count)); /* another run in the same folder */
    assert_int_equal(count, 0);
    snapshot_list_free(&list);
    assert_ok(snapshot_remove(w->dir, w->output, 0, &removed, &kept));
    assert_int_equal(removed, 0);
    assert_int_equal(kept, 2); /* alive */
    world_close(w);
    assert_ok(snapshot_find(*state, NULL, &list));
    assert_int_equal(list.count, 2);
    assert_false(list.files[0].alive);
    snapshot_list_free(&list);
    assert_ok(snapshot_find(*state, *state, &list)); /* another output folder */
    assert_int_equal(list.count, 0);
    w = world_open(*state, 3); /* files of another world size: the newest generation counts */
    write_all(w, 9, 2);
    assert_int_equal(step_of(w), 9);
    assert_ok(snapshot_remove(w->dir, w->output, 3, &removed, &kept));
    assert_int_equal(removed, 2);
    assert_int_equal(step_of(w), 9);
    world_close(w);
}

static void test_a_second_process_is_refused(void **state)
{
    Snapshot *second = NULL;
    World *w = world_open(*state, 1);
    SnapshotPlace place = place_of(w, 0);
    assert_status(snapshot_open(&place, &second), E_FAIL);
    assert_null(second);
    assert_message("is alive and holds this snapshot");
    place.run.lo++; /* also for another run */
    assert_status(snapshot_open(&place, &second), E_FAIL);
    write_all(w, 2, 1);
    snapshot_close(w->ranks[0]);
    w->ranks[0] = NULL;
    assert_ok(snapshot_open(&place, &second)); /* the other run takes the dead one's place */
    assert_int_equal(snapshot_newest(second), 0);
    snapshot_close(second);
    world_close(w);
    assert_int_equal(read_step(*state, NULL, NULL), 0);
}

static void test_run_numbers(void **state)
{
    Digest a, b, c;
    char *path = file_join(*state, ".run");
    assert_ok(snapshot_run(*state, false, false, &a));
    assert_false(snapshot_run_known(a));
    assert_ok(snapshot_run(*state, true, false, &a));
    assert_ok(snapshot_run(*state, true, false, &b));
    assert_true(snapshot_run_known(a) && digest_equal(a, b));
    assert_ok(snapshot_run(*state, true, true, &c));
    assert_false(digest_equal(a, c));
    assert_ok(file_write_durable(path, "nonsense\n", 9));
    assert_ok(snapshot_run(*state, false, false, &b));
    assert_false(snapshot_run_known(b));
    free(path);
}

/* ---- no room ---- */

static void test_a_small_tmpfs(void **state)
{
    World w = {.dir = *state, .output = *state, .table = sample_table(), .world = 1};
    Snapshot *s = NULL;
    bool memory;
    slices_of(&w.table, NULL, 0, 1, w.parts);
    if (mount("none", *state, "tmpfs", 0, "size=64k") != 0) {
        print_message("skipped: cannot mount a tmpfs here: %s\n", strerror(errno));
        intervals_free(&w.parts[0]);
        skip();
    }
    SnapshotPlace place = place_of(&w, 0);
    Status memory_status = snapshot_memory_backed(*state, &memory), status = snapshot_open(&place, &s);
    char *message = mem_strdup(status_message()), *list = mem_printf("ls -A '%s' | wc -l | grep -qx 0", (char *)*state);
    int left = system(list);
    assert_int_equal(umount(*state), 0);
    assert_ok(memory_status);
    assert_true(memory);
    assert_status(status, E_MEMORY);
    if (!strstr(message, "takes 0.2 MiB here, 0.1 MiB are free") &&
        !strstr(message, "takes 0.3 MiB here, 0.1 MiB are free"))
        fail_msg("%s", message);
    assert_int_equal(left, 0);
    intervals_free(&w.parts[0]);
    free(message);
    free(list);
}

/* ---- kill -9 ---- */

typedef struct {
    volatile int64_t begun, committed, before; /* before: committed before `committed`, maybe not by one less */
} Told;

static void write_for_ever(const char *dir, int world, Told *told)
{
    World *w = world_open(dir, world);
    int64_t generation = 1;
    for (int r = 0; r < world; r++)
        if (snapshot_newest(w->ranks[r]) >= generation) generation = snapshot_newest(w->ranks[r]) + 1;
    int64_t keep = told->committed;
    Sample *samples[8];
    for (int i = 0; i < 8; i++) samples[i] = sample_of(100 + i);
    for (;; generation++) {
        Sample *s = samples[generation % 8];
        told->begun = generation;
        for (int r = 0; r < world; r++)
            if (write_rank(w, r, s, generation, keep) != SNAPSHOT_COMPLETE) _exit(1);
        told->before = keep;
        keep = generation;
        told->committed = generation;
    }
}

static void test_killed_while_writing(void **state)
{
    Told *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = 11;
    int64_t step = 0;
    int torn = 0;
    assert_true(told != MAP_FAILED);
    for (int kills = 0; kills < KILLS; kills++) {
        int status;
        const int64_t stood = step, committed = told->committed, begun = told->begun;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) write_for_ever(*state, 2, told);
        while (kills % 2 == 1 && told->begun == begun) { /* the others are killed at their start too */
            assert_int_equal(waitpid(child, &status, WNOHANG), 0);
            usleep(50);
        }
        usleep((useconds_t)(testing_random(&seed) % 6000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        Buf missing = {0};
        SnapshotList list;
        step = read_step(*state, NULL, &missing);
        /* A process killed before it said that its generation was complete leaves it; so does one killed before its
           first write. Readers prefer the later step: if the steps begin again, that is the previous generation. */
        bool wrapped = told->before % 8 > told->committed % 8;
        if (told->committed > 0)
            assert_true(step == 100 + told->committed % 8 || step == 100 + told->begun % 8 ||
                        (told->committed == committed && step == stood) || (wrapped && step == 100 + told->before % 8));
        assert_ok(snapshot_find(*state, NULL, &list));
        for (int i = 0; i < list.count && committed >= SNAPSHOT_SLOTS; i++) /* every slot was whole before */
            for (int s = 0; s < SNAPSHOT_SLOTS; s++) torn += list.files[i].why || !list.files[i].slots[s].whole;
        snapshot_list_free(&list);
        buf_free(&missing);
    }
    print_message("%d kills, %d slots were torn, generation %lld was reached\n", KILLS, torn,
                  (long long)told->committed);
    assert_true(torn > 0 && told->committed > KILLS / 4);
    munmap(told, sizeof *told);
}

/* ---- a copy on another rank ---- */

static void test_copies_of_other_ranks(void **state)
{
    World *w = world_open(*state, 2);
    SnapshotPlace place = place_of(w, 0);
    Snapshot *copy;
    place.holder = 1; /* rank 1 keeps a copy of slice 0 */
    assert_ok(snapshot_open(&place, &copy));
    write_all(w, 30, 1);
    for (int64_t generation = 1; generation <= 3; generation++) {
        write_all(w, 29 + generation, generation);
        int from = memcmp(snapshot_slot_data(w->ranks[0], 0), &generation, 8) == 0 ? 0 : 1;
        int slot = snapshot_receive_begin(copy, generation - 1);
        memcpy(snapshot_slot_data(copy, slot), snapshot_slot_data(w->ranks[0], from), snapshot_slot_bytes(copy));
        assert_ok(snapshot_receive_end(copy, slot, generation));
    }
    snapshot_discard(w->ranks[0]); /* the host of rank 0 is lost with its memory */
    w->ranks[0] = NULL;
    assert_int_equal(step_of(w), 32);
    int slot = snapshot_receive_begin(copy, 3); /* a torn copy of the next generation */
    snapshot_slot_data(copy, slot)[0] = 4;
    assert_status(snapshot_receive_end(copy, slot, 4), E_CORRUPT);
    assert_int_equal(step_of(w), 32);
    snapshot_close(copy);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip_at_any_number_of_ranks, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_files_are_private, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_the_generation_before_stays, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_resuming_keeps_its_generation, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_weights_that_are_not_finite, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_other_runs_worlds_and_users, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_second_process_is_refused, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_run_numbers, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_a_later_step_wins_over_a_higher_number),
        cmocka_unit_test(test_slices_are_shared_out),
        cmocka_unit_test_setup_teardown(test_the_slot_of_the_older_step_is_overwritten, testing_set_up,
                                        testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_small_tmpfs, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_killed_while_writing, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_copies_of_other_ranks, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
