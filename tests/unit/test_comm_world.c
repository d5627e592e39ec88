/* Rank and world size from the environment; lists of hosts; --iface; the keyed hash; addresses. */
#include "testing.h"

#include "base/siphash.h"
#include "comm/meet/hosts.h"
#include "comm/meet/interfaces.h"
#include "comm/meet/rendezvous_wire.h"
#include "comm/meet/world.h"

/* `text`: an environment as "NAME=value NAME=value". */
static Status find(const char *text, World *w)
{
    char *copy = mem_strdup(text), *e[64], *save;
    int n = 0;
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) e[n++] = p;
    e[n] = NULL;
    Status status = world_find(e, w);
    free(copy);
    return status;
}

static void test_launchers(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        int rank, size, local_rank, local_size, node, nodes;
        const char *source, *job, *master;
        int port;
    } cases[] = {
        {"PATH=/bin HOME=/", 0, 1, 0, 1, 0, 1, "", "", "", 0},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 MASTER_ADDR=node0 MASTER_PORT=29500", 3, 8, 1,
         2, 1, 0, "torchrun", "", "node0", 29500},
        {"RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=2", 0, 2, 0, 0, 0, 0, "torchrun",
         "torchrun-x.2", "", 0},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
         "PMIX_RANK=2 PMIX_NAMESPACE=77",
         2, 4, 2, 4, 0, 0, "Open MPI", "mpi-77", "", 0},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", 1, 2, 1, 2, 0, 0, "MPICH or Intel MPI", "", "",
         0},
        {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=1", 1, 2, 0,
         1, 0, 0, "MVAPICH", "", "", 0},
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8 SLURM_LOCALID=1 "
         "SLURM_NODEID=1 "
         "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[07-08]",
         5, 8, 1, 0, 1, 2, "Slurm", "slurm-12.3", "n07", 0},
        {"SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_RESTART_COUNT=1", 0, 2, 0, 0, 0,
         0, "Slurm", "slurm-12.0+1", "", 0},
        /* A job's script is not a rank. */
        {"SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=n[1-2]", 0, 1, 0, 1, 0, 1, "", "slurm-12",
         "", 0},
        {"PBS_JOBID=9.head PBS_NODEFILE=/nowhere PBS_TASKNUM=1 NSLOTS=4 PE_HOSTFILE=/nowhere", 0, 1, 0, 1, 0, 1, "",
         "pbs-9.head", "", 0},
        /* mpirun within a Slurm job: its daemons are the step. */
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_JOB_ID=12 SLURM_STEP_ID=0 "
         "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_NODELIST=b[1,4]",
         3, 4, 0, 2, 0, 0, "Open MPI", "slurm-12", "b1", 0},
        {"SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 PMI_RANK=1 PMI_SIZE=2", 1, 2, 0, 0, 0, 0,
         "MPICH or Intel MPI", "slurm-1", "", 0},
        {"RANK=0 WORLD_SIZE=1", 0, 1, 0, 1, 0, 1, "torchrun", "", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        World w;
        assert_ok(find(cases[i].environment, &w));
        if (w.rank != cases[i].rank || w.size != cases[i].size || w.local_rank != cases[i].local_rank ||
            w.local_size != cases[i].local_size || w.node != cases[i].node || w.nodes != cases[i].nodes ||
            strcmp(w.source, cases[i].source) != 0 || strcmp(w.job, cases[i].job) != 0 ||
            strcmp(w.master, cases[i].master) != 0 || w.master_port != cases[i].port)
            fail_msg("%s: rank %d/%d local %d/%d node %d/%d '%s' job '%s' master '%s':%d", cases[i].environment, w.rank,
                     w.size, w.local_rank, w.local_size, w.node, w.nodes, w.source, w.job, w.master, w.master_port);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *message;
    } cases[] = {
        {"RANK=1", "only a part of what torchrun sets: RANK=1, but no WORLD_SIZE"},
        {"WORLD_SIZE=4 LOCAL_RANK=0", "WORLD_SIZE=4 LOCAL_RANK=0, but no RANK"},
        {"RANK=4 WORLD_SIZE=4", "RANK=4 in the environment, but there are 4 ranks"},
        {"RANK=x WORLD_SIZE=4", "RANK=x in the environment: expected a number"},
        {"RANK=-1 WORLD_SIZE=4", "RANK=-1"},
        {"RANK=1 WORLD_SIZE=0", "WORLD_SIZE=0"},
        {"RANK=1 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=99999999999999999999"},
        {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
         "LOCAL_RANK=2 in the environment, but LOCAL_WORLD_SIZE=2"},
        {"RANK=1 WORLD_SIZE=4 MASTER_PORT=70000", "MASTER_PORT=70000"},
        {"RANK=1 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4",
         "has two different ranks: RANK=1 WORLD_SIZE=4 (torchrun), and OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "
         "(Open "
         "MPI)"},
        {"RANK=1 WORLD_SIZE=4 PMI_RANK=1", "only a part of what MPICH"},
        {"PALS_RANKID=1", "but no PBS_NODEFILE"},
        {"PALS_RANKID=1 PBS_NODEFILE=/nowhere", "/nowhere"},
        {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n[1-", "SLURM_STEP_NODELIST"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        World w;
        Status status = find(cases[i].environment, &w);
        if (status == OK || !strstr(status_message(), cases[i].message))
            fail_msg("%s: %s: %s", cases[i].environment, status_name(status), status_message());
    }
}

static void test_pals(void **state)
{
    World w;
    char *path = file_join(*state, "nodes"), *environment;
    assert_ok(file_write_durable(path, "a\na\nb\nb\n", 8));
    environment = mem_printf("PALS_RANKID=3 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 PBS_NODEFILE=%s PBS_JOBID=5", path);
    assert_ok(find(environment, &w));
    assert_true(w.rank == 3 && w.size == 4 && w.local_rank == 1 && w.local_size == 2);
    assert_string_equal(w.master, "a");
    assert_string_equal(w.job, "pbs-5");
    free(path);
    free(environment);
}

/* ---- lists of hosts ---- */

static char *joined(const HostList *list)
{
    Buf b = {0};
    for (int i = 0; i < list->count; i++)
        buf_printf(&b, "%s%s:%d", i ? " " : "", list->hosts[i].name, list->hosts[i].slots);
    return b.data ? b.data : mem_strdup("");
}

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tasks, *hosts; /* hosts NULL: refused */
    } slurm[] = {
        {"a", NULL, "a:1"},
        {"n[1-3],m", NULL, "n1:1 n2:1 n3:1 m:1"},
        {"n[08-11]", "2(x3),1", "n08:2 n09:2 n10:2 n11:1"},
        {"r[1-2]n[1,3-4]x,q.dom", "4(x7)", "r1n1x:4 r1n3x:4 r1n4x:4 r2n1x:4 r2n3x:4 r2n4x:4 q.dom:4"},
        {"n[1-3", NULL, NULL},
        {"n[3-1]", NULL, NULL},
        {"n[]", NULL, NULL},
        {"a,,b", NULL, NULL},
        {"", NULL, NULL},
        {"a;rm", NULL, NULL},
        {"-oProxyCommand", NULL, NULL},
        {"n[1-9999999999]", NULL, NULL},
        {"n[0-999999]", NULL, NULL}, /* more than HOSTS_MOST */
        {"a,b", "2", NULL},
        {"a,b", "1(x3)", NULL},
        {"a,b", "1,2,3", NULL},
        {"a,b", "1(y2)", NULL},
    };
    for (size_t i = 0; i < sizeof slurm / sizeof slurm[0]; i++) {
        HostList list = {0};
        Status status = hosts_from_slurm(slurm[i].text, &list);
        if (status == OK && slurm[i].tasks) status = hosts_slots_from_slurm(slurm[i].tasks, &list);
        assert_status(status, slurm[i].hosts ? OK : E_FORMAT);
        char *made = joined(&list);
        if (slurm[i].hosts) assert_string_equal(made, slurm[i].hosts);
        free(made);
        hosts_free(&list);
    }
    static const struct {
        const char *text, *hosts;
    } lines[] = {
        {"a\na\nb\na\n", "a:3 b:1"},
        {"node01 4 all.q@node01 UNDEFINED\nnode02 2 all.q@node02 <NULL>\n", "node01:4 node02:2"},
        {"# mine\n\nx slots=3\r\n y\t2 # two\nz", "x:3 y:2 z:1"},
        {"fe80::1 2", "fe80::1:2"},
        {"a slots=0", NULL},
        {"a four", NULL},
        {"a$b", NULL},
        {"\n\n", NULL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        HostList list;
        assert_status(hosts_from_lines("list", lines[i].text, strlen(lines[i].text), &list),
                      lines[i].hosts ? OK : E_FORMAT);
        if (!lines[i].hosts) assert_message("list");
        char *made = joined(&list);
        if (lines[i].hosts) assert_string_equal(made, lines[i].hosts);
        free(made);
        hosts_free(&list);
    }
}

