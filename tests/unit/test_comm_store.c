/* The store of the rendezvous: values, separation of jobs, and strangers at its port. */
#include "testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/machine_memory.h"
#include "comm/meet/store_wire.h"

#define HANG_S 600.0 /* ends a test that hangs, and decides nothing else */

static World world_of(int rank, int size, const char *job)
{
    World w = {.rank = rank, .size = size};
    snprintf(w.job, sizeof w.job, "%s", job);
    return w;
}

static void check_value(Store *s, const char *name, const void *expected, size_t size)
{
    void *data;
    size_t got;
    assert_ok(store_get(s, name, HANG_S, &data, &got));
    assert_int_equal(got, size);
    assert_memory_equal(data, expected, size);
    free(data);
}

/* Sets a value after a while. */
static void *set_late(void *store)
{
    usleep(300000);
    return store_set(store, "late", "x", 1) == OK ? store : NULL;
}

/* The operations of a store, by two ranks. */
static void check_store(Store *a, Store *b)
{
    size_t big = 5000000, got;
    uint8_t *data = mem_alloc(big);
    void *out, *came;
    char long_name[200];
    pthread_t thread;
    uint64_t seed = 7;
    for (size_t i = 0; i < big; i++) data[i] = (uint8_t)testing_random(&seed);
    assert_ok(store_set(a, "big", data, big));
    check_value(b, "big", data, big);
    assert_ok(store_set(b, "empty", "", 0));
    check_value(a, "empty", "", 0);
    assert_ok(store_set(a, "sub/../folder/ x%$\n\"", "1", 1));
    check_value(b, "sub/../folder/ x%$\n\"", "1", 1);
    assert_ok(store_set(a, "again", "one", 3));
    assert_ok(store_set(b, "again", "second", 6));
    check_value(a, "again", "second", 6);
    assert_int_equal(pthread_create(&thread, NULL, set_late, a), 0);
    check_value(b, "late", "x", 1);
    assert_int_equal(pthread_join(thread, &came), 0);
    assert_ptr_equal(came, a);
    assert_status(store_get(a, "never", 0.3, &out, &got), E_PEER);
    assert_message("'never' did not come within 0.3 s");
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_status(store_set(a, long_name, "", 0), E_USAGE);
    assert_status(store_set(a, "", "", 0), E_USAGE);
    assert_status(store_set(a, "huge", data, STORE_MAX_VALUE + 1), E_USAGE);
    free(data);
}

/* ---- meeting ---- */

typedef struct {
    World world;
    const char *where, *token;
    Store *store;
    Status status;
    char message[512];
} Opening;

static void *open_one(void *arg)
{
    Opening *o = arg;
    o->status = store_open(&o->world, o->where, o->token, HANG_S, NULL, &o->store);
    snprintf(o->message, sizeof o->message, "%s", status_message());
    return NULL;
}

/* A run of two ranks, open. */
static void open_run(Opening o[2], const char *where, const char *job, const char *token)
{
    pthread_t other;
    for (int r = 0; r < 2; r++) o[r] = (Opening){.world = world_of(r, 2, job), .where = where, .token = token};
    assert_int_equal(pthread_create(&other, NULL, open_one, &o[1]), 0);
    open_one(&o[0]);
    pthread_join(other, NULL);
    for (int r = 0; r < 2; r++)
        if (o[r].status != OK) fail_msg("rank %d: %s", r, o[r].message);
}

static void test_places(void **state)
{
    (void)state;
    World w = world_of(0, 1, ""), on_hosts = {.rank = 0, .size = 4, .local_size = 2};
    Store *s;
    assert_status(store_open(&w, "ftp://x", "", 1, NULL, &s), E_USAGE);
    assert_message("expected tcp://HOST");
    assert_status(store_open(&w, "tcp://:5", "", 1, NULL, &s), E_USAGE);
    assert_status(store_open(&w, "tcp://a:70000", "", 1, NULL, &s), E_USAGE);
    assert_status(store_open(&w, "file:/tmp", "", 1, NULL, &s), E_USAGE);
    assert_message("do not meet in a folder");
    assert_message("give tcp://HOST[:PORT]");
    assert_status(store_open(&on_hosts, "auto", "", 1, NULL, &s), E_USAGE);
    assert_message("Give --rendezvous tcp://HOST:PORT");
}

/* ---- TCP ---- */

static char *served_at(const StoreServer *s) { return mem_printf("served://127.0.0.1:%d", store_server_port(s)); }

