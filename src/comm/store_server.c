#include "comm/store_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/store_wire.h"

enum { MOST_STRANGERS = 64, READ_BYTES = 65536 };

typedef struct {
    int fd;
    StoreSession session;
} Guest;

struct StoreServer {
    int listener, wake, port;
    pthread_t thread;
    pthread_mutex_t lock; /* of the table */
    StoreTable *table;
    Guest **guests;
    int n_guests, cap_guests;
    struct pollfd *polls;
};

static void guest_free(Guest *g)
{
    close(g->fd);
    store_session_end(&g->session);
    free(g);
}

static bool is_stranger(const Guest *g) { return g->session.state <= SESSION_PROOF; }

/* Too many that have not shown who they are: the first of them goes. */
static void limit_strangers(StoreServer *s)
{
    int strangers = 0, first = -1;
    for (int i = 0; i < s->n_guests; i++)
        if (is_stranger(s->guests[i])) {
            strangers++;
            if (first < 0) first = i;
        }
    if (strangers <= MOST_STRANGERS) return;
    guest_free(s->guests[first]);
    memmove(s->guests + first, s->guests + first + 1, (size_t)(s->n_guests - first - 1) * sizeof *s->guests);
    s->n_guests--;
}

static void welcome(StoreServer *s, double now)
{
    int one = 1, fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) usleep(10000); /* somebody will leave */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    Guest *g = mem_alloc(sizeof *g);
    g->fd = fd;
    store_session_begin(&g->session, s->table, now);
    MEM_GROW(s->guests, s->n_guests, s->cap_guests);
    s->guests[s->n_guests++] = g;
    limit_strangers(s);
}

