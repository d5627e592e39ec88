/* The client of a store's server. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/socket.h"
#include "base/test_switch.h"
#include "comm/meet/store_wire.h"

#define HELLO_S  3.0  /* for connecting and greeting, per port */
#define LINGER_S 1.0  /* for the other ranks to leave the store of rank 0 */
#define ANSWER_S 20.0 /* at most for an answer, beyond the time that the server may wait */

struct StoreClient {
    int fd;
    char at[320];
    double answer_s;
    StoreServer *server; /* of this rank; NULL: another process serves */
};

Status store_parse_address(const char *text, char **host, int *port)
{
    const char *end = strchr(text, ']'), *begin = text;
    if (*text == '[' && end)
        begin++;
    else
        end = strrchr(text, ':') ? strrchr(text, ':') : text + strlen(text);
    const char *rest = *end == ']' ? end + 1 : end;
    if (*rest) {
        char *stop;
        long n = *rest == ':' ? strtol(rest + 1, &stop, 10) : -1;
        if (*rest != ':' || stop == rest + 1 || *stop || n < 0 || n > 65535)
            return fail(E_USAGE, "'%s': expected HOST:PORT, with a port up to 65535", text);
        if (n) *port = (int)n;
    }
    *host = mem_strndup(begin, (size_t)(end - begin));
    return OK;
}

/* ---- greeting ---- */

/* The attempts of a round. */
typedef struct {
    Buf why;           /* address, port and reason of each failure */
    const char *hint;  /* the likely cause, from the answer of a server; NULL */
    char refusal[256]; /* the last, by a server of this job; "": none */
    bool only;         /* the port was given, so that server is ours; else it may be another run's, and ours the next */
} Tries;

static bool is_final(const Tries *t) { return *t->refusal && t->only; }

/* Mutual authentication. */
static bool authenticate(int fd, Hash128 key, const World *w, SocketLimit until, Tries *t)
{
    StoreHello h = {.rank = w->rank, .size = w->size};
    uint8_t greeting[STORE_GREETING_BYTES], show[STORE_PROOF_BYTES], verdict[STORE_VERDICT_BYTES];
    size_t known = sizeof STORE_GREETING - 1;
    hash128_random(&h.client);
    memcpy(greeting, STORE_GREETING, known);
    memcpy(greeting + known, h.client.bytes, 16);
    if (!socket_send_all(fd, greeting, sizeof greeting, until) ||
        !socket_receive_all(fd, greeting, sizeof greeting, until)) {
        buf_printf(&t->why, "no greeting (%s)", strerror(errno));
        return false;
    }
    if (memcmp(greeting, STORE_GREETING, known) != 0) {
        buf_puts(&t->why, "something else listens there");
        return false;
    }
    memcpy(h.server.bytes, greeting + known, 16);
    Hash128 mine = store_proof(key, 'c', &h), theirs = store_proof(key, 's', &h);
    memcpy(show, mine.bytes, 16);
    bytes_put(show + 16, (uint32_t)w->rank, 4);
    bytes_put(show + 20, (uint32_t)w->size, 4);
    if (!socket_send_all(fd, show, sizeof show, until) || !socket_receive_all(fd, verdict, sizeof verdict, until) ||
        memcmp(verdict + 1, theirs.bytes, 16) != 0) {
        t->hint = ". There are ranks of another job, or with another token or job name";
        buf_puts(&t->why, "not this job's");
        return false;
    }
    if (verdict[0] == 0) return true;
    size_t len = bytes_number(verdict + 17, 2);
    snprintf(t->refusal, sizeof t->refusal, "refused");
    if (len < sizeof t->refusal && socket_receive_all(fd, t->refusal, len, until)) t->refusal[len] = '\0';
    buf_puts(&t->why, t->refusal);
    return false;
}