static void test_tcp(void **state)
{
    (void)state;
    StoreServer *server;
    Store *s;
    World w = world_of(0, 2, "job");
    assert_ok(store_serve(&w, true, 0, "token", &server));
    char *where = served_at(server);
    Opening o[2];
    open_run(o, where, "job", "token");
    check_store(o[0].store, o[1].store);
    World looks = world_of(-1, 2, "job");
    assert_ok(store_open(&looks, where, "token", HANG_S, NULL, &s));
    check_value(s, "again", "second", 6);
    store_close(s);
    /* A rank that left may return; a present rank may not come twice. */
    World twice = world_of(1, 2, "job");
    assert_status(store_open(&twice, where, "token", HANG_S, NULL, &s), E_USAGE);
    store_close(o[1].store);
    Status again = E_USAGE;
    for (double end = clock_monotonic() + HANG_S; again != OK && clock_monotonic() < end;)
        again = store_open(&twice, where, "token", HANG_S, NULL, &s);
    assert_status(again, OK);
    store_server_close(server);
    assert_status(store_set(s, "a", "", 0), E_PEER);
    assert_message("is lost");
    assert_status(store_set(s, "a", "", 0), E_PEER);
    store_close(s);
    store_close(o[0].store);
    free(where);
}

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Taken ports are skipped. */
static void test_taken_port(void **state)
{
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    StoreServer *server;
    Store *s;
    World w = world_of(0, 1, "job");
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 5) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    int port = ntohs(a.sin_port);
    assert_ok(store_serve(&w, true, port, "", &server));
    assert_true(store_server_port(server) > port);
    char *where = mem_printf("served://127.0.0.1:%d", port);
    assert_ok(store_open(&w, where, NULL, HANG_S, NULL, &s)); /* the first port accepts and stays silent */
    store_close(s);
    store_server_close(server);
    close(fd);
    free(where);
}

/* Two runs of one name at once, which give no port: the second meets past the first. */
static void test_two_runs(void **state)
{
    (void)state;
    char job[32];
    Opening first[2], second[2];
    Store *s;
    snprintf(job, sizeof job, "two runs %d", (int)getpid());
    open_run(first, "tcp://127.0.0.1", job, "");
    open_run(second, "tcp://127.0.0.1", job, "");
    assert_ok(store_set(first[1].store, "a", "1", 1));
    assert_ok(store_set(second[1].store, "a", "2", 1));
    check_value(first[0].store, "a", "1", 1);
    check_value(second[0].store, "a", "2", 1);
    World twice = world_of(1, 2, job);
    for (double wait = 0.1; store_open(&twice, "tcp://127.0.0.1", "", wait, NULL, &s) != E_USAGE; wait *= 2)
        assert_true(wait < HANG_S); /* a loaded machine may not answer in time */
    assert_message("another process is already rank 1");
    assert_message("a CAIRN_JOB_TOKEN of its own");
    for (int r = 1; r >= 0; r--) {
        store_close(first[r].store);
        store_close(second[r].store);
    }
}

/* True: the other side closes the connection. */
static bool is_closed(int fd)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double end = clock_monotonic() + HANG_S;
    while (clock_monotonic() < end)
        if (poll(&p, 1, 100) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0) return true;
    return false;
}

/* Authenticates with a key; true: it was admitted. */
static bool let_in(int fd, Hash128 key, int rank, int size)
{
    StoreHello h = {.rank = rank, .size = size};
    uint8_t greeting[STORE_GREETING_BYTES] = STORE_GREETING, show[STORE_PROOF_BYTES], verdict[STORE_VERDICT_BYTES];
    memcpy(h.client.bytes, greeting + 8, 16);
    if (write(fd, greeting, sizeof greeting) != sizeof greeting) return false;
    if (recv(fd, greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) return false;
    memcpy(h.server.bytes, greeting + 8, 16);
    Hash128 proof = store_proof(key, 'c', &h);
    memcpy(show, proof.bytes, 16);
    bytes_put(show + 16, (uint32_t)rank, 4);
    bytes_put(show + 20, (uint32_t)size, 4);
    if (write(fd, show, sizeof show) != sizeof show) return false;
    return recv(fd, verdict, sizeof verdict, MSG_WAITALL) == sizeof verdict && verdict[0] == 0;
}

/* Sends as many requests as possible, and reads no answers. */
static void flood(int fd)
{
    uint8_t requests[13 * 500];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < sizeof requests; i += 13) {
        memset(requests + i, 0, 13);
        memcpy(requests + i, (uint8_t[]){'G', 2, 0}, 3);
        memcpy(requests + i + 11, "xl", 2);
    }
    for (int k = 0; k < 20; k++)
        if (write(fd, requests, sizeof requests) <= 0) break;
}

