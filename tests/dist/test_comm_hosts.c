/* Several hosts on one machine: network namespaces of child processes, joined by a bridge in one more. The kernel
   removes them with the processes. Skipped where they are not allowed. */
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>

#include "dist/ranks.h"

enum { HOSTS = 3, SWITCH = HOSTS };

static pid_t holders[HOSTS + 1];

/* A sleeping process with its own network and host name. 0: not allowed. */
static pid_t hold(int number)
{
    int ends[2];
    char name[16], word = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(name, sizeof name, "node%d", number);
        word = unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
        if (write(ends[1], &word, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &word, 1), 1);
    close(ends[0]);
    close(ends[1]);
    if (word) return child;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}

/* Runs `ip` (or another command) on one of the hosts, or in the namespace of the bridge. */
static bool on(int number, const char *format, ...)
{
    char command[512];
    va_list args;
    int n = snprintf(command, sizeof command, "nsenter -t %ld -n ", (long)holders[number]);
    va_start(args, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    strcat(command, " >/dev/null 2>&1");
    return system(command) == 0;
}

/* 10.77.0.1, .2, .3 on eth0 of the hosts; on each also a bridge with the same address everywhere, as containers have
   it, listed before eth0. */
static bool build_network(void)
{
    bool good = on(SWITCH, "ip link add br0 type bridge") && on(SWITCH, "ip link set br0 up");
    for (int i = 0; i < HOSTS && good; i++)
        good = on(i, "ip link set lo up") && on(i, "ip link add docker0 type bridge") &&
               on(i, "ip addr add 172.17.0.1/16 dev docker0") && on(i, "ip link set docker0 up") &&
               on(SWITCH, "ip link add v%d type veth peer name eth0 netns %ld", i, (long)holders[i]) &&
               on(SWITCH, "ip link set v%d master br0 up", i) && on(i, "ip addr add 10.77.0.%d/24 dev eth0", i + 1) &&
               on(i, "ip link set eth0 up");
    return good;
}

static int set_up(void **state)
{
    bool good = geteuid() == 0;
    memset(holders, 0, sizeof holders);
    for (int i = 0; i <= HOSTS && good; i++) good = (holders[i] = hold(i)) != 0;
    if (!good || !build_network()) print_message("skipped: no right to make network namespaces here, or no `ip`\n");
    *state = testing_directory();
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i <= HOSTS; i++)
        if (holders[i]) {
            kill(holders[i], SIGKILL);
            waitpid(holders[i], NULL, 0);
        }
    return testing_tear_down(state);
}

static void need_network(void)
{
    if (!holders[SWITCH] || !on(0, "ip addr show eth0")) skip();
}

/* Enters the namespaces of a host. */
static void enter(int host)
{
    const char *const kinds[] = {"net", "uts"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/ns/%s", (long)holders[host], kinds[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        require(fd >= 0 && setns(fd, 0) == 0);
        close(fd);
    }
}

/* The expected outcome of a rank. */
typedef struct {
    int host;
    const char *interfaces;
    Status status;
    const char *expected; /* in the message of comm_open */
    RankWork work;
} RankCase;

static pid_t start_at(const RankCase *p, int rank, int size, const char *where, void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    Comm *c;
    World w = {.rank = rank, .size = size, .source = "test"};
    CommOptions o = {"auto", where, p->interfaces ? p->interfaces : "", HANG_S, HANG_S, NULL};
    snprintf(w.job, sizeof w.job, "hosts-%ld", (long)getppid());
    ranks_this = rank;
    enter(p->host);
    ranks_as_batch();
    Status status = comm_open(&w, &o, &c);
    if (status != p->status) fprintf(stderr, "rank %d: %s: %s\n", rank, status_name(status), status_message());
    require(status == p->status);
    if (status != OK) {
        if (!strstr(status_message(), p->expected)) fprintf(stderr, "expected: %s\n", p->expected);
        require(strstr(status_message(), p->expected));
        _exit(0);
    }
    int code = p->work(c, arg);
    comm_close(c);
    _exit(code);
}

static void finish(const pid_t *children, int n)
{
    int bad = 0, status;
    for (int r = 0; r < n; r++) {
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) print_error("rank %d ended with %x\n", r, status), bad++;
    }
    assert_int_equal(bad, 0);
}

static void run_at(const RankCase *places, int n, const char *where)
{
    pid_t children[8];
    for (int r = 0; r < n; r++) children[r] = start_at(&places[r], r, n, where, NULL);
    finish(children, n);
}

/* Ranks 0 and 2 on node0, 1 on node1, 3 on node2. */
static int four_ranks(Comm *c, void *arg)
{
    static const int node[] = {0, 1, 0, 2}, local[] = {0, 0, 1, 0}, locals[] = {2, 1, 2, 1};
    double v = 1 + c->rank;
    (void)arg;
    require(c->nodes == 3 && c->node == node[c->rank]);
    require(c->local_rank == local[c->rank] && c->local_size == locals[c->rank]);
    require(strcmp(comm_peer_name(c, 1), "rank 1 on node1 (10.77.0.2)") == 0);
    require(strcmp(comm_peer_name(c, 2), "rank 2 on node0 (10.77.0.1)") == 0);
    require(comm_sum(c, &v, 1) == OK && v == 10);
    return 0;
}

