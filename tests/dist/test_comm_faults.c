/* Survivors of a rank that is killed, frozen, gone or late; and meetings with missing or wrong ranks. */
#include "dist/ranks.h"

#include <pthread.h>

typedef struct {
    int victim;
    const char *expected; /* in the survivors' message */
    const char *directory;
    double most_s; /* until they notice */
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
    double v = 1, good = 0, big[5000] = {0};
    pthread_t thread;
    Comm *d;
    void *came;
    Status status;
    require(comm_dup(c, &d) == OK);
    require(pthread_create(&thread, NULL, other_thread, d) == 0);
    ranks_tell_ready(f->directory, c->rank);
    do {
        good = clock_monotonic();
        status = comm_broadcast(c, big, sizeof big, 1);
        if (status == OK) status = comm_sum(c, &v, 1);
    } while (status == OK);
    double took = clock_monotonic() - good;
    if (c->rank != f->victim) {
        snprintf(name, sizeof name, "lost rank %d on ", f->victim);
        require(status == E_PEER && c->dead);
        require(strstr(status_message(), name) && strstr(status_message(), f->expected));
        require(took < f->most_s);
        double begin = clock_monotonic();
        require(comm_barrier(c) == E_PEER && strstr(status_message(), name));
        require(clock_monotonic() - begin < 10);
        require(comm_dup(c, &(Comm *){NULL}) == E_PEER);
    }
    require(pthread_join(thread, &came) == 0 && came == d);
    comm_close(d);
    return 0;
}

/* Starts `size` ranks and sends `signal` to one. All others must notice and end with 0. */
static void befall(char *directory, int size, Fault *fault, int signal, double timeout_s)
{
    char *where = mem_printf("file:%s", directory);
    Ranks ranks = ranks_of(size, where);
    pid_t children[4];
    int status, bad = 0;
    ranks.options.peer_timeout_s = timeout_s;
    fault->directory = directory;
    ranks.arg = fault;
    for (int r = 0; r < size; r++) children[r] = ranks_start(&ranks, r, until_lost);
    ranks_wait_ready(directory, size);
    usleep(100000);
    kill(children[fault->victim], signal);
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
    free(where);
    assert_int_equal(bad, 0);
}

static void test_killed(void **state)
{
    for (int victim = 0; victim < 4; victim++) {
        Fault f = {victim, "its process has ended", NULL, 20};
        befall(*state, 4, &f, SIGKILL, 30);
    }
    Fault g = {0, "its process has ended", NULL, 20};
    befall(*state, 2, &g, SIGKILL, 30);
}

static void test_frozen(void **state)
{
    Fault f = {1, "it is frozen, or cannot be reached", NULL, 2.5 + 20};
    befall(*state, 3, &f, SIGSTOP, 2.5);
    f.victim = 0;
    befall(*state, 2, &f, SIGSTOP, 2.5);
}

/* ---- further losses, after the first ---- */

static void require_gone(const Comm *c, int rank)
{
    double begin = clock_monotonic();
    while (!comm_gone(c, rank) && clock_monotonic() < begin + 20) usleep(10000);
    require(comm_gone(c, rank));
}

/* Rank 3 is killed, then rank 2, and rank 1 freezes; rank 0 sees each. */
static int one_by_one(Comm *c, void *arg)
{
    double v = 1;
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
    require(comm_lost(c) == 3);
    return 0;
}