/* Clients that read nothing: strangers and an admitted one. The server does not wait for them, and they cost little
   memory. */
static void test_zero_window(void **state)
{
    (void)state;
    enum { CROWD = 40, LARGE = 4 << 20 };
    StoreServer *server;
    Store *s;
    World w = world_of(0, 2, "job");
    Hash128 token = siphash_key("token"), key = siphash(token, "job", 3);
    static int crowd[CROWD];
    uint8_t greeting[STORE_GREETING_BYTES] = STORE_GREETING;
    assert_ok(store_serve(&w, true, 0, "token", &server));
    int port = store_server_port(server);
    char *where = served_at(server), *large = mem_alloc(LARGE);
    assert_ok(store_open(&w, where, "token", HANG_S, NULL, &s));
    assert_ok(store_set(s, "xl", large, LARGE));
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = connect_to(port);
        assert_true(write(crowd[i], greeting, sizeof greeting) == sizeof greeting);
    }
    size_t before = process_resident();
    int fd = connect_to(port);
    assert_true(let_in(fd, key, -1, 2));
    flood(fd);
    for (int k = 0; k < 20; k++) check_value(s, "xl", large, LARGE);
    assert_true(process_resident() < before + ((size_t)256 << 20)); /* it requested 2 GiB at least */
    /* It gets the answers that it reads after all. */
    uint8_t head[STORE_REPLY_BYTES];
    fcntl(fd, F_SETFL, 0);
    assert_true(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    assert_int_equal(bytes_number(head + 1, 4), LARGE);
    for (int i = 0; i < 4; i++) {
        assert_true(recv(fd, large, LARGE, MSG_WAITALL) == LARGE);
        assert_true(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    }
    close(fd);
    for (int i = 0; i < CROWD; i++) close(crowd[i]);
    store_close(s);
    store_server_close(server);
    free(where);
    free(large);
}

/* A server that freezes after the greeting is given up when it does not answer. */
static void test_frozen_server(void **state)
{
    (void)state;
    int port = 0, pipes[2];
    StoreServer *server;
    Store *s = NULL;
    World w = world_of(0, 1, "job");
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (store_serve(&w, true, 0, "token", &server) == OK) port = store_server_port(server);
        if (write(pipes[1], &port, sizeof port) != sizeof port) _exit(1);
        for (;;) pause();
    }
    assert_true(read(pipes[0], &port, sizeof port) == sizeof port && port > 0);
    char *where = mem_printf("served://127.0.0.1:%d", port);
    assert_ok(store_open(&w, where, "token", HANG_S, NULL, &s));
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    setenv("CAIRN_TEST_ANSWER", "0.1s", 1);
    assert_status(store_set(s, "x", "y", 1), E_PEER);
    unsetenv("CAIRN_TEST_ANSWER");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    store_close(s);
    close(pipes[0]);
    close(pipes[1]);
    free(where);
}

/* A session that reads nothing ends after a minute; a refused one sooner. */
static void test_stalled_session(void **state)
{
    (void)state;
    Hash128 key = siphash_key("k");
    StoreTable *t = store_table_new(key, 1);
    StoreSession s;
    uint8_t greeting[STORE_GREETING_BYTES] = STORE_GREETING;
    store_session_begin(&s, t, 100);
    store_session_feed(&s, greeting, sizeof greeting, 100);
    s.state = SESSION_OPEN; /* as if it had sent its proof */
    store_session_tick(&s, 101);
    store_session_tick(&s, 160);
    assert_int_equal(s.state, SESSION_OPEN);
    store_session_tick(&s, 162);
    assert_int_equal(s.state, SESSION_ENDING);
    assert_true(s.out.len == s.sent);
    store_session_end(&s);
    store_session_begin(&s, t, 100);
    store_session_feed(&s, greeting, sizeof greeting, 100);
    store_session_feed(&s, "nonsense nonsense nonsense nonsense", 35, 100);
    assert_int_equal(s.state, SESSION_ENDING);
    store_session_tick(&s, 101);
    store_session_tick(&s, 107);
    assert_true(s.out.len == s.sent);
    store_session_end(&s);
    store_table_free(t);
}

