/* Survivors of a rank that is killed, frozen, gone or late; and ranks that do not open a communicator. Meetings with
   wrong ranks are in tests/unit/test_comm_rendezvous.c. */
#include "dist/ranks.h"

#include <pthread.h>

typedef struct {
    int victim;
    const char *expected; /* in the survivors' message */
    const char *directory;
} Fault;

/* Another thread with its own connection, whose wait must end, too. */
static void *other_thread(void *arg)
{
    Comm *d = arg;
    char x[1000], *all = mem_alloc(sizeof x * (size_t)d->size);
    memset(x, d->rank, sizeof x);
    while (comm_allgather(d, x, sizeof x, all) == OK) usleep(1000);
    bool good = d->dead && strstr(status_message(), "lost ") != NULL;
    free(all);
    return good ? arg : NULL;
}

/* Exchanges until that fails, then checks the failure. The victim does not return, or finds itself reported as lost. */
static int until_lost(Comm *c, void *arg)
{
    const Fault *f = arg;
    char name[32];
    double v = 1, big[5000] = {0};
    pthread_t thread;
    Comm *d;
    void *came;
    Status status;
    require(comm_dup(c, &d) == OK);
    require(pthread_create(&thread, NULL, other_thread, d) == 0);
    ranks_tell_ready(f->directory, c->rank);
    do {
        status = comm_broadcast(c, big, sizeof big, 1);
        if (status == OK) status = comm_sum(c, &v, 1);
    } while (status == OK);
    if (c->rank != f->victim) {
        snprintf(name, sizeof name, "lost rank %d on ", f->victim);
        require(status == E_PEER && c->dead);
        require(strstr(status_message(), name) && strstr(status_message(), f->expected));
        require(comm_barrier(c) == E_PEER && strstr(status_message(), name));
        require(comm_dup(c, &(Comm *){NULL}) == E_PEER);
    }
    require(pthread_join(thread, &came) == 0 && came == d);
    comm_close(d);
    return 0;
}

/* Starts `size` ranks and sends `signal` to one. All others must notice and end with 0: a rank that does not notice
   waits for an hour. */
static void befall(char *directory, int size, Fault *fault, int signal)
{
    Ranks ranks = ranks_of(size);
    pid_t children[4];
    int status, bad = 0;
    ranks_watch_silence(directory);
    fault->directory = directory;
    ranks.arg = fault;
    for (int r = 0; r < size; r++) children[r] = ranks_start(&ranks, r, until_lost);
    ranks_wait_ready(directory, size);
    kill(children[fault->victim], signal);
    for (int r = 0; r < size && signal == SIGSTOP; r++) ranks_silence(directory, r, fault->victim);
    for (int r = 0; r < size; r++) {
        if (r == fault->victim) continue;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        print_error("rank %d ended with %x when rank %d got signal %d\n", r, status, fault->victim, signal);
        bad++;
    }
    if (signal == SIGSTOP) kill(children[fault->victim], SIGCONT);
    assert_int_equal(waitpid(children[fault->victim], &status, 0), children[fault->victim]);
    /* A frozen rank that continues finds the others gone, and ends by itself. */
    if (signal == SIGSTOP && (!WIFEXITED(status) || WEXITSTATUS(status))) bad++;
    assert_int_equal(bad, 0);
}

static void test_killed(void **state)
{
    for (int victim = 0; victim < 4; victim++) {
        Fault f = {victim, "its process has ended", NULL};
        befall(*state, 4, &f, SIGKILL);
    }
    Fault g = {0, "its process has ended", NULL};
    befall(*state, 2, &g, SIGKILL);
}

static void test_frozen(void **state)
{
    Fault f = {1, "it is frozen, or cannot be reached", NULL};
    befall(*state, 3, &f, SIGSTOP);
    ranks_hear(*state);
    f.victim = 0;
    befall(*state, 2, &f, SIGSTOP);
}

/* ---- further losses, after the first ---- */

static bool is_well(const Comm *c, int rank) { return watch_peer(comm_watch(c), rank, 0) == PEER_WELL; }

static void require_gone(const Comm *c, int rank)
{
    while (is_well(c, rank)) usleep(10000); /* or for ever */
}

/* Rank 3 is killed, then rank 2, and rank 1 freezes; rank 0 sees each. */
static int one_by_one(Comm *c, void *arg)
{
    double v = 1;
    Loss loss;
    ranks_tell_ready(arg, c->rank);
    while (comm_sum(c, &v, 1) == OK) {}
    require_gone(c, 3); /* another rank may have noticed it first */
    require(is_well(c, c->rank));
    while (c->rank > 0) pause();
    for (int r = 2; r > 0; r--) {
        require(is_well(c, r));
        ranks_tell_ready(arg, 0);
        require_gone(c, r);
    }
    require(watch_verdict(comm_watch(c), 0, &loss) && loss.rank == 3);
    return 0;
}

