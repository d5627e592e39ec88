/* The rendezvous: rounds, separation of jobs, and strangers at its port. */
#include "testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/machine_memory.h"
#include "comm/meet/rendezvous_wire.h"

#define HANG_S 600.0 /* ends a test that hangs, and decides nothing else */

static World world_of(int rank, int size, const char *job)
{
    World w = {.rank = rank, .size = size};
    snprintf(w.job, sizeof w.job, "%s", job);
    return w;
}

typedef struct {
    World world;
    const char *where, *token;
    Rendezvous *at;
    Status status;
    char message[512];
    const void *mine; /* of a round */
    size_t bytes;
    void *all; // (2, bytes)
    double wait_s;
} Rank;

static void *gather_one(void *arg)
{
    Rank *r = arg;
    r->status = rendezvous_gather(r->at, r->mine, r->bytes, r->all, r->wait_s, NULL);
    snprintf(r->message, sizeof r->message, "%s", status_message());
    return NULL;
}

/* A round of two ranks, of which each says so many bytes. */
static void check_round(Rank r[2], size_t bytes)
{
    pthread_t other;
    uint64_t seed = 7 + bytes;
    char *said = mem_alloc(2 * bytes + 1);
    for (size_t i = 0; i < 2 * bytes; i++) said[i] = (char)testing_random(&seed);
    for (int i = 0; i < 2; i++) {
        r[i].mine = said + (size_t)i * bytes;
        r[i].bytes = bytes;
        r[i].all = mem_alloc(2 * bytes + 1);
        r[i].wait_s = HANG_S;
    }
    assert_int_equal(pthread_create(&other, NULL, gather_one, &r[1]), 0);
    gather_one(&r[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (r[i].status != OK) fail_msg("rank %d: %s", i, r[i].message);
        assert_memory_equal(r[i].all, said, 2 * bytes);
        free(r[i].all);
    }
    free(said);
}

/* ---- meeting ---- */

static void *open_one(void *arg)
{
    Rank *o = arg;
    o->status = rendezvous_join(&o->world, o->where, o->token, HANG_S, NULL, &o->at);
    snprintf(o->message, sizeof o->message, "%s", status_message());
    return NULL;
}

/* A run of two ranks, open. */
static void open_run(Rank o[2], const char *where, const char *job, const char *token)
{
    pthread_t other;
    for (int r = 0; r < 2; r++) o[r] = (Rank){.world = world_of(r, 2, job), .where = where, .token = token};
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
    Rendezvous *r;
    assert_status(rendezvous_join(&w, "ftp://x", "", 1, NULL, &r), E_USAGE);
    assert_message("expected tcp://HOST");
    assert_status(rendezvous_join(&w, "tcp://:5", "", 1, NULL, &r), E_USAGE);
    assert_status(rendezvous_join(&w, "tcp://a:70000", "", 1, NULL, &r), E_USAGE);
    assert_status(rendezvous_join(&w, "file:/tmp", "", 1, NULL, &r), E_USAGE);
    assert_message("do not meet in a folder");
    assert_message("give tcp://HOST[:PORT]");
    assert_status(rendezvous_join(&on_hosts, "auto", "", 1, NULL, &r), E_USAGE);
    assert_message("Give --rendezvous tcp://HOST:PORT");
}

/* ---- TCP ---- */

static char *served_at(const RendezvousServer *s) { return mem_printf("served://127.0.0.1:%d", rendezvous_port(s)); }

static void test_rounds(void **state)
{
    (void)state;
    RendezvousServer *server;
    Rendezvous *r;
    World w = world_of(0, 2, "job"), twice = world_of(1, 2, "job");
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    char *where = served_at(server), all[2];
    Rank o[2];
    open_run(o, where, "job", "token");
    check_round(o, 5);
    check_round(o, MOST_SAID);
    check_round(o, 0);
    /* A present rank may not come twice. */
    assert_status(rendezvous_join(&twice, where, "token", HANG_S, NULL, &r), E_USAGE);
    assert_message("another process is already rank 1");
    World larger = world_of(1, 3, "job");
    assert_status(rendezvous_join(&larger, where, "token", HANG_S, NULL, &r), E_USAGE);
    assert_message("rank 1 was started as one of 3 ranks, the others as of 2");
    /* The round that a rank does not come to ends for all, also for those that come later. */
    assert_status(rendezvous_gather(o[0].at, "x", 1, all, 0.1, NULL), E_PEER);
    assert_message("of 2 ranks these did not come: 1");
    assert_status(rendezvous_gather(o[1].at, "y", 1, all, HANG_S, NULL), E_PEER);
    assert_message("of 2 ranks these did not come: 1");
    for (int i = 0; i < 2; i++) rendezvous_leave(o[i].at);
    rendezvous_close(server);
    free(where);
}

/* The wrong token: the ranks never meet. */
static void test_wrong_token(void **state)
{
    (void)state;
    RendezvousServer *server;
    Rendezvous *r;
    World w = world_of(1, 2, "job");
    assert_ok(rendezvous_serve(&w, true, 0, "right", &server));
    char *where = served_at(server);
    for (double wait = 0.1;; wait *= 2) { /* a loaded machine may not answer in time */
        assert_true(wait < HANG_S);
        assert_status(rendezvous_join(&w, where, "wrong", wait, NULL, &r), E_PEER);
        if (strstr(status_message(), "There are ranks of another job, or with another token or job name")) break;
    }
    rendezvous_close(server);
    free(where);
}

/* Nobody serves there. */
static void test_nobody(void **state)
{
    (void)state;
    Rendezvous *r;
    World w = world_of(1, 4, "job");
    double begin = clock_monotonic();
    int port = 2000 + (int)getpid() % 900 * RENDEZVOUS_PORTS; /* the system gives none of these to others */
    char *where = mem_printf("tcp://127.0.1.1:%d", port);
    w.local_size = 4;
    assert_status(rendezvous_join(&w, where, "", 0.2, NULL, &r), E_PEER);
    assert_true(clock_monotonic() - begin >= 0.2);
    assert_message("rank 1 did not find rank 0 at 127.0.1.1");
    assert_null(strstr(status_message(), "That address is this host's own"));
    w.local_size = 1; /* of several hosts, each of which calls itself so */
    assert_status(rendezvous_join(&w, where, "", 0.2, NULL, &r), E_PEER);
    assert_message("That address is this host's own");
    free(where);
}

/* Ranks of other builds say other numbers of bytes. A rank that left may return. */
static void test_other_build(void **state)
{
    (void)state;
    RendezvousServer *server;
    World w = world_of(0, 2, "job");
    pthread_t other;
    char all[4];
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    char *where = served_at(server);
    Rank o[2];
    open_run(o, where, "job", "token");
    rendezvous_leave(o[1].at);
    do open_one(&o[1]);
    while (o[1].status == E_USAGE); /* until the server has seen that it left */
    assert_status(o[1].status, OK);
    for (int i = 0; i < 2; i++) o[i].mine = "abc", o[i].bytes = 1 + (size_t)i, o[i].all = all, o[i].wait_s = HANG_S;
    char second[4];
    o[1].all = second;
    assert_int_equal(pthread_create(&other, NULL, gather_one, &o[1]), 0);
    gather_one(&o[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        assert_status(o[i].status, E_PEER);
        assert_non_null(strstr(o[i].message, "another build of Cairn"));
        rendezvous_leave(o[i].at);
    }
    rendezvous_close(server);
    free(where);
}

/* The end of the server ends a round. */
static void test_lost_server(void **state)
{
    (void)state;
    RendezvousServer *server;
    Rendezvous *r;
    World w = world_of(0, 2, "job");
    char all[2];
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    char *where = served_at(server);
    assert_ok(rendezvous_join(&w, where, "token", HANG_S, NULL, &r));
    rendezvous_close(server);
    assert_status(rendezvous_gather(r, "x", 1, all, HANG_S, NULL), E_PEER);
    assert_message("is lost");
    rendezvous_leave(r);
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
    RendezvousServer *server;
    Rendezvous *r;
    World w = world_of(0, 1, "job");
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 5) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    int port = ntohs(a.sin_port);
    assert_ok(rendezvous_serve(&w, true, port, "", &server));
    assert_true(rendezvous_port(server) > port);
    char *where = mem_printf("served://127.0.0.1:%d", port);
    assert_ok(rendezvous_join(&w, where, NULL, HANG_S, NULL, &r)); /* the first port accepts and stays silent */
    rendezvous_leave(r);
    rendezvous_close(server);
    close(fd);
    free(where);
}

/* Two runs of one name at once, which give no port: the second meets past the first. */
static void test_two_runs(void **state)
{
    (void)state;
    char job[32];
    Rank first[2], second[2];
    Rendezvous *r;
    snprintf(job, sizeof job, "two runs %d", (int)getpid());
    open_run(first, "tcp://127.0.0.1", job, "");
    open_run(second, "tcp://127.0.0.1", job, "");
    check_round(first, 3);
    check_round(second, 3);
    World twice = world_of(1, 2, job);
    for (double wait = 0.1; rendezvous_join(&twice, "tcp://127.0.0.1", "", wait, NULL, &r) != E_USAGE; wait *= 2)
        assert_true(wait < HANG_S); /* a loaded machine may not answer in time */
    assert_message("another process is already rank 1");
    assert_message("a CAIRN_JOB_TOKEN of its own");
    for (int i = 1; i >= 0; i--) {
        rendezvous_leave(first[i].at);
        rendezvous_leave(second[i].at);
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
    RendezvousHello h = {.rank = rank, .size = size};
    uint8_t greeting[GREETING_BYTES] = RENDEZVOUS_GREETING, show[PROOF_BYTES], verdict[VERDICT_BYTES];
    memcpy(h.client.bytes, greeting + 8, 16);
    if (write(fd, greeting, sizeof greeting) != sizeof greeting) return false;
    if (recv(fd, greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) return false;
    memcpy(h.server.bytes, greeting + 8, 16);
    Hash128 proof = rendezvous_proof(key, 'c', &h);
    memcpy(show, proof.bytes, 16);
    bytes_put(show + 16, (uint32_t)rank, 4);
    bytes_put(show + 20, (uint32_t)size, 4);
    if (write(fd, show, sizeof show) != sizeof show) return false;
    return recv(fd, verdict, sizeof verdict, MSG_WAITALL) == sizeof verdict && verdict[0] == 0;
}

/* Clients that read nothing: strangers, and a rank that asks and does not read its answer. The server waits for none of
   them. */
static void test_zero_window(void **state)
{
    (void)state;
    enum { CROWD = 40 };
    RendezvousServer *server;
    World w = world_of(0, 3, "job");
    Hash128 token = siphash_key("token"), key = siphash(token, "job", 3);
    static int crowd[CROWD];
    uint8_t greeting[GREETING_BYTES] = RENDEZVOUS_GREETING, head[REQUEST_BYTES] = {0};
    pthread_t other;
    Rank o[2] = {{.world = world_of(0, 3, "job")}, {.world = world_of(1, 3, "job")}};
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    int port = rendezvous_port(server);
    char *where = served_at(server), *large = mem_alloc(MOST_SAID);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = connect_to(port);
        assert_true(write(crowd[i], greeting, sizeof greeting) == sizeof greeting);
    }
    int fd = connect_to(port);
    assert_true(let_in(fd, key, 2, 3));
    bytes_put(head + 4, 0xffffffff, 4);
    bytes_put(head + 8, MOST_SAID, 4);
    assert_true(write(fd, head, sizeof head) == sizeof head);
    for (size_t at = 0; at < MOST_SAID;) {
        ssize_t n = write(fd, large + at, MOST_SAID - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    for (int i = 0; i < 2; i++) {
        o[i].where = where, o[i].token = "token", o[i].mine = large, o[i].bytes = MOST_SAID, o[i].wait_s = HANG_S;
        o[i].all = mem_alloc((size_t)3 * MOST_SAID);
        open_one(&o[i]);
        assert_status(o[i].status, OK);
    }
    assert_int_equal(pthread_create(&other, NULL, gather_one, &o[1]), 0);
    gather_one(&o[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (o[i].status != OK) fail_msg("rank %d: %s", i, o[i].message);
        rendezvous_leave(o[i].at);
        free(o[i].all);
    }
    close(fd);
    for (int i = 0; i < CROWD; i++) close(crowd[i]);
    rendezvous_close(server);
    free(where);
    free(large);
}

/* A server that freezes after the greeting is given up when it does not answer. */
static void test_frozen_server(void **state)
{
    (void)state;
    int port = 0, pipes[2];
    RendezvousServer *server;
    Rendezvous *r = NULL;
    char all;
    World w = world_of(0, 1, "job");
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (rendezvous_serve(&w, true, 0, "token", &server) == OK) port = rendezvous_port(server);
        if (write(pipes[1], &port, sizeof port) != sizeof port) _exit(1);
        for (;;) pause();
    }
    assert_true(read(pipes[0], &port, sizeof port) == sizeof port && port > 0);
    char *where = mem_printf("served://127.0.0.1:%d", port);
    assert_ok(rendezvous_join(&w, where, "token", HANG_S, NULL, &r));
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    setenv("CAIRN_TEST_ANSWER", "0.1s", 1);
    assert_status(rendezvous_gather(r, "x", 1, &all, 0, NULL), E_PEER);
    unsetenv("CAIRN_TEST_ANSWER");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    rendezvous_leave(r);
    close(pipes[0]);
    close(pipes[1]);
    free(where);
}

/* A session that reads nothing ends after a minute; a refused one sooner. */
static void test_stalled_session(void **state)
{
    (void)state;
    Hash128 key = siphash_key("k");
    RendezvousRounds t = rendezvous_rounds(key, 1);
    RendezvousSession s;
    uint8_t greeting[GREETING_BYTES] = RENDEZVOUS_GREETING;
    rendezvous_session(&s, &t, 100);
    rendezvous_session_feed(&s, greeting, sizeof greeting, 100);
    s.state = SESSION_OPEN; /* as if it had sent its proof */
    rendezvous_session_tick(&s, 101);
    rendezvous_session_tick(&s, 160);
    assert_int_equal(s.state, SESSION_OPEN);
    rendezvous_session_tick(&s, 162);
    assert_int_equal(s.state, SESSION_ENDING);
    assert_true(s.out.len == s.sent);
    rendezvous_session_end(&s);
    rendezvous_session(&s, &t, 100);
    rendezvous_session_feed(&s, greeting, sizeof greeting, 100);
    rendezvous_session_feed(&s, "nonsense nonsense nonsense nonsense", 35, 100);
    assert_int_equal(s.state, SESSION_ENDING);
    rendezvous_session_tick(&s, 101);
    rendezvous_session_tick(&s, 107);
    assert_true(s.out.len == s.sent);
    rendezvous_session_end(&s);
    rendezvous_rounds_free(&t);
}

/* A rank that came late to the rendezvous, or waits for less, gives up no earlier than the round ends for all. */
static void test_shortest_wait(void **state)
{
    (void)state;
    RendezvousRounds t = rendezvous_rounds(siphash_key("k"), 4);
    RendezvousSession s[2];
    for (int r = 0; r < 2; r++) {
        uint8_t request[REQUEST_BYTES + 1] = {0};
        bytes_put(request + 4, r ? 1000 : 9000, 4);
        bytes_put(request + 8, 1, 4);
        rendezvous_session(&s[r], &t, 100);
        s[r].state = SESSION_OPEN; /* as if it had sent its proof */
        s[r].hello.rank = 2 * r;
        rendezvous_session_feed(&s[r], request, sizeof request, 100 + r);
    }
    rendezvous_tick(&t, 101.9);
    assert_int_equal(t.round, 0);
    rendezvous_tick(&t, 102.1);
    assert_int_equal(t.round, 1);
    for (int r = 0; r < 2; r++) {
        rendezvous_session_tick(&s[r], 102.1);
        assert_true(s[r].out.len > REPLY_BYTES && strstr(s[r].out.data + REPLY_BYTES, "did not come: 1, 3"));
        rendezvous_session_end(&s[r]);
    }
    rendezvous_rounds_free(&t);
}

static void test_strangers(void **state)
{
    (void)state;
    enum { CROWD = 200 };
    RendezvousServer *server;
    World w = world_of(0, 3, "job");
    Hash128 token = siphash_key("token"), key = siphash(token, "job", 3);
    static int crowd[CROWD];
    char junk[4096], byte, all[2][3];
    pthread_t other;
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    int port = rendezvous_port(server);
    char *where = served_at(server);
    Rank o[2] = {{.world = world_of(0, 3, "job")}, {.world = world_of(1, 3, "job")}};
    /* Many silent strangers: the oldest are closed, and a rank is still admitted and served. */
    for (int i = 0; i < CROWD; i++) crowd[i] = connect_to(port);
    for (int i = 0; i < 2; i++) {
        o[i].where = where, o[i].token = "token", o[i].mine = "ab" + i, o[i].bytes = 1, o[i].all = all[i];
        o[i].wait_s = HANG_S;
        open_one(&o[i]);
        assert_status(o[i].status, OK);
    }
    assert_true(is_closed(crowd[0]));
    /* Random bytes; another protocol; an older one; a greeting with another key. */
    memset(junk, 0xee, sizeof junk);
    const char *words[] = {"GET / HTTP/1.0\r\n\r\n", "CAIRNS1\n0123456789abcdef", junk};
    for (int i = 0; i < 3; i++) {
        int fd = connect_to(port);
        assert_true(write(fd, words[i], i == 2 ? sizeof junk : strlen(words[i])) > 0);
        assert_true(is_closed(fd));
        close(fd);
    }
    int fd = connect_to(port);
    assert_false(let_in(fd, token, 2, 3));
    close(fd);
    /* An admitted client with an invalid request is closed; the others are still served. */
    const uint8_t requests[][REQUEST_BYTES] = {
        {0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, /* 4 GiB */
        {1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},             /* a round that has not begun */
        {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0, 0, 0}, /* nor will begin */
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0];) {
        fd = connect_to(port);
        bool here = let_in(fd, key, 2, 3); /* once the server has seen that the one before left */
        if (here) assert_true(write(fd, requests[i++], REQUEST_BYTES) == REQUEST_BYTES && is_closed(fd));
        close(fd);
    }
    /* One leaves in the middle of what it says; another says it all. */
    for (bool here = false; !here; close(fd)) {
        fd = connect_to(port);
        here = let_in(fd, key, 2, 3);
        if (here) assert_true(write(fd, (uint8_t[]){0, 0, 0, 0, 0xff, 0xff, 0, 0, 9, 0, 0, 0, 'z'}, 13) == 13);
    }
    for (bool here = false; !here;) {
        fd = connect_to(port);
        here = let_in(fd, key, 2, 3);
        if (here) assert_true(write(fd, (uint8_t[]){0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 'c'}, 13) == 13);
        if (!here) close(fd);
    }
    assert_int_equal(pthread_create(&other, NULL, gather_one, &o[1]), 0);
    gather_one(&o[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        if (o[i].status != OK) fail_msg("rank %d: %s", i, o[i].message);
        assert_memory_equal(all[i], "abc", 3);
    }
    close(fd);
    /* A stranger that stays silent is closed after its time; the others, which have more, stay. */
    setenv("CAIRN_TEST_GREETING", "0.1s", 1);
    fd = connect_to(port);
    assert_true(is_closed(fd));
    close(fd);
    setenv("CAIRN_TEST_GREETING", "600s", 1);
    assert_true(recv(crowd[CROWD - 1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    for (int i = 0; i < CROWD; i++) close(crowd[i]);
    for (int i = 0; i < 2; i++) rendezvous_leave(o[i].at);
    rendezvous_close(server);
    free(where);
}

static void *close_server(void *server)
{
    rendezvous_close(server);
    return NULL;
}

/* Who serves and leaves waits until the others have their answers: more than a socket holds. */
static void test_last_answers(void **state)
{
    (void)state;
    RendezvousServer *server;
    World w = world_of(0, 1, "job");
    Hash128 token = siphash_key("token"), key = siphash(token, "job", 3);
    uint8_t head[REQUEST_BYTES] = {0}, reply[REPLY_BYTES];
    char *large = mem_alloc(MOST_SAID);
    pthread_t closer;
    int small = 32768;
    assert_ok(rendezvous_serve(&w, true, 0, "token", &server));
    int fd = connect_to(rendezvous_port(server));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_true(let_in(fd, key, 0, 1));
    bytes_put(head + 4, 0xffffffff, 4);
    bytes_put(head + 8, MOST_SAID, 4);
    assert_true(write(fd, head, sizeof head) == sizeof head);
    for (size_t at = 0; at < MOST_SAID;) {
        ssize_t n = write(fd, large + at, MOST_SAID - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_true(recv(fd, reply, sizeof reply, MSG_WAITALL) == sizeof reply && reply[0] == 1);
    setenv("CAIRN_TEST_LINGER", "600s", 1);
    assert_int_equal(pthread_create(&closer, NULL, close_server, server), 0);
    assert_true(recv(fd, large, MOST_SAID, MSG_WAITALL) == MOST_SAID);
    assert_int_equal(pthread_join(closer, NULL), 0);
    unsetenv("CAIRN_TEST_LINGER");
    close(fd);
    free(large);
}

int main(void)
{
    setenv("CAIRN_TEST_GREETING", "600s", 1); /* time for strangers and ranks to greet */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),          cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_other_build),     cmocka_unit_test(test_taken_port),
        cmocka_unit_test(test_last_answers),    cmocka_unit_test(test_lost_server),
        cmocka_unit_test(test_strangers),       cmocka_unit_test(test_zero_window),
        cmocka_unit_test(test_two_runs),        cmocka_unit_test(test_frozen_server),
        cmocka_unit_test(test_stalled_session), cmocka_unit_test(test_shortest_wait),
        cmocka_unit_test(test_wrong_token),     cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