static void test_strangers(void **state)
{
    (void)state;
    enum { CROWD = 200 };
    StoreServer *server;
    Store *s, *second;
    World w = world_of(0, 2, "job");
    Hash128 token = siphash_key("token"), key = siphash(token, "job", 3);
    static int crowd[CROWD];
    char junk[4096];
    assert_ok(store_serve(&w, true, 0, "token", &server));
    int port = store_server_port(server);
    char *where = served_at(server);
    assert_ok(store_open(&w, where, "token", HANG_S, NULL, &s));
    /* Many silent strangers: the oldest are closed, and a rank is still admitted and served. */
    for (int i = 0; i < CROWD; i++) crowd[i] = connect_to(port);
    World other = world_of(1, 2, "job");
    assert_ok(store_open(&other, where, "token", HANG_S, NULL, &second));
    assert_ok(store_set(second, "a", "b", 1));
    check_value(s, "a", "b", 1);
    assert_true(is_closed(crowd[0]));
    /* Random bytes; another protocol; a greeting with another key; a replayed proof. */
    memset(junk, 0xee, sizeof junk);
    const char *words[] = {"GET / HTTP/1.0\r\n\r\n", "CAIRNS2\n0123456789abcdef", junk};
    for (int i = 0; i < 3; i++) {
        int fd = connect_to(port);
        assert_true(write(fd, words[i], i == 2 ? sizeof junk : strlen(words[i])) > 0);
        assert_true(is_closed(fd));
        close(fd);
    }
    int fd = connect_to(port);
    assert_false(let_in(fd, token, -1, 2));
    close(fd);
    /* An admitted client with an invalid request is closed; the others are still served. */
    const uint8_t requests[][16] = {
        {'S', 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'}, /* a value of 4 GiB */
        {'G', 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 'x'},       /* a name of 64 KiB */
        {'X', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'x'},             /* no such operation */
        {'G', 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 'x'},             /* a value where there is none */
        {'G', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},               /* a name with a NUL */
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        fd = connect_to(port);
        assert_true(let_in(fd, key, -1, 2));
        assert_true(write(fd, requests[i], 12) == 12);
        assert_true(is_closed(fd));
        close(fd);
    }
    /* A client that leaves in the middle of a value. */
    fd = connect_to(port);
    assert_true(let_in(fd, key, -1, 2));
    assert_true(write(fd, (uint8_t[]){'S', 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 'a', 'z'}, 13) == 13);
    close(fd);
    check_value(s, "a", "b", 1);
    /* A stranger that stays silent is closed after its time; the others, which have more, stay. */
    setenv("CAIRN_TEST_GREETING", "0.1s", 1);
    fd = connect_to(port);
    assert_true(is_closed(fd));
    close(fd);
    setenv("CAIRN_TEST_GREETING", "600s", 1);
    char byte;
    assert_true(recv(crowd[CROWD - 1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    for (int i = 0; i < CROWD; i++) close(crowd[i]);
    store_close(second);
    store_close(s);
    store_server_close(server);
    free(where);
}

static void *linger(void *server)
{
    store_server_linger(server, 1200);
    return NULL;
}

/* Who leaves the store that it serves waits until the others have read why. */
static void test_linger(void **state)
{
    (void)state;
    pthread_t thread;
    StoreServer *server;
    Store *s;
    void *data;
    size_t size;
    World w = {.rank = 1, .size = 2, .source = "test", .job = "job"};
    assert_ok(store_serve(&w, true, 0, "token", &server));
    char *where = mem_printf("served://127.0.0.1:%d", store_server_port(server));
    assert_ok(store_open(&w, where, "token", 600, NULL, &s));
    double begin = clock_monotonic();
    store_server_linger(server, 0.05);
    assert_true(clock_monotonic() - begin >= 0.05);
    assert_int_equal(pthread_create(&thread, NULL, linger, server), 0);
    assert_ok(store_set(s, "why", "x", 1));
    assert_ok(store_get(s, "why", 600, &data, &size));
    free(data);
    assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
    store_close(s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(clock_monotonic() - begin < 600);
    store_server_close(server);
    free(where);
}

int main(void)
{
    setenv("CAIRN_TEST_GREETING", "600s", 1); /* time for strangers and ranks to greet */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_taken_port),    cmocka_unit_test(test_linger),
        cmocka_unit_test(test_strangers),     cmocka_unit_test(test_zero_window),
        cmocka_unit_test(test_frozen_server), cmocka_unit_test(test_stalled_session),
        cmocka_unit_test(test_two_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
