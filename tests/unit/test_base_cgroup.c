/* Limits of control groups, in trees of v1 and v2. */
#include "base/cgroup.h"

#include "testing.h"

static void test_no_limit(void **state)
{
    assert_true(cgroup_free_bytes(*state) == SIZE_MAX);
    testing_write(*state, "proc/self/cgroup", "4:memory:/a\n0::/b\n");
    testing_write(*state, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    testing_write(*state, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5000\n");
    testing_write(*state, "sys/fs/cgroup/b/memory.max", "max\n");
    testing_write(*state, "sys/fs/cgroup/b/memory.current", "5000\n");
    assert_true(cgroup_free_bytes(*state) == SIZE_MAX);
}

/* A batch system's job: the process's own group has the limit, the root group has none. */
static void test_v1(void **state)
{
    testing_write(*state, "proc/self/cgroup",
                  "9:name=systemd:/x\n5:devices:/y\n4:hugetlb,memory:/pbs/job:7\n3:cpu:/pbs/job:7\n");
    testing_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    testing_write(*state, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
    testing_write(*state, "sys/fs/cgroup/memory/pbs/job:7/memory.limit_in_bytes", "4000\n");
    testing_write(*state, "sys/fs/cgroup/memory/pbs/job:7/memory.usage_in_bytes", "1500\n");
    assert_int_equal(cgroup_free_bytes(*state), 2500);
    testing_write(*state, "sys/fs/cgroup/memory/pbs/job:7/memory.stat",
                  "cache 1\ninactive_file 9\ntotal_inactive_file 300\n");
    assert_int_equal(cgroup_free_bytes(*state), 2800);
    testing_write(*state, "sys/fs/cgroup/memory/pbs/memory.limit_in_bytes",
                  "7000\n"); /* the parent group leaves less */
    testing_write(*state, "sys/fs/cgroup/memory/pbs/memory.usage_in_bytes", "6999\n");
    assert_int_equal(cgroup_free_bytes(*state), 1);
    assert_int_equal(cgroup_limit_bytes(*state), 4000);
    testing_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n"); /* more is used than allowed */
    assert_int_equal(cgroup_free_bytes(*state), 0);
    assert_int_equal(cgroup_limit_bytes(*state), 900);
}

static void test_v2(void **state)
{
    testing_write(*state, "proc/self/cgroup", "0::/job/step\n");
    testing_write(*state, "sys/fs/cgroup/job/step/memory.max", "max\n");
    testing_write(*state, "sys/fs/cgroup/job/step/memory.current", "10\n");
    testing_write(*state, "sys/fs/cgroup/job/memory.max", "5000\n");
    testing_write(*state, "sys/fs/cgroup/job/memory.current", "4000\n");
    testing_write(*state, "sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 50\n");
    assert_int_equal(cgroup_free_bytes(*state), 1050);
}

/* The process's own group counts. Other jobs run in the groups above it. */
static void test_kills(void **state)
{
    assert_int_equal(cgroup_memory_kills(*state), 0);
    testing_write(*state, "proc/self/cgroup", "4:memory:/pbs/job:7\n");
    testing_write(*state, "sys/fs/cgroup/memory/pbs/memory.oom_control",
                  "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n");
    testing_write(*state, "sys/fs/cgroup/memory/pbs/job:7/memory.failcnt", "41\n");
    assert_int_equal(cgroup_memory_kills(*state), 41); /* an old kernel */
    testing_write(*state, "sys/fs/cgroup/memory/pbs/job:7/memory.oom_control",
                  "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    assert_int_equal(cgroup_memory_kills(*state), 2);
    testing_write(*state, "proc/self/cgroup", "0::/job/step\n");
    testing_write(*state, "sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 12\noom 5\noom_kill 5\n");
    testing_write(*state, "sys/fs/cgroup/job/step/memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n");
    assert_int_equal(cgroup_memory_kills(*state), 1);
}

/* A container whose groups are mounted as the root under the host's path; and both versions at once. */
static void test_container(void **state)
{
    testing_write(*state, "proc/self/cgroup", "4:memory:/docker/abc\n0::/../other\n");
    testing_write(*state, "sys/fs/cgroup/memory/memory.limit_in_bytes", "100\n");
    testing_write(*state, "sys/fs/cgroup/memory/memory.usage_in_bytes", "40\n");
    assert_int_equal(cgroup_free_bytes(*state), 60);
    testing_write(*state, "sys/fs/cgroup/memory.max", "50\n");
    testing_write(*state, "sys/fs/cgroup/memory.current", "20\n");
    assert_int_equal(cgroup_free_bytes(*state), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_limit, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_v1, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_v2, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_kills, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_container, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