/* ---- --iface ---- */

static void test_filter(void **state)
{
    (void)state;
    static const Interface all[] = {
        {"lo", {127, 0, 0, 1}, false, 8, WAY_LOOPBACK},   {"docker0", {172, 17, 0, 1}, false, 16, WAY_BRIDGE},
        {"eth1", {10, 0, 0, 5}, false, 24, WAY_DEVICE},   {"eth10", {10, 0, 1, 5}, false, 24, WAY_DEVICE},
        {"ib0", {192, 168, 3, 5}, false, 20, WAY_DEVICE}, {"ib0", {0xfd, [15] = 5}, true, 64, WAY_DEVICE},
    };
    static const struct {
        const char *spec, *left; /* NULL: refused */
    } cases[] = {
        {"", "172.17.0.1 10.0.0.5 10.0.1.5 192.168.3.5 fd00::5"},
        {"^docker0", "10.0.0.5 10.0.1.5 192.168.3.5 fd00::5"},
        {"^lo,docker,ib", "10.0.0.5 10.0.1.5"},
        {"eth", "10.0.0.5 10.0.1.5"},
        {"eth1", "10.0.0.5"},
        {"eth,^eth10", "10.0.0.5"},
        {"ib0,eth1", "192.168.3.5 fd00::5"},
        {"hsn,eth1", "10.0.0.5"},
        {"10.0.0.0/16", "10.0.0.5 10.0.1.5"},
        {"192.168.3.5", "192.168.3.5"},
        {"fd00::/8", "fd00::5"},
        {"lo", "127.0.0.1"},
        {"wlan", NULL},
        {"eth,^10.0.0.0/8", NULL},
        {"10.0.0.0/33", NULL},
        {"eth/8", NULL},
        {"eth,,ib", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Interface list[6];
        char text[48];
        int n = 6;
        memcpy(list, all, sizeof all);
        assert_status(interfaces_filter(cases[i].spec, list, &n), cases[i].left ? OK : E_USAGE);
        if (!cases[i].left) continue;
        Buf b = {0};
        for (int k = 0; k < n; k++) buf_printf(&b, "%s%s", k ? " " : "", interface_text(&list[k], text));
        assert_string_equal(b.data, cases[i].left);
        buf_free(&b);
    }
    assert_true(interface_same_network(&all[2], &(Interface){"e", {10, 0, 0, 9}, false, 24, WAY_DEVICE}));
    assert_false(interface_same_network(&all[2], &all[3]));
    Interface *here;
    int n;
    assert_ok(interfaces_list(&here, &n));
    int loopback = interface_towards("127.0.0.1", here, n);
    assert_true(loopback >= 0 && here[loopback].way == WAY_LOOPBACK);
    for (int i = 1; i < n; i++) assert_true(here[i - 1].way <= here[i].way);
    assert_int_equal(interface_towards("no such host", here, n), -1);
    free(here);
}

/* The first vectors of the reference implementation's vectors_sip128: key 00 01 … 0f, input of n bytes 00 01 …. */
static void test_siphash(void **state)
{
    (void)state;
    Hash128 key;
    uint8_t input[16];
    char hex[33];
    for (int i = 0; i < 16; i++) key.bytes[i] = input[i] = (uint8_t)i;
    hash128_format(siphash(key, input, 0), hex);
    assert_string_equal(hex, "a3817f04ba25a8e66df67214c7550293");
    hash128_format(siphash(key, input, 1), hex);
    assert_string_equal(hex, "da87c1d86b99af44347659119b22fc45");
    Hash128 a, b;
    hash128_random(&a);
    hash128_random(&b);
    assert_false(hash128_equal(a, b));
    assert_true(hash128_equal(siphash(a, input, 15), siphash(a, input, 15)));
    assert_false(hash128_equal(siphash(a, input, 15), siphash(a, input, 14)));
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } cases[] = {{"a", "a", 7},       {"a:5", "a", 5},     {"[fe80::1]:5", "fe80::1", 5},
                 {"[::1]", "::1", 7}, {":9", "", 9},       {"", "", 7},
                 {"a:", NULL, 0},     {"a:x", NULL, 0},    {"a:-1", NULL, 0},
                 {"[::1]x", NULL, 0}, {"a:65536", NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *host = NULL;
        int port = 7;
        assert_status(rendezvous_parse_address(cases[i].text, &host, &port), cases[i].host ? OK : E_USAGE);
        if (!cases[i].host) continue;
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
        free(host);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test_setup_teardown(test_pals, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_siphash),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
