/* The room for snapshots counts all ranks of a host, in its folder and in its memory. */
#include "train/planner/snapshot_room.h"

#include "testing.h"

#define ONE_MIB ((uint64_t)1 << 20)

static const char *host(void *context, int rank) { return ((const char **)context)[rank]; }

static const char *names[] = {"a", "a", "b", "b"};

static Status room(const SnapshotClaim *all, int n) { return snapshot_room(all, n, "/dev/shm", host, (void *)names); }

static void test_ranks_of_a_host_count_together(void **state)
{
    (void)state;
    SnapshotClaim all[4];
    for (int i = 0; i < 4; i++)
        all[i] = (SnapshotClaim){
            .node = i / 2, .device = 5, .need = 40 * ONE_MIB, .free_there = 80 * ONE_MIB, .free_memory = 900 * ONE_MIB};
    assert_ok(room(all, 4));
    for (int i = 2; i < 4; i++) all[i].free_there = 64 * ONE_MIB; /* enough for each, not for both */
    assert_status(room(all, 4), E_MEMORY);
    assert_message("--snapshot-dir /dev/shm on b: snapshots of 2 ranks");
    assert_message("take 80.0 MiB there, 64.0 MiB are free");
    all[2].held = 16 * ONE_MIB; /* allocated already, by an earlier process */
    assert_ok(room(all, 4));
    all[2].held = 0;
    all[3].device = 6; /* another folder */
    assert_ok(room(all, 4));
    for (int i = 2; i < 4; i++) all[i].free_memory = 79 * ONE_MIB; /* in the same memory */
    assert_status(room(all, 4), E_MEMORY);
    assert_message("snapshots of 2 ranks (with the copies they hold for others) take 80.0 MiB of the memory of b");
}

static void test_limits_of_each(void **state)
{
    (void)state;
    SnapshotClaim all[2];
    for (int i = 0; i < 2; i++)
        all[i] = (SnapshotClaim){
            .device = 5, .need = 40 * ONE_MIB, .free_there = 900 * ONE_MIB, .free_memory = 200 * ONE_MIB};
    all[1].free_memory = 50 * ONE_MIB; /* its own cgroup, large enough for it */
    assert_ok(room(all, 2));
    all[1].free_memory = 30 * ONE_MIB;
    assert_status(room(all, 2), E_MEMORY);
    assert_message("snapshots of 1 rank (with the copies they hold for others) take 40.0 MiB of the memory of a");
    assert_message("30.0 MiB are free");
}

static void test_no_folder(void **state)
{
    (void)state;
    SnapshotClaim c;
    assert_status(snapshot_claim("/no/such/folder", 0, &c), E_IO);
    assert_message("--snapshot-dir /no/such/folder");
}

/* The plan's memory is of the rank that takes most: of three ranks and one on two hosts, the last holds three copies.
 */
static void test_hosts_with_unequal_ranks(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    static const int equal[RANKS] = {0, 0, 1, 1}, unequal[RANKS] = {0, 0, 0, 1};
    Param info = {.name = "w", .rows = RANKS, .cols = 4096, .n_dims = 2, .padded = RANKS};
    ParamTable params = {.params = &info, .count = 1, .size = (int64_t)RANKS * 4096};
    Intervals parts[RANKS] = {0}, none[RANKS] = {0};
    ParamTable no_sets = {0};
    const Holding slices = {.grid = grid_of_ranks(RANKS), .params = {&params, &no_sets}, .own = {parts, none}};
    SnapshotCopies placed = {0};
    for (int r = 0; r < RANKS; r++) intervals_add(&parts[r], (int64_t)r * 4096, (int64_t)(r + 1) * 4096);
    uint64_t own = snapshots_most_bytes(&slices, &placed);
    copies_place(&placed, equal, RANKS, 2, 1);
    assert_int_equal(snapshots_most_bytes(&slices, &placed), 2 * own);
    copies_free(&placed);
    copies_place(&placed, unequal, RANKS, 2, 1);
    assert_int_equal(snapshots_most_bytes(&slices, &placed), 4 * own);
    copies_free(&placed);
    for (int r = 0; r < RANKS; r++) intervals_free(&parts[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_of_a_host_count_together),
        cmocka_unit_test(test_limits_of_each),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_hosts_with_unequal_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