static void test_one_by_one(void **state)
{
    char *where = mem_printf("file:%s", (char *)*state);
    Ranks ranks = ranks_of(4, where);
    pid_t children[4];
    int status;
    ranks.options.peer_timeout_s = 2;
    ranks.arg = *state;
    for (int r = 0; r < 4; r++) children[r] = ranks_start(&ranks, r, one_by_one);
    ranks_wait_ready(*state, 4);
    for (int r = 3; r > 0; r--) {
        if (r < 3) ranks_wait_ready(*state, 1);
        kill(children[r], r == 1 ? SIGSTOP : SIGKILL);
    }
    assert_int_equal(waitpid(children[0], &status, 0), children[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int r = 1; r < 4; r++) {
        kill(children[r], SIGKILL);
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
    }
    free(where);
}

/* ---- killed at any moment, also during the meeting ---- */

static int open_and_go_on(const Ranks *ranks, int rank)
{
    World w = ranks->world;
    double v = 1, begin = clock_monotonic();
    Comm *c = NULL, *d = NULL;
    w.rank = ranks_this = rank;
    Status status = comm_open(&w, &ranks->options, &c);
    if (status == OK) status = comm_dup(c, &d);
    while (status == OK) status = comm_sum(d, &v, 1);
    require(status == E_PEER);
    require(clock_monotonic() - begin < 20);
    comm_close(d);
    comm_close(c);
    return 0;
}

static void test_any_moment(void **state)
{
    enum { ROUNDS = 12, SIZE = 3 };
    uint64_t seed = 2026;
    for (int round = 0; round < ROUNDS; round++) {
        char *file = mem_printf("file:%s/%d", (char *)*state, round);
        Ranks ranks = ranks_of(SIZE, round % 2 ? file : "tcp://127.0.0.1");
        pid_t children[SIZE];
        int victim = (int)(testing_random(&seed) % SIZE), bad = 0, status;
        unsigned moment = (unsigned)(testing_random(&seed) % (round % 3 ? 40000 : 150000));
        ranks.options.connect_s = 2;
        snprintf(ranks.world.job, sizeof ranks.world.job, "moment-%ld-%d", (long)getpid(), round);
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
        free(file);
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
    double begin = clock_monotonic();
    Status status = OK;
    while (status == OK) status = comm_sum(c, &v, 1);
    require(status == E_PEER && clock_monotonic() - begin < f->most_s && strstr(status_message(), f->expected));
    return 0;
}

static int one_is_late(Comm *c, void *arg)
{
    const Fault *f = arg;
    double v = 1;
    require(comm_sum(c, &v, 1) == OK);
    if (c->rank == f->victim) {
        usleep(1500000); /* longer than the peer timeout */
        require(comm_sum(c, &v, 1) == OK);
        usleep((useconds_t)((c->peer_timeout_s * 20 + 1.5) * 1e6));
        require(comm_sum(c, &v, 1) == E_PEER && strstr(status_message(), "lost this one"));
        return 0;
    }
    require(comm_sum(c, &v, 1) == OK);
    double begin = clock_monotonic();
    require(comm_sum(c, &v, 1) == E_PEER && strstr(status_message(), f->expected));
    require(clock_monotonic() - begin >= c->peer_timeout_s * 20 - 0.5);
    return 0;
}

static void test_away(void **state)
{
    char *where = mem_printf("file:%s", (char *)*state);
    Fault left = {2, "lost rank 2 on ", NULL, 20}, late = {1, "lost rank 1 on ", NULL, 60};
    Ranks ranks = ranks_of(3, where);
    ranks.arg = &left;
    ranks_run(&ranks, one_leaves);
    late.expected = "does not come to the collective that the others wait in";
    ranks.options.peer_timeout_s = 0.8;
    ranks.arg = &late;
    ranks_run(&ranks, one_is_late);
    free(where);
}

/* ---- missing and wrong ranks ---- */

typedef struct {
    World world;
    const char *where, *token, *interfaces, *modules, *expected;
    Status status;
    double least_s, most_s;
} Opening;

static bool as_expected(const Opening *o, Status status, double took)
{
    return status == o->status && strstr(status_message(), o->expected) && took >= o->least_s && took <= o->most_s;
}

/* Opens the communicator and returns 0 if it ends as `o` says, 2 if it ends as `twin` says, else 1. */
static int open_badly(const Opening *o, const Opening *twin)
{
    CommOptions options = {"auto", o->where, o->interfaces ? o->interfaces : "", 2, 30, NULL};
    double begin = clock_monotonic();
    Comm *c;
    if (o->modules) setenv("CAIRN_BACKEND_DIR", o->modules, 1);
    if (o->token) setenv("CAIRN_JOB_TOKEN", o->token, 1);
    Status status = comm_open(&o->world, &options, &c);
    double took = clock_monotonic() - begin;
    if (as_expected(o, status, took)) return 0;
    if (twin && as_expected(twin, status, took)) return 2;
    fprintf(stderr, "rank %d: %s after %.1f s: %s; expected %s, \"%s\"\n", o->world.rank, status_name(status), took,
            status_message(), status_name(o->status), o->expected);
    return 1;
}

/* The last two openings may be twins: processes of one rank, of which either may come first. */
static void open_all_of(Opening *openings, int n, bool twins)
{
    pid_t children[4];
    int bad = 0, exchanged = 0, status;
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            _exit(open_badly(&openings[i], twins && i >= n - 2 ? &openings[i == n - 1 ? n - 2 : n - 1] : NULL));
        usleep(100000);
    }
    for (int i = 0; i < n; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        bad += code != 0 && code != 2;
        exchanged += code == 2;
    }
    assert_int_equal(bad, 0);
    assert_true(exchanged == 0 || exchanged == 2);
}

static void open_all(Opening *openings, int n) { open_all_of(openings, n, false); }

static World world_of(int rank, int size)
{
    World w = {.rank = rank, .size = size, .source = "test"};
    snprintf(w.job, sizeof w.job, "wrong-%ld", (long)getpid());
    return w;
}

static void test_missing(void **state)
{
    char *file = mem_printf("file:%s", (char *)*state);
    const char *places[] = {file, "tcp://127.0.0.1"};
    for (int i = 0; i < 2; i++) {
        Opening o[2] = {
            {.world = world_of(0, 4), .expected = "these did not come: 1, 3", .least_s = 1.5},
            {.world = world_of(2, 4), .expected = i ? "these did not come: 1, 3" : "not all of 4 ranks came"}};
        for (int k = 0; k < 2; k++) o[k].where = places[i], o[k].status = E_PEER, o[k].most_s = 20;
        open_all(o, 2);
        Opening alone = {.world = world_of(1, 4), .where = places[i], .status = E_PEER, .least_s = 1.5, .most_s = 20};
        alone.expected = i ? "did not find rank 0" : "rank 0 did not answer";
        open_all(&alone, 1);
    }
    free(file);
}

static void test_wrong(void **state)
{
    char *file = mem_printf("file:%s", (char *)*state);
    char *tcp = mem_printf("tcp://127.0.0.1:%d", 31000 + (int)getpid() % 1000 * 8);
    const char *places[] = {file, tcp};
    for (int i = 0; i < 2; i++) {
        /* Another world size. */
        Opening sizes[2] = {
            {.world = world_of(0, 3), .expected = "did not come: 1, 2"},
            {.world = world_of(1, 2), .expected = i ? "was started as one of 2" : "rank 0 as one of 3"}};
        /* The wrong token: the ranks never meet. */
        Opening tokens[2] = {{.world = world_of(0, 2), .token = "right", .expected = "did not come: 1"},
                             {.world = world_of(1, 2), .token = "wrong", .expected = i ? "token" : "did not answer"}};
        for (int k = 0; k < 2; k++) {
            sizes[k].where = tokens[k].where = places[i];
            sizes[k].status = k ? E_USAGE : E_PEER;
            tokens[k].status = E_PEER;
            sizes[k].most_s = tokens[k].most_s = 20;
        }
        open_all(sizes, 2);
        open_all(tokens, 2);
    }
    Opening interfaces[2] = {{.world = world_of(0, 2), .expected = "rank 1 on "},
                             {.world = world_of(1, 2), .expected = "it has "}};
    for (int k = 0; k < 2; k++) interfaces[k].where = file, interfaces[k].status = E_USAGE, interfaces[k].most_s = 20;
    interfaces[1].interfaces = "no-such";
    interfaces[0].expected = "--iface no-such leaves no network interface";
    open_all(interfaces, 2);
    /* A module that one rank cannot load. */
    Opening module[2] = {{.world = world_of(0, 2), .modules = "/", .expected = "rank 0 on "},
                         {.world = world_of(1, 2), .expected = "cairn_gloo.so is in none of"}};
    for (int k = 0; k < 2; k++) module[k].where = file, module[k].status = E_USAGE, module[k].most_s = 20;
    open_all(module, 2);
    /* Two processes of one rank, over TCP. */
    Opening twice[3] = {{.world = world_of(0, 3), .expected = "did not come: 2"},
                        {.world = world_of(1, 3), .expected = "did not come: 2"},
                        {.world = world_of(1, 3), .expected = "another process is already rank 1"}};
    for (int k = 0; k < 3; k++)
        twice[k].where = places[1], twice[k].status = k < 2 ? E_PEER : E_USAGE, twice[k].most_s = 20;
    open_all_of(twice, 3, true);
    /* Two processes of rank 0 in one folder. */
    Opening first[2] = {{.world = world_of(0, 2), .expected = "another process came as rank 0"},
                        {.world = world_of(0, 2), .expected = "did not come: 1"}};
    for (int k = 0; k < 2; k++) first[k].where = file, first[k].status = k ? E_PEER : E_USAGE, first[k].most_s = 20;
    open_all_of(first, 2, true);
    free(file);
    free(tcp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_frozen, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_one_by_one, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_any_moment, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_away, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_missing, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_wrong, testing_set_up, testing_tear_down),
    };
    log_set_level(LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
