/* Damaged snapshots: flipped bits, files that are cut, also while they are mapped, nonsense, and names that another
   user has taken. */
#include "snapshot_world.h"

#include <sys/mman.h>

/* Bytes whose change must be detected: header, fixed part, and of each slot the mark, the text and the arrays. */
static bool covered(const SnapshotHeader *h, uint64_t at)
{
    if (at < sizeof *h) return true;
    if (at >= 2 * SNAPSHOT_PAGE && at < 2 * SNAPSHOT_PAGE + h->fixed_bytes) return true;
    for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
        uint64_t in = at - h->slot_offset[s];
        if (at < h->slot_offset[s] || in >= snapshot_slot_size(h)) continue;
        if (in < sizeof(SnapshotMark)) return true;
        if (in >= SNAPSHOT_PAGE && in < SNAPSHOT_PAGE + 20) return true; /* every text here is longer */
        for (int a = 0; a < SNAPSHOT_ARRAYS; a++) {
            uint64_t begin = snapshot_array_offset(h, a);
            if (in >= begin && in < begin + (uint64_t)snapshot_slice_size(h, a) * sizeof(float)) return true;
        }
    }
    return false;
}

/* One flipped bit at a time, in every region: the newest or the previous generation is read, bit for bit, or none. A
   newest generation with the flip is never taken. */
static void test_flipped_bits(void **state)
{
    World *w = world_open(*state, 2);
    uint64_t seed = 5;
    int seen = 0, harmless = 0;
    write_all(w, 1, 1);
    write_all(w, 2, 2);
    world_close(w);
    char *name = mem_printf("%s/out", (char *)*state), *file = snapshot_name(name, 2, 1, 1);
    char *path = file_join(*state, file);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t size = lseek(fd, 0, SEEK_END);
    SnapshotHeader *h = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(h != MAP_FAILED);
    for (uint64_t at = 0; at < (uint64_t)size;) {
        uint8_t *byte = (uint8_t *)h + at, bit = (uint8_t)(1u << (testing_random(&seed) % 8));
        bool matters = covered(h, at);
        *byte ^= bit;
        int64_t step = read_step(*state, NULL, NULL);
        *byte ^= bit;
        if (matters) {
            seen++;
            bool newest = at >= h->slot_offset[1];
            int64_t expected = at < h->slot_offset[0] ? 0 : newest ? 1 : 2;
            if (step != expected)
                fail_msg("a flip at byte %llu: step %lld was read, expected %lld", (unsigned long long)at,
                         (long long)step, (long long)expected);
        } else {
            harmless++;
            assert_int_equal(step, 2);
        }
        at += matters && at < sizeof *h ? 1 : 1 + testing_random(&seed) % (matters ? 61 : 4001);
    }
    print_message("%d flips found, %d in places without meaning\n", seen, harmless);
    assert_true(seen > 500 && harmless > 20);
    munmap(h, (size_t)size);
    close(fd);
    free(name);
    free(file);
    free(path);
}

/* A file that another process shortens or removes while it is mapped: the write and the read fail, the process goes
   on. */
static void test_cut_while_in_use(void **state)
{
    SnapshotList list;
    SnapshotSet set;
    ParamTable t = sample_table();
    float *arrays[SNAPSHOT_ARRAYS] = {0};
    World *w = world_open(*state, 1);
    for (int a = 0; a < 3; a++) arrays[a] = mem_array((size_t)t.size, sizeof(float));
    write_all(w, 1, 1);
    char *file = snapshot_name(w->output, 1, 0, 0), *path = file_join(*state, file);
    assert_ok(snapshot_find(*state, w->output, &list));
    snapshot_choose_in(&list, run_number, &set, NULL);
    assert_int_equal(set.generation, 1);
    assert_int_equal(truncate(path, (off_t)SNAPSHOT_PAGE), 0);
    assert_status(assemble(&list, &set, arrays), E_CORRUPT);
    Sample *s = sample_of(2);
    for (int64_t generation = 2; generation < 4; generation++) {
        assert_int_equal(write_rank(w, 0, s, generation, generation - 1), SNAPSHOT_FAILED);
        assert_non_null(strstr(status_message(), "another process shortened the file"));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write_rank(w, 0, s, 4, 3), SNAPSHOT_FAILED);
    assert_non_null(strstr(status_message(), "another process removed the file"));
    sample_free(s);
    snapshot_set_free(&set);
    snapshot_list_free(&list);
    world_close(w);
    w = world_open(*state, 1); /* the next start makes a new file */
    write_all(w, 3, 1);
    assert_int_equal(step_of(w), 3);
    world_close(w);
    for (int a = 0; a < 3; a++) free(arrays[a]);
    free(file);
    free(path);
}

/* Another user has taken the names: the snapshot gets another name, is found, reused and removed. */
static void test_names_taken(void **state)
{
    int removed, kept;
    if (geteuid() != 0) skip(); /* chown */
    char *name = mem_printf("%s/out", (char *)*state);
    for (int aside = 0; aside < 2; aside++) {
        char *file = snapshot_name(name, 1, 0, 0),
             *path = mem_printf("%s/%s%s", (char *)*state, file, aside ? ".new" : "");
        testing_write(*state, aside ? path + strlen(*state) + 1 : file, "x");
        assert_int_equal(chown(path, 12345, 12345), 0);
        for (int64_t step = 1; step <= 3; step++) { /* the file is reused */
            World *w = world_open(*state, 1);
            write_all(w, step, step);
            assert_int_equal(step_of(w), step);
            world_close(w);
        }
        assert_ok(snapshot_remove(*state, name, 0, &removed, &kept));
        assert_int_equal(removed, 1);
        assert_int_equal(read_step(*state, NULL, NULL), 0);
        assert_int_equal(unlink(path), 0); /* another user's file is never removed */
        free(file);
        free(path);
    }
    free(name);
}

static void test_cut_short_and_nonsense(void **state)
{
    SnapshotList list;
    World *w = world_open(*state, 1);
    write_all(w, 1, 1);
    world_close(w);
    char *name = mem_printf("%s/out", (char *)*state), *file = snapshot_name(name, 1, 0, 0);
    char *path = file_join(*state, file), *other = NULL;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (off_t cut = st.st_size - 1; cut > 0; cut = cut * 2 / 3) {
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(read_step(*state, NULL, NULL), 0);
    }
    assert_ok(snapshot_find(*state, NULL, &list));
    assert_non_null(list.files[0].why);
    snapshot_list_free(&list);
    assert_int_equal(unlink(path), 0);
    other = mem_strdup("/dev/zero");
    assert_int_equal(symlink(other, path), 0); /* not followed */
    assert_int_equal(read_step(*state, NULL, NULL), 0);
    w = mem_alloc(sizeof *w);
    *w = (World){.dir = *state, .output = name, .table = sample_table(), .world = 1};
    slices_of(&w->table, NULL, 0, 1, w->parts);
    SnapshotPlace place = place_of(w, 0);
    assert_status(snapshot_open(&place, &w->ranks[0]), E_IO);
    intervals_free(&w->parts[0]);
    free(w);
    free(name);
    free(file);
    free(path);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flipped_bits, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_cut_while_in_use, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_names_taken, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_cut_short_and_nonsense, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