/* Tries one port at each address of the host. Returns the socket; -1: none. */
static int try_port(const struct addrinfo *list, int port, Hash128 key, const World *w, SocketLimit all, Tries *t)
{
    char host[64] = "?";
    for (const struct addrinfo *a = list; a && !is_final(t) && !store_stopped(all.stop); a = a->ai_next) {
        SocketAddress at = {0};
        int error;
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        socket_set_port(&at, port);
        getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        SocketLimit until = {clock_monotonic() + HELLO_S, all.stop};
        if (until.end > all.end) until.end = all.end;
        int fd = socket_connect(&at, &error);
        if (error == EINPROGRESS) error = socket_connected(fd, until);
        buf_printf(&t->why, "%s%s port %d: ", t->why.len ? "; " : "", host, port);
        if (error) buf_puts(&t->why, strerror(error));
        if (!error && authenticate(fd, key, w, until, t)) return fd;
        if (fd >= 0) close(fd);
    }
    return -1;
}

static Status resolve_host(const char *host, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    int error = getaddrinfo(host, "0", &hints, list);
    if (error == EAI_NONAME || error == EAI_ADDRFAMILY) {
        hints.ai_flags = 0;
        error = getaddrinfo(host, "0", &hints, list);
    }
    if (error) return fail(E_PEER, "the host '%s' has no address: %s", host, gai_strerror(error));
    return OK;
}

/* Debian's installer writes the host's own name as 127.0.1.1 into /etc/hosts. */
static bool is_loopback(const struct addrinfo *a)
{
    if (a->ai_family != AF_INET) return false;
    return ntohl(((struct sockaddr_in *)a->ai_addr)->sin_addr.s_addr) >> 24 == 127;
}

/* Tries all ports in turn. A name may become known only in a later round. */
static Status try_all_ports(StoreClient *t, const World *w, const char *host, int port, Hash128 key, SocketLimit until,
                            Tries *tries, bool *loopback)
{
    struct addrinfo *list = NULL;
    buf_free(&tries->why);
    TRY(resolve_host(host, &list));
    *loopback = is_loopback(list);
    for (int i = 0; i < STORE_PORTS && port + i < 65536 && t->fd < 0 && !is_final(tries); i++) {
        if (store_stopped(until.stop) || (i > 0 && clock_monotonic() > until.end)) break;
        t->fd = try_port(list, port + i, key, w, until, tries);
        if (t->fd >= 0) snprintf(t->at, sizeof t->at, "%s port %d", host, port + i);
    }
    freeaddrinfo(list);
    return OK;
}

static Status join_server(StoreClient *t, const World *w, const char *host, int port, bool only, Hash128 key,
                          double timeout_s, const volatile sig_atomic_t *stop)
{
    Status status;
    Tries tries = {.only = only};
    SocketLimit until = {clock_monotonic() + timeout_s, stop};
    bool loopback = false, told = false;
    for (;;) {
        status = try_all_ports(t, w, host, port, key, until, &tries, &loopback);
        if (t->fd >= 0 || is_final(&tries) || clock_monotonic() >= until.end) break;
        if (store_stopped(stop)) break;
        if (!told)
            log_debug("rank %d waits for rank 0 at %s: %s", w->rank, host,
                      status == OK ? tries.why.data : status_message());
        told = true;
        usleep(100000);
    }
    if (t->fd < 0 && store_stopped(stop))
        status = store_fail_stopped();
    else if (t->fd < 0 && *tries.refusal)
        status = fail(E_USAGE, "rank 0 at %s refused: %s%s", host, tries.refusal,
                      only ? "" : ". Give each of two runs at once a CAIRN_JOB_TOKEN of its own");
    else if (status == OK && t->fd < 0)
        status = fail(
            E_PEER,
            "rank %d did not find rank 0 at %s, ports %d to %d, within %.0f s (%s)%s%s. Check that rank 0 runs, and "
            "that this port can be reached",
            w->rank, host, port, port + STORE_PORTS - 1, timeout_s, tries.why.data, tries.hint ? tries.hint : "",
            loopback && !tries.hint && w->local_size != w->size
                ? ". That address is this host's own: give the name or address by which the "
                  "others reach rank 0's host"
                : "");
    buf_free(&tries.why);
    return status;
}

/* ---- requests ---- */

