/* A rank at the rendezvous. */
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/socket.h"
#include "base/test_switch.h"
#include "comm/meet/rendezvous_wire.h"

#define HELLO_S  3.0  /* for connecting and greeting, per port */
#define ANSWER_S 20.0 /* at most for an answer, beyond the time that the server may wait */

struct Rendezvous {
    int fd, size; /* of the world */
    char at[320];
    int64_t round; /* the next one */
    double answer_s;
    const volatile sig_atomic_t *stop; /* may be NULL */
    RendezvousServer *server;          /* of this rank; NULL: another process serves */
};

bool rendezvous_stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }
Status rendezvous_fail_stopped(void) { return fail(E_STOPPED, "stopped by a signal while the ranks met"); }

Status rendezvous_parse_address(const char *text, char **host, int *port)
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
    RendezvousHello h = {.rank = w->rank, .size = w->size};
    uint8_t greeting[GREETING_BYTES], show[PROOF_BYTES], verdict[VERDICT_BYTES];
    size_t known = sizeof RENDEZVOUS_GREETING - 1;
    hash128_random(&h.client);
    memcpy(greeting, RENDEZVOUS_GREETING, known);
    memcpy(greeting + known, h.client.bytes, 16);
    if (!socket_send_all(fd, greeting, sizeof greeting, until) ||
        !socket_receive_all(fd, greeting, sizeof greeting, until)) {
        buf_printf(&t->why, "no greeting (%s)", strerror(errno));
        return false;
    }
    if (memcmp(greeting, RENDEZVOUS_GREETING, known) != 0) {
        buf_puts(&t->why, "something else listens there");
        return false;
    }
    memcpy(h.server.bytes, greeting + known, 16);
    Hash128 mine = rendezvous_proof(key, 'c', &h), theirs = rendezvous_proof(key, 's', &h);
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
    for (const struct addrinfo *a = list; a && !is_final(t) && !rendezvous_stopped(all.stop); a = a->ai_next) {
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
static Status try_all_ports(Rendezvous *t, const World *w, const char *host, int port, Hash128 key, SocketLimit until,
                            Tries *tries, bool *loopback)
{
    struct addrinfo *list = NULL;
    buf_free(&tries->why);
    TRY(resolve_host(host, &list));
    *loopback = is_loopback(list);
    for (int i = 0; i < RENDEZVOUS_PORTS && port + i < 65536 && t->fd < 0 && !is_final(tries); i++) {
        if (rendezvous_stopped(until.stop) || (i > 0 && clock_monotonic() > until.end)) break;
        t->fd = try_port(list, port + i, key, w, until, tries);
        if (t->fd >= 0) snprintf(t->at, sizeof t->at, "%s port %d", host, port + i);
    }
    freeaddrinfo(list);
    return OK;
}

static Status join_server(Rendezvous *t, const World *w, const char *host, int port, bool only, Hash128 key,
                          double timeout_s, const volatile sig_atomic_t *stop)
{
    Status status;
    Tries tries = {.only = only};
    SocketLimit until = {clock_monotonic() + timeout_s, stop};
    bool loopback = false, told = false;
    for (;;) {
        status = try_all_ports(t, w, host, port, key, until, &tries, &loopback);
        if (t->fd >= 0 || is_final(&tries) || clock_monotonic() >= until.end) break;
        if (rendezvous_stopped(stop)) break;
        if (!told)
            log_debug("rank %d waits for rank 0 at %s: %s", w->rank, host,
                      status == OK ? tries.why.data : status_message());
        told = true;
        double due = clock_monotonic() + 0.1;
        usleep(100000);
        until.end += clock_suspended(due);
    }
    if (t->fd < 0 && rendezvous_stopped(stop))
        status = rendezvous_fail_stopped();
    else if (t->fd < 0 && *tries.refusal)
        status = fail(E_USAGE, "rank 0 at %s refused: %s%s", host, tries.refusal,
                      only ? "" : ". Give each of two runs at once a CAIRN_JOB_TOKEN of its own");
    else if (status == OK && t->fd < 0)
        status = fail(
            E_PEER,
            "rank %d did not find rank 0 at %s, ports %d to %d, within %.0f s (%s)%s%s. Check that rank 0 runs, and "
            "that this port can be reached",
            w->rank, host, port, port + RENDEZVOUS_PORTS - 1, timeout_s, tries.why.data, tries.hint ? tries.hint : "",
            loopback && !tries.hint && w->local_size != w->size
                ? ". That address is this host's own: give the name or address by which the "
                  "others reach rank 0's host"
                : "");
    buf_free(&tries.why);
    return status;
}

/* ---- where ---- */

/* *here: at this host, because neither a launcher nor a scheduler names one. */
static Status default_place(const World *w, char **where, bool *here)
{
    const char *left = getenv("CAIRN_RENDEZVOUS");
    if (left && *left && strcmp(left, "auto") != 0) {
        *where = mem_strdup(left);
        return OK;
    }
    if (w->master[0]) {
        bool v6 = strchr(w->master, ':') != NULL;
        *where = mem_printf(v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", w->master, w->master_port);
        return OK;
    }
    if (w->local_size > 0 && w->local_size < w->size)
        return fail(E_USAGE,
                    "rank %d of %d (%s): the ranks are on several hosts, and have no place to meet. Give "
                    "--rendezvous tcp://HOST:PORT with rank 0's host, or start them with cairn launch",
                    w->rank, w->size, w->source);
    const char *loopback = socket_loopback();
    *where = mem_printf(strchr(loopback, ':') ? "tcp://[%s]" : "tcp://%s", loopback);
    *here = true;
    return OK;
}

static bool skip_prefix(const char **text, const char *with)
{
    size_t n = strlen(with);
    if (strncmp(*text, with, n) != 0) return false;
    *text += n;
    return true;
}

/* Ranks that meet at this host meet those of the same user alone. */
static Hash128 key_of(const World *w, const char *token, bool here)
{
    Hash128 key = siphash_key(token ? token : "");
    char *job = here ? mem_printf("%s user %u", w->job, (unsigned)geteuid()) : mem_strdup(w->job);
    Hash128 of_job = siphash(key, job, strlen(job));
    free(job);
    return of_job;
}

/* Opens the connection to "HOST:PORT" (rendezvous_parse_address), and serves it before, as rank 0. The default port
   follows from the job's name, so that two jobs seldom share one. */
static Status open_at(Rendezvous *t, const World *w, const char *text, bool serve, Hash128 key, double timeout_s)
{
    Status status = OK;
    char *host = NULL;
    int port = 0;
    TRY(rendezvous_parse_address(text, &host, &port));
    bool given = port != 0;
    Hash128 of_job = siphash(key, "port", 4);
    if (!given) port = 20000 + (int)(bytes_number(of_job.bytes, 4) % 10000) / RENDEZVOUS_PORTS * RENDEZVOUS_PORTS;
    if (!*host) TRY_DONE(fail(E_USAGE, "rendezvous 'tcp://%s' has no host; expected tcp://HOST[:PORT]", text));
    if (serve) {
        bool loopback =
            strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, socket_loopback()) == 0;
        TRY_DONE(rendezvous_serve_key(loopback, port, key, w->size, &t->server));
        free(host);
        host = mem_strdup(socket_loopback());
        port = rendezvous_port(t->server);
    }
    TRY_DONE(join_server(t, w, host, port, given || serve, key, timeout_s, t->stop));
done:
    free(host);
    return status;
}

static Status join(Rendezvous *t, const World *w, const char *where, Hash128 key, double timeout_s)
{
    const char *at = where;
    bool served = skip_prefix(&at, "served://"); /* by the launcher */
    if (served || skip_prefix(&at, "tcp://")) return open_at(t, w, at, !served && w->rank == 0, key, timeout_s);
    if (skip_prefix(&at, "file:"))
        return fail(E_USAGE,
                    "rendezvous '%s': ranks do not meet in a folder. Leave --rendezvous out for ranks of one "
                    "host; for several hosts give tcp://HOST[:PORT] with rank 0's host, or use cairn launch",
                    where);
    return fail(E_USAGE, "rendezvous '%s': expected tcp://HOST[:PORT] or auto", where);
}

Status rendezvous_join(const World *w, const char *where, const char *token, double timeout_s,
                       const volatile sig_atomic_t *stop, Rendezvous **rendezvous)
{
    Status status = OK;
    bool here = false;
    char *place = NULL;
    Rendezvous *t = mem_alloc(sizeof *t);
    *t = (Rendezvous){.fd = -1, .size = w->size, .stop = stop};
    t->answer_s = timeout_s < ANSWER_S ? timeout_s : ANSWER_S;
    *rendezvous = NULL;
    if (!where || !*where || strcmp(where, "auto") == 0)
        TRY_DONE(default_place(w, &place, &here));
    else
        place = mem_strdup(where);
    log_debug("rank %d of %d meets the others at %s", w->rank, w->size, place);
    TRY_DONE(join(t, w, place, key_of(w, token, here), timeout_s));
    *rendezvous = t;
    t = NULL;
done:
    if (t && place) status = status_context(status, "meeting at %s", place);
    rendezvous_leave(t);
    free(place);
    return status;
}

/* ---- rounds ---- */

static Status fail_lost(const Rendezvous *t)
{
    if (rendezvous_stopped(t->stop)) return rendezvous_fail_stopped();
    return fail(
        E_PEER,
        "the rendezvous at %s is lost (%s): its process (rank 0 or the launcher) has ended or cannot be reached", t->at,
        strerror(errno));
}

/* The first byte of the answer: whether all have come. */
static Status await_answer(Rendezvous *t, double until, Watch *watch, uint8_t *good)
{
    Loss loss;
    for (;;) {
        bool lost = watch_verdict(watch, 0, &loss); /* before the last look */
        double now = clock_monotonic(), next = now + 0.2 < until ? now + 0.2 : until;
        if (socket_receive_all(t->fd, good, 1, (SocketLimit){next, t->stop})) return OK;
        until += clock_suspended(next); /* with the others */
        if (errno != ETIMEDOUT || now >= until) return fail_lost(t);
        if (lost) return fail(E_PEER, "lost rank %d while the ranks met: it %s", loss.rank, loss_text(loss.reason));
    }
}

Status rendezvous_gather(Rendezvous *t, const void *mine, size_t bytes, void *all, double timeout_s, Watch *watch)
{
    uint8_t head[REQUEST_BYTES], reply[REPLY_BYTES];
    double answer_s = test_seconds("ANSWER", t->answer_s), wait_s = timeout_s > 0 ? timeout_s : 0;
    SocketLimit until = {clock_monotonic() + answer_s, t->stop};
    CHECK(bytes <= MOST_SAID, "%zu bytes for a round of the rendezvous", bytes);
    bytes_put(head, (uint64_t)t->round++, 4);
    bytes_put(head + 4, (uint64_t)(wait_s * 1e3), 4);
    bytes_put(head + 8, bytes, 4);
    if (!socket_send_all(t->fd, head, sizeof head, until) || !socket_send_all(t->fd, mine, bytes, until))
        return fail_lost(t);
    TRY(await_answer(t, clock_monotonic() + wait_s + answer_s, watch, reply));
    until.end = clock_monotonic() + answer_s;
    if (!socket_receive_all(t->fd, reply + 1, sizeof reply - 1, until)) return fail_lost(t);
    size_t size = bytes_number(reply + 1, 4), total = bytes * (size_t)t->size;
    if (reply[0] ? size != total : size > MOST_SAID) {
        errno = EPROTO;
        return fail_lost(t);
    }
    char *why = reply[0] ? NULL : mem_alloc(size + 1);
    Status status = socket_receive_all(t->fd, why ? why : all, size, until) ? OK : fail_lost(t);
    if (status == OK && why) status = fail(E_PEER, "%s", why);
    free(why);
    return status;
}

void rendezvous_leave(Rendezvous *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    rendezvous_close(t->server);
    free(t);
}