static void test_hosts(void **state)
{
    (void)state;
    need_network();
    const char *interfaces[] = {"", "10.77.0.0/16", "^docker0,lo"};
    for (int i = 0; i < 3; i++) {
        RankCase p[4] = {{.host = 0}, {.host = 1}, {.host = 0}, {.host = 2}};
        for (int r = 0; r < 4; r++) p[r].interfaces = interfaces[i], p[r].work = four_ranks;
        run_at(p, 4, i ? "tcp://10.77.0.1:29500" : "tcp://10.77.0.1");
    }
}

/* More bridges than a rank offers, all listed before eth0, with addresses of this host alone. */
static int by_eth0(Comm *c, void *arg)
{
    double v = 1;
    (void)arg;
    require(strstr(comm_peer_name(c, 0), "10.77.0.1") && strstr(comm_peer_name(c, 1), "10.77.0.2"));
    require(comm_sum(c, &v, 1) == OK && v == 2);
    return 0;
}

static void test_many_interfaces(void **state)
{
    (void)state;
    need_network();
    for (int i = 0; i < 2; i++) {
        assert_true(on(i, "ip link del eth0") &&
                    on(i,
                       "sh -c 'for k in $(seq 40); do ip link add b$k type bridge && ip addr add 172.%d.$k.1/24 dev "
                       "b$k && ip link add p$k type veth peer name q$k && ip link set p$k master b$k up && ip link "
                       "set q$k up && ip link set b$k up || exit 1; done'",
                       18 + i) &&
                    on(SWITCH, "ip link add v%d type veth peer name eth0 netns %ld", i, (long)holders[i]) &&
                    on(SWITCH, "ip link set v%d master br0 up", i) &&
                    on(i, "ip addr add 10.77.0.%d/24 dev eth0", i + 1) && on(i, "ip link set eth0 up"));
    }
    RankCase p[2] = {{.host = 0, .work = by_eth0}, {.host = 1, .work = by_eth0}};
    run_at(p, 2, "tcp://10.77.0.1");
}

/* Loopback and a bridge that every host has reach no other host. */
static void test_no_way(void **state)
{
    (void)state;
    need_network();
    const char *wrong[] = {"lo", "docker", "127.0.0.0/8"};
    for (int i = 0; i < 3; i++) {
        RankCase p[2] = {{0, wrong[i], E_USAGE, "leads to the others", NULL},
                         {1, wrong[i], E_USAGE, "leads to the others", NULL}};
        run_at(p, 2, "tcp://10.77.0.1");
    }
}

/* Two of three hosts do not reach each other: every rank gets the message that names them, also where others that are
   only slow do not connect in the short time. */
static void test_preflight(void **state)
{
    (void)state;
    need_network();
    const char *expected = "rank 2 on node2 (10.77.0.3, eth0) does not reach rank 1 on node1 (10.77.0.2, eth0)";
    RankCase p[3];
    assert_true(on(2, "ip route add unreachable 10.77.0.2/32"));
    for (int r = 0; r < 3; r++) p[r] = (RankCase){r, NULL, E_PEER, expected, NULL};
    setenv("CAIRN_TEST_CONNECT", "2s", 1);
    run_at(p, 3, "tcp://10.77.0.1");
    unsetenv("CAIRN_TEST_CONNECT");
}

/* Hosts on different networks, with a router between them. */
static int two_ranks(Comm *c, void *arg)
{
    double v = 1;
    (void)arg;
    require(c->nodes == 2 && strstr(comm_peer_name(c, 0), "10.78.0.2") && strstr(comm_peer_name(c, 1), "10.78.1.2"));
    require(comm_sum(c, &v, 1) == OK && v == 2);
    return 0;
}

static void test_routed(void **state)
{
    (void)state;
    need_network();
    for (int i = 0; i < 2; i++)
        assert_true(on(SWITCH, "ip link set v%d nomaster", i) &&
                    on(SWITCH, "ip addr add 10.78.%d.1/24 dev v%d", i, i) && on(i, "ip addr flush dev eth0") &&
                    on(i, "ip addr add 10.78.%d.2/24 dev eth0", i) && on(i, "ip route add default via 10.78.%d.1", i));
    assert_true(on(SWITCH, "sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'"));
    RankCase p[2] = {{.host = 0, .work = two_ranks}, {.host = 1, .work = two_ranks}};
    run_at(p, 2, "tcp://10.78.0.2");
}

/* ---- a cable is pulled ---- */

/* The cable of node 1. Node 1 reports the others as lost, the others node 1. */
static int until_cut(Comm *c, void *arg)
{
    char name[32];
    double v = 1;
    Status status = OK;
    ranks_tell_ready(arg, c->rank);
    while (status == OK) {
        status = comm_sum(c, &v, 1);
        usleep(2000);
    }
    require(status == E_PEER);
    snprintf(name, sizeof name, "lost rank %d on node%d", 1, 1);
    require(strstr(status_message(), c->rank == 1 ? "lost " : name));
    require(strstr(status_message(), "is silent: it is frozen, or cannot be reached"));
    return 0;
}

static void test_cut(void **state)
{
    need_network();
    RankCase p[3] = {{.host = 0, .work = until_cut}, {.host = 1, .work = until_cut}, {.host = 2, .work = until_cut}};
    pid_t children[3];
    ranks_watch_silence(*state);
    for (int r = 0; r < 3; r++) children[r] = start_at(&p[r], r, 3, "tcp://10.77.0.1", *state);
    ranks_wait_ready(*state, 3);
    assert_true(on(SWITCH, "ip link set v1 down"));
    for (int r = 0; r < 3; r += 2) {
        ranks_silence(*state, r, 1);
        ranks_silence(*state, 1, r);
    }
    finish(children, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hosts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_interfaces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_preflight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_routed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut, set_up, tear_down),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