static void test_one_by_one(void **state)
{
    Ranks ranks = ranks_of(4);
    pid_t children[4];
    int status;
    ranks_watch_silence(*state);
    ranks.arg = *state;
    for (int r = 0; r < 4; r++) children[r] = ranks_start(&ranks, r, one_by_one);
    ranks_wait_ready(*state, 4);
    for (int r = 3; r > 0; r--) {
        if (r < 3) ranks_wait_ready(*state, 1);
        kill(children[r], r == 1 ? SIGSTOP : SIGKILL);
        if (r == 1) ranks_silence(*state, 0, 1);
    }
    assert_int_equal(waitpid(children[0], &status, 0), children[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int r = 1; r < 4; r++) {
        kill(children[r], SIGKILL);
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
    }
}

/* ---- killed at any moment, also during the meeting ---- */

static int open_and_go_on(const Ranks *ranks, int rank)
{
    World w = ranks->world;
    double v = 1;
    Comm *c = NULL, *d = NULL;
    w.rank = ranks_this = rank;
    Status status = comm_open(&w, &ranks->options, &c);
    if (status == OK) status = comm_dup(c, &d);
    while (status == OK) status = comm_sum(d, &v, 1);
    require(status == E_PEER);
    comm_close(d);
    comm_close(c);
    return 0;
}

/* In a process of its own: 0, if the two that are left notice. */
static int kill_one(uint64_t seed, bool while_meeting)
{
    enum { SIZE = 3 };
    Ranks ranks = ranks_of(SIZE);
    pid_t children[SIZE];
    int victim = (int)(testing_random(&seed) % SIZE), bad = 0, status;
    unsigned moment = (unsigned)(testing_random(&seed) % (while_meeting ? 40000 : 150000));
    ranks.options.connect_s = 2;
    fflush(NULL);
    for (int r = 0; r < SIZE; r++) {
        children[r] = fork();
        if (children[r] < 0) return 1;
        if (children[r] == 0) _exit(open_and_go_on(&ranks, r));
    }
    usleep(moment);
    kill(children[victim], SIGKILL);
    for (int r = 0; r < SIZE; r++) {
        if (waitpid(children[r], &status, 0) != children[r]) return 1;
        if (r == victim || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        print_error("rank %d ended with %x when rank %d was killed after %u us\n", r, status, victim, moment);
        bad++;
    }
    return bad;
}

static void test_any_moment(void **state)
{
    (void)state;
    enum { AT_ONCE = 6 };
    const int rounds = testing_rounds(1, 4);
    int bad = 0, status;
    for (int round = 0; round < rounds; round++) {
        pid_t groups[AT_ONCE];
        fflush(NULL);
        for (int i = 0; i < AT_ONCE; i++) {
            groups[i] = fork();
            assert_true(groups[i] >= 0);
            if (groups[i] == 0) _exit(kill_one((uint64_t)(2026 + round * AT_ONCE + i), i % 3 != 0));
        }
        for (int i = 0; i < AT_ONCE; i++) {
            assert_int_equal(waitpid(groups[i], &status, 0), groups[i]);
            bad += status != 0;
        }
    }
    assert_int_equal(bad, 0);
}

/* ---- a live rank that does not come ---- */

static int one_leaves(Comm *c, void *arg)
{
    const Fault *f = arg;
    double v = 1;
    require(comm_sum(c, &v, 1) == OK);
    if (c->rank == f->victim) return 0; /* closes the Comm, and ends */
    Status status = OK;
    while (status == OK) status = comm_sum(c, &v, 1);
    require(status == E_PEER && strstr(status_message(), f->expected));
    return 0;
}

/* Rank 0 has less patience than the others. The late rank comes when rank 0 has reported it and ended. */
static int one_is_late(Comm *c, void *arg)
{
    const Fault *f = arg;
    double v = 1;
    require(comm_sum(c, &v, 1) == OK);
    while (c->rank == f->victim && is_well(c, 0)) usleep(10000);
    if (c->rank == 0) setenv("CAIRN_TEST_PATIENCE", "3s", 1);
    require(comm_sum(c, &v, 1) == E_PEER);
    require(strstr(status_message(), c->rank == f->victim ? "lost this one" : f->expected));
    return 0;
}

static void test_away(void **state)
{
    (void)state;
    Fault left = {2, "lost rank 2 on ", NULL}, late = {1, "lost rank 1 on ", NULL};
    Ranks ranks = ranks_of(3);
    ranks.arg = &left;
    ranks_run(&ranks, one_leaves);
    setenv("CAIRN_TEST_PATIENCE", "1h", 1); /* a name that is there already: another thread reads the environment */
    late.expected = "does not come to the collective that the others wait in";
    ranks.arg = &late;
    ranks_run(&ranks, one_is_late);
    unsetenv("CAIRN_TEST_PATIENCE");
}

/* ---- time-outs that pass by themselves ---- */

/* Rank 1 lives, and comes to the collective later than the peer timeout. */
static int comes_late(Comm *c, void *arg)
{
    const double *seconds = arg;
    double v = 1;
    require(comm_sum(c, &v, 1) == OK);
    if (c->rank == 1) usleep((useconds_t)(*seconds * 1e6));
    require(comm_sum(c, &v, 1) == OK);
    return 0;
}

static void test_late(void **state)
{
    (void)state;
    Ranks ranks = ranks_of(2);
    ranks.options.peer_timeout_s = 20; /* less, and a loaded machine may not beat in time */
    double seconds = ranks.options.peer_timeout_s + 5;
    ranks.arg = &seconds;
    if (!testing_deep()) skip();
    unsetenv("CAIRN_TEST_SILENT");
    ranks_run(&ranks, comes_late);
}

static int until_silent(Comm *c, void *arg)
{
    double v = 1;
    ranks_tell_ready(arg, c->rank);
    while (c->rank == 1) pause();
    require(comm_sum(c, &v, 1) == E_PEER);
    require(strstr(status_message(), "lost rank 1 on ") &&
            strstr(status_message(), "it is frozen, or cannot be reached"));
    return 0;
}

/* A rank that is stopped is lost after the peer timeout, without a test's help. */
static void test_expiry(void **state)
{
    Ranks ranks = ranks_of(2);
    pid_t children[2];
    int status;
    unsetenv("CAIRN_TEST_SILENT");
    ranks.options.peer_timeout_s = 3;
    ranks.arg = *state;
    for (int r = 0; r < 2; r++) children[r] = ranks_start(&ranks, r, until_silent);
    ranks_wait_ready(*state, 2);
    kill(children[1], SIGSTOP);
    assert_int_equal(waitpid(children[0], &status, 0), children[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kill(children[1], SIGKILL);
    assert_int_equal(waitpid(children[1], &status, 0), children[1]);
}

/* ---- ranks that do not open ---- */

typedef struct {
    World world;
    const char *interfaces, *modules, *expected;
    Status status;
    double connect_s;
    bool waits; /* as long */
} Opening;

/* 0, if opening the communicator ends as expected. */
static int open_badly(const Opening *o, const char *where)
{
    CommOptions options = {"auto", where, o->interfaces ? o->interfaces : "", o->connect_s, HANG_S, NULL};
    double begin = clock_monotonic();
    Comm *c;
    if (o->modules) setenv("CAIRN_BACKEND_DIR", o->modules, 1);
    Status status = comm_open(&o->world, &options, &c);
    double took = clock_monotonic() - begin;
    if (status == o->status && strstr(status_message(), o->expected) && (took >= o->connect_s || !o->waits)) return 0;
    fprintf(stderr, "rank %d at %s: %s after %.1f s: %s; expected %s, \"%s\"\n", o->world.rank, where,
            status_name(status), took, status_message(), status_name(o->status), o->expected);
    return 1;
}

/* Ranks of one size meet; those of others at other places. A missing one is waited for as long as --connect-timeout
   says. */
static void test_opening(void **state)
{
#define WORLD(i, n) .world = {.rank = (i), .size = (n), .job = "opening", .source = "test" }
    static const Opening openings[] = {
        /* Nobody comes. On a loaded machine rank 0 may not reach itself in time. */
        {WORLD(0, 4), .expected = " did not ", .status = E_PEER, .connect_s = 5, .waits = true},
        {WORLD(1, 5), .expected = "did not find rank 0", .status = E_PEER, .connect_s = 1, .waits = true},
        /* No interface on one rank. */
        {WORLD(0, 2), .expected = "--iface no-such leaves no network interface", .status = E_USAGE},
        {WORLD(1, 2), .interfaces = "no-such", .expected = "it has ", .status = E_USAGE},
        /* A module that one rank cannot load. */
        {WORLD(0, 3), .modules = "/", .expected = "rank 0 on ", .status = E_USAGE},
        {WORLD(1, 3), .expected = "cairn_gloo.so is in none of", .status = E_USAGE},
        {WORLD(2, 3), .expected = "cairn_gloo.so is in none of", .status = E_USAGE},
    };
#undef WORLD
    enum { N = sizeof openings / sizeof *openings };
    pid_t children[N];
    int bad = 0, status;
    (void)state;
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        Opening o = openings[i];
        /* A port that the system gives to others would lead these ranks to a listener of another test. */
        char *where = mem_printf("tcp://127.0.0.1:%d", 10000 + ((int)getpid() % 200 * 8 + o.world.size) * 8);
        if (o.connect_s == 0) o.connect_s = HANG_S;
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(open_badly(&o, where));
        free(where);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_frozen, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_one_by_one, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_any_moment, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_away, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_expiry, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_late, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_opening, testing_set_up, testing_tear_down),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