static Status fail_lost_store(StoreClient *t, const char *what)
{
    int why = errno;
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    return fail(E_PEER,
                "the store at %s is lost (%s: %s): its process (rank 0 or the launcher) has ended or cannot be reached",
                t->at, what, strerror(why));
}

static Status request(StoreClient *t, char operation, const char *name, double wait_s, const void *data, size_t size,
                      int *outcome, void **answer, size_t *answer_size)
{
    uint8_t head[STORE_REQUEST_BYTES + STORE_MAX_NAME], reply[STORE_REPLY_BYTES];
    size_t len = strlen(name);
    SocketLimit until = {.end = clock_monotonic() + wait_s + test_seconds("ANSWER", t->answer_s)};
    if (t->fd < 0) return fail(E_PEER, "the store at %s is lost", t->at);
    head[0] = (uint8_t)operation;
    bytes_put(head + 1, len, 2);
    bytes_put(head + 3, (uint64_t)(wait_s * 1e3), 4);
    bytes_put(head + 7, size, 4);
    memcpy(head + STORE_REQUEST_BYTES, name, len);
    if (!socket_send_all(t->fd, head, STORE_REQUEST_BYTES + len, until) || !socket_send_all(t->fd, data, size, until) ||
        !socket_receive_all(t->fd, reply, sizeof reply, until))
        return fail_lost_store(t, name);
    *outcome = reply[0];
    *answer_size = bytes_number(reply + 1, 4);
    if (*answer_size > STORE_MAX_VALUE) {
        errno = EPROTO;
        return fail_lost_store(t, name);
    }
    if (reply[0] != STORE_DONE || operation != 'G') return OK;
    *answer = mem_alloc(*answer_size + 1);
    if (socket_receive_all(t->fd, *answer, *answer_size, until)) return OK;
    free(*answer);
    *answer = NULL;
    return fail_lost_store(t, name);
}

Status store_client_set(StoreClient *t, const char *name, const void *data, size_t size)
{
    int outcome;
    size_t none;
    TRY(request(t, 'S', name, 0, data, size, &outcome, NULL, &none));
    return outcome == STORE_DONE ? OK : fail(E_MEMORY, "no room for %s: %zu bytes", name, size);
}

Status store_client_get(StoreClient *t, const char *name, double wait_s, void **data, size_t *size)
{
    int outcome;
    *data = NULL;
    return request(t, 'G', name, wait_s, NULL, 0, &outcome, data, size);
}

void store_client_close(StoreClient *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    store_server_linger(t->server, LINGER_S); /* they may not have read yet why this rank leaves */
    store_server_close(t->server);
    free(t);
}

void store_client_hurry(StoreClient *t, double answer_s) { t->answer_s = answer_s; }

/* The default port follows from the job's name, so that two jobs seldom share one. */
static int port_of_job(Hash128 key)
{
    return 20000 + (int)(bytes_number(key.bytes, 4) % 10000) / STORE_PORTS * STORE_PORTS;
}

Status store_client_open(const World *w, const char *host_and_port, bool serve, Hash128 key, double timeout_s,
                         const volatile sig_atomic_t *stop, StoreClient **client)
{
    Status status = OK;
    char *host = NULL;
    int port = 0;
    StoreClient *t = mem_alloc(sizeof *t);
    t->fd = -1;
    t->answer_s = timeout_s < ANSWER_S ? timeout_s : ANSWER_S;
    TRY_DONE(store_parse_address(host_and_port, &host, &port));
    bool given = port != 0;
    if (!given) port = port_of_job(siphash(key, "port", 4));
    if (!*host) {
        status = fail(E_USAGE, "rendezvous 'tcp://%s' has no host; expected tcp://HOST[:PORT]", host_and_port);
        goto done;
    }
    if (serve) {
        bool loopback =
            strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, socket_loopback()) == 0;
        TRY_DONE(store_serve_key(loopback, port, key, w->size, &t->server));
        free(host);
        host = mem_strdup(socket_loopback());
        port = store_server_port(t->server);
    }
    TRY_DONE(join_server(t, w, host, port, given || serve, key, timeout_s, stop));
    *client = t;
    t = NULL;
done:
    free(host);
    store_client_close(t);
    return status;
}