/* False: it is gone. */
static bool read_guest(Guest *g, uint8_t *block, double now)
{
    /* A stranger may not fill memory; its greeting is short. */
    ssize_t n = recv(g->fd, block, is_stranger(g) ? 64 : READ_BYTES, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    store_session_feed(&g->session, block, (size_t)n, now);
    return true;
}

static bool write_guest(Guest *g)
{
    StoreSession *s = &g->session;
    while (s->sent < s->out.len) {
        ssize_t n = send(g->fd, s->out.data + s->sent, s->out.len - s->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        s->sent += (size_t)n;
        s->stalled = 0;
    }
    if (s->sent) buf_free(&s->out);
    s->sent = 0;
    return true;
}

static void prepare_polls(StoreServer *s)
{
    s->polls = mem_resize(s->polls, (size_t)s->n_guests + 2, sizeof *s->polls);
    s->polls[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (int i = 0; i < s->n_guests; i++) {
        const StoreSession *x = &s->guests[i]->session;
        short events = x->sent < x->out.len ? POLLOUT : 0;
        /* One that waits for a value has nothing to say but that it goes. */
        if (x->state != SESSION_WAITING && x->state != SESSION_ENDING && !events) events |= POLLIN;
        s->polls[i + 2] = (struct pollfd){.fd = s->guests[i]->fd, .events = (short)(events | POLLRDHUP)};
    }
}

/* Until the next one's time is up, in ms. */
static int next_tick(const StoreServer *s, double now)
{
    double wait_s = 60;
    for (int i = 0; i < s->n_guests; i++) {
        const StoreSession *x = &s->guests[i]->session;
        bool timed = is_stranger(s->guests[i]) || x->state == SESSION_WAITING;
        if (timed && x->until - now < wait_s) wait_s = x->until - now;
        if (x->sent < x->out.len && wait_s > 1) wait_s = 1; /* does somebody take it? */
    }
    return wait_s <= 0 ? 0 : (int)(wait_s * 1e3) + 1;
}

static bool serve_guest(Guest *g, short happened, uint8_t *block, double now)
{
    StoreSession *x = &g->session;
    if (happened & (POLLERR | POLLNVAL)) return false;
    if ((happened & POLLIN) && !read_guest(g, block, now)) return false;
    if (!(happened & POLLIN) && (happened & (POLLHUP | POLLRDHUP))) return false;
    for (size_t before = x->in.len + 1; before != x->in.len;) { /* what has gone makes room for more answers */
        before = x->in.len;
        store_session_tick(x, now);
        if (!write_guest(g)) return false;
    }
    return x->state != SESSION_ENDING || x->sent < x->out.len;
}

static void *serve(void *arg)
{
    StoreServer *s = arg;
    uint8_t *block = mem_alloc(READ_BYTES);
    for (;;) {
        prepare_polls(s);
        int n = s->n_guests, kept = 0;
        poll(s->polls, (nfds_t)n + 2, next_tick(s, clock_monotonic()));
        double now = clock_monotonic();
        if (s->polls[0].revents) break;
        pthread_mutex_lock(&s->lock);
        /* Twice: a value that one brings is what an earlier one waits for. */
        for (int i = 0; i < n; i++) {
            if (serve_guest(s->guests[i], s->polls[i + 2].revents, block, now))
                s->guests[kept++] = s->guests[i];
            else
                guest_free(s->guests[i]);
        }
        s->n_guests = kept;
        for (int i = 0; i < kept; i++) store_session_tick(&s->guests[i]->session, now);
        if (s->polls[1].revents) welcome(s, now);
        pthread_mutex_unlock(&s->lock);
    }
    free(block);
    return NULL;
}

/* ---- opening ---- */

/* Listens on `port`; errno says why not. Of all addresses, IPv6 and IPv4, or of this host alone. */
static int listen_at(int port, bool loopback, bool v6)
{
    int one = 1, zero = 0, fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a4.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (v6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    int bad = v6 ? bind(fd, (struct sockaddr *)&a6, sizeof a6) : bind(fd, (struct sockaddr *)&a4, sizeof a4);
    if (bad == 0 && listen(fd, 1024) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int listen_any(int port, bool loopback)
{
    int fd = loopback ? -1 : listen_at(port, false, true);
    if (fd < 0 && (loopback || errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) fd = listen_at(port, loopback, false);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

Status store_serve_key(bool loopback, int port, Hash128 key, int world_size, StoreServer **server)
{
    int fd = -1, why = 0, tries = port ? STORE_PORTS : 1;
    for (int i = 0; i < tries && fd < 0 && port + i < 65536; i++) {
        fd = listen_any(port + i, loopback);
        if (fd < 0) why = errno;
        if (fd < 0 && why != EADDRINUSE) break;
    }
    if (fd < 0)
        return fail(E_IO, "cannot listen on port %d%s: %s", port, tries > 1 ? " or the next ones" : "", strerror(why));
    StoreServer *s = mem_alloc(sizeof *s);
    s->listener = fd;
    s->port = port_of(fd);
    s->wake = eventfd(0, EFD_CLOEXEC);
    s->table = store_table_new(key, world_size);
    pthread_mutex_init(&s->lock, NULL);
    if (s->wake < 0 || thread_start(&s->thread, serve, s) != 0) {
        close(fd);
        if (s->wake >= 0) close(s->wake);
        store_table_free(s->table);
        free(s);
        return fail(E_FAIL, "cannot start the store's thread: %m");
    }
    *server = s;
    return OK;
}

Status store_serve(const World *world, bool loopback, int port, const char *token, StoreServer **server)
{
    Hash128 key = siphash_key(token);
    *server = NULL;
    return store_serve_key(loopback, port, siphash(key, world->job, strlen(world->job)), world->size, server);
}

int store_server_port(const StoreServer *s) { return s->port; }

bool store_server_met(StoreServer *s)
{
    size_t size;
    pthread_mutex_lock(&s->lock);
    bool met = store_table_find(s->table, STORE_MET, &size) != NULL;
    pthread_mutex_unlock(&s->lock);
    return met;
}

int store_server_lost(StoreServer *s, int rank, bool *silent)
{
    char name[32], text[32] = "";
    int lost = -1, how = 0;
    size_t size;
    snprintf(name, sizeof name, STORE_LOST, rank);
    pthread_mutex_lock(&s->lock);
    const void *value = store_table_find(s->table, name, &size);
    if (value && size < sizeof text) memcpy(text, value, size);
    pthread_mutex_unlock(&s->lock);
    if (sscanf(text, "%d %d", &lost, &how) != 2) return -1;
    *silent = how;
    return lost;
}

void store_server_close(StoreServer *s)
{
    uint64_t one = 1;
    if (!s) return;
    if (write(s->wake, &one, sizeof one) != (ssize_t)sizeof one) log_debug("the store's thread was not woken: %m");
    pthread_join(s->thread, NULL);
    for (int i = 0; i < s->n_guests; i++) guest_free(s->guests[i]);
    close(s->listener);
    close(s->wake);
    pthread_mutex_destroy(&s->lock);
    store_table_free(s->table);
    free(s->guests);
    free(s->polls);
    free(s);
}
