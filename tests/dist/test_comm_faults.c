/* Survivors of a rank that is killed, frozen, gone or late; and meetings with missing or wrong ranks. */
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

static void require_gone(const Comm *c, int rank)
{
    while (!comm_gone(c, rank)) usleep(10000); /* or for ever */
}

/* Rank 3 is killed, then rank 2, and rank 1 freezes; rank 0 sees each. */
static int one_by_one(Comm *c, void *arg)
{
    double v = 1;
    Loss loss;
    ranks_tell_ready(arg, c->rank);
    while (comm_sum(c, &v, 1) == OK) {}
    require_gone(c, 3); /* another rank may have noticed it first */
    require(!comm_gone(c, c->rank));
    while (c->rank > 0) pause();
    for (int r = 2; r > 0; r--) {
        require(!comm_gone(c, r));
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

static void test_any_moment(void **state)
{
    (void)state;
    enum { SIZE = 3 };
    const int rounds = testing_rounds(6, 24);
    uint64_t seed = 2026;
    for (int round = 0; round < rounds; round++) {
        Ranks ranks = ranks_of(SIZE);
        pid_t children[SIZE];
        int victim = (int)(testing_random(&seed) % SIZE), bad = 0, status;
        unsigned moment = (unsigned)(testing_random(&seed) % (round % 3 ? 40000 : 150000));
        ranks.options.connect_s = 2;
        fflush(NULL);
        for (int r = 0; r < SIZE; r++) {
            children[r] = fork();
            assert_true(children[r] >= 0);
            if (children[r] == 0) _exit(open_and_go_on(&ranks, r));
        }
        usleep(moment);
        kill(children[victim], SIGKILL);
        for (int r = 0; r < SIZE; r++) {
            assert_int_equal(waitpid(children[r], &status, 0), children[r]);
            if (r == victim || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
            print_error("rank %d ended with %x when rank %d was killed after %u us\n", r, status, victim, moment);
            bad++;
        }
        assert_int_equal(bad, 0);
    }
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
    while (c->rank == f->victim && !comm_gone(c, 0)) usleep(10000);
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

/* Seconds to wait for ranks that never come. All groups of ranks wait at the same time. */
enum { CONNECT_S = 20 };

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

static int until_silent(Comm *c, void *arg)
{
    double v = 1;
    require(comm_sum(c, &v, 1) == OK);
    ranks_tell_ready(arg, c->rank);
    while (c->rank == 1) pause();
    require(comm_sum(c, &v, 1) == E_PEER);
    require(strstr(status_message(), "lost rank 1 on ") &&
            strstr(status_message(), "it is frozen, or cannot be reached"));
    return 0;
}

typedef struct {
    pid_t late[2], frozen[2];
    double seconds;
} Expiry;

/* A rank that is late by more than the peer timeout is waited for; one that is stopped is lost after it. */
static void expiry_start(Expiry *e, const char *directory)
{
    e->seconds = CONNECT_S + 5;
    Ranks late = ranks_of(2), frozen = ranks_of(2);
    unsetenv("CAIRN_TEST_SILENT");
    late.options.peer_timeout_s = CONNECT_S;
    late.arg = &e->seconds;
    frozen.options.peer_timeout_s = 3;
    frozen.arg = (void *)(uintptr_t)directory;
    for (int r = 0; r < 2; r++) e->late[r] = ranks_start(&late, r, comes_late);
    for (int r = 0; r < 2; r++) e->frozen[r] = ranks_start(&frozen, r, until_silent);
    ranks_wait_ready(directory, 2);
    kill(e->frozen[1], SIGSTOP);
}

static int expiry_end(Expiry *e)
{
    const pid_t good[] = {e->late[0], e->late[1], e->frozen[0]};
    int bad = 0, status;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(good[i], &status, 0), good[i]);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    kill(e->frozen[1], SIGKILL);
    assert_int_equal(waitpid(e->frozen[1], &status, 0), e->frozen[1]);
    return bad;
}

/* ---- missing and wrong ranks ---- */

enum { MOST_GROUPS = 16 };

typedef struct {
    World world;
    const char *token, *interfaces, *modules, *expected;
    Status status;
    bool waits; /* to the end */
} Opening;

/* Ranks that try to meet at a place. The last two may be twins: processes of one rank, of which either comes first. */
typedef struct {
    Opening openings[3];
    int n;
    bool twins;
    char *where;
    pid_t children[3];
} Group;

static bool as_expected(const Opening *o, Status status, double took)
{
    return status == o->status && strstr(status_message(), o->expected) && (took >= CONNECT_S - 0.5 || !o->waits);
}

/* Opens the communicator and returns 0 if it ends as `o` says, 2 if it ends as `twin` says, else 1. */
static int open_badly(const Opening *o, const Opening *twin, const char *where)
{
    CommOptions options = {"auto", where, o->interfaces ? o->interfaces : "", CONNECT_S, HANG_S, NULL};
    double begin = clock_monotonic();
    Comm *c;
    if (o->modules) setenv("CAIRN_BACKEND_DIR", o->modules, 1);
    if (o->token) setenv("CAIRN_JOB_TOKEN", o->token, 1);
    Status status = comm_open(&o->world, &options, &c);
    double took = clock_monotonic() - begin;
    if (as_expected(o, status, took)) return 0;
    if (twin && as_expected(twin, status, took)) return 2;
    fprintf(stderr, "rank %d at %s: %s after %.1f s: %s; expected %s, \"%s\"\n", o->world.rank, where,
            status_name(status), took, status_message(), status_name(o->status), o->expected);
    return 1;
}

static void start_group(Group *g)
{
    fflush(NULL);
    for (int i = 0; i < g->n; i++) {
        g->children[i] = fork();
        assert_true(g->children[i] >= 0);
        if (g->children[i] == 0) {
            const Opening *o = g->openings;
            _exit(open_badly(&o[i], g->twins && i >= g->n - 2 ? &o[i == g->n - 1 ? g->n - 2 : g->n - 1] : NULL,
                             g->where));
        }
    }
}

static int end_group(const Group *g)
{
    int bad = 0, exchanged = 0, status;
    for (int i = 0; i < g->n; i++) {
        assert_int_equal(waitpid(g->children[i], &status, 0), g->children[i]);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        bad += code != 0 && code != 2;
        exchanged += code == 2;
    }
    return bad + (exchanged != 0 && exchanged != 2);
}

static World world_of(int rank, int size, int group)
{
    World w = {.rank = rank, .size = size, .source = "test"};
    snprintf(w.job, sizeof w.job, "wrong-%ld-%d", (long)getpid(), group);
    return w;
}

static void test_time_outs(void **state)
{
    Group groups[MOST_GROUPS];
    Expiry expiry;
    int n = 0, bad = 0;
    /* A port that the system gives to others would lead these ranks to a listener of another test. */
#define WORLD(rank, size) .world = world_of(rank, size, n)
#define GROUP(...)                                                                                                     \
    do {                                                                                                               \
        const Opening openings[] = {__VA_ARGS__};                                                                      \
        Group *g = &groups[n];                                                                                         \
        assert_true(n < MOST_GROUPS);                                                                                  \
        *g = (Group){.n = sizeof openings / sizeof *openings};                                                         \
        memcpy(g->openings, openings, sizeof openings);                                                                \
        g->where = mem_printf("tcp://127.0.0.1:%d", 10000 + ((int)getpid() % 50 * MOST_GROUPS + n) * 16);              \
        n++;                                                                                                           \
    } while (0)
    GROUP({WORLD(0, 4), .expected = "these did not come: 1, 3", .status = E_PEER, .waits = true},
          {WORLD(2, 4), .expected = "these did not come: 1, 3", .status = E_PEER});
    GROUP({WORLD(1, 4), .expected = "did not find rank 0", .status = E_PEER, .waits = true});
    /* Another world size. */
    GROUP({WORLD(0, 3), .expected = "did not come: 1, 2", .status = E_PEER},
          {WORLD(1, 2), .expected = "was started as one of 2", .status = E_USAGE});
    /* The wrong token: the ranks never meet. */
    GROUP({WORLD(0, 2), .token = "right", .expected = "did not come: 1", .status = E_PEER},
          {WORLD(1, 2), .token = "wrong", .expected = "token", .status = E_PEER});
    GROUP({WORLD(0, 2), .expected = "--iface no-such leaves no network interface", .status = E_USAGE},
          {WORLD(1, 2), .interfaces = "no-such", .expected = "it has ", .status = E_USAGE});
    /* A module that one rank cannot load. */
    GROUP({WORLD(0, 2), .modules = "/", .expected = "rank 0 on ", .status = E_USAGE},
          {WORLD(1, 2), .expected = "cairn_gloo.so is in none of", .status = E_USAGE});
    /* Two processes of one rank. */
    GROUP({WORLD(0, 3), .expected = "did not come: 2", .status = E_PEER},
          {WORLD(1, 3), .expected = "did not come: 2", .status = E_PEER},
          {WORLD(1, 3), .expected = "another process is already rank 1", .status = E_USAGE});
    groups[n - 1].twins = true;
    expiry_start(&expiry, *state);
    for (int i = 0; i < n; i++) start_group(&groups[i]);
    bad += expiry_end(&expiry);
    for (int i = 0; i < n; i++) bad += end_group(&groups[i]);
    for (int i = 0; i < n; i++) free(groups[i].where);
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
        cmocka_unit_test_setup_teardown(test_time_outs, testing_set_up, testing_tear_down),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
