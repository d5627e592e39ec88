/* The rendezvous's server, a thread. */

#include <pthread.h>
#include <unistd.h>

#include "base/events.h"
#include "base/socket.h"
#include "base/test_switch.h"
#include "base/thread.h"
#include "comm/meet/rendezvous_wire.h"

#define LOOK_S   1.0 /* at most from one look at the time to the next, while ranks wait */
#define LINGER_S 5.0 /* for the answers on their way, at the end */

enum { MOST_STRANGERS = 64, READ_BYTES = 65536 };

typedef struct {
    int fd; /* -1: closed */
    RendezvousSession session;
} Guest;

struct RendezvousServer {
    int listener;
    pthread_t thread;
    pthread_mutex_t lock; /* of the following members */
    pthread_cond_t turned;
    bool stop;
    RendezvousRounds rounds;
    Guest **guests;
    int n_guests, cap_guests;
    Events events;
};

static void guest_leave(Guest *g)
{
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
}

/* Frees closed guests. */
static void free_closed_guests(RendezvousServer *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_guests; i++) {
        Guest *g = s->guests[i];
        if (g->fd >= 0) {
            s->guests[kept++] = g;
            continue;
        }
        rendezvous_session_end(&g->session);
        free(g);
    }
    s->n_guests = kept;
}

static bool is_stranger(const Guest *g) { return g->session.state <= SESSION_PROOF; }

/* Accepts a connection. Of more than MOST_STRANGERS unproven ones the oldest is closed. */
static void accept_guest(void *arg, int listener, short happened)
{
    RendezvousServer *s = arg;
    Guest *first = NULL;
    int strangers = 0, fd = socket_accept(listener);
    (void)happened;
    if (fd < 0) return;
    for (int i = s->n_guests - 1; i >= 0; i--)
        if (is_stranger(s->guests[i])) strangers++, first = s->guests[i];
    if (strangers >= MOST_STRANGERS) guest_leave(first);
    Guest *g = mem_alloc(sizeof *g);
    g->fd = fd;
    rendezvous_session(&g->session, &s->rounds, clock_monotonic());
    MEM_PUSH(s->guests, s->n_guests, s->cap_guests, g);
}

/* False: it must be closed. A stranger may not fill memory; its greeting is short. */
static bool read_guest(Guest *g, double now)
{
    uint8_t block[READ_BYTES];
    ssize_t n = recv(g->fd, block, is_stranger(g) ? 64 : sizeof block, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n > 0) rendezvous_session_feed(&g->session, block, (size_t)n, now);
    return n > 0;
}

static bool write_guest(Guest *g)
{
    RendezvousSession *s = &g->session;
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

/* Sent bytes make room for more answers. False: the guest must be closed. */
static bool answer_guest(Guest *g, double now)
{
    RendezvousSession *x = &g->session;
    for (size_t before = x->in.len + 1; before != x->in.len;) {
        before = x->in.len;
        rendezvous_session_tick(x, now);
        if (!write_guest(g)) return false;
    }
    return x->state != SESSION_ENDING || x->sent < x->out.len;
}

static void on_guest(void *arg, int fd, short happened)
{
    Guest *g = arg;
    (void)fd;
    bool gone = (happened & (POLLERR | POLLNVAL)) || ((happened & POLLIN) && !read_guest(g, clock_monotonic())) ||
                (!(happened & POLLIN) && (happened & (POLLHUP | POLLRDHUP)));
    if (gone) guest_leave(g);
}

static void await_guest(Events *e, Guest *g, double now)
{
    const RendezvousSession *x = &g->session;
    short events = x->sent < x->out.len ? POLLOUT : 0;
    /* A guest that waits for the others sends nothing. */
    if (x->state != SESSION_WAITING && x->state != SESSION_ENDING && !events) events |= POLLIN;
    events_add(e, g->fd, (short)(events | POLLRDHUP), on_guest, g);
    if (is_stranger(g)) events_until(e, x->until);
    if (events & POLLOUT) events_until(e, now + 1); /* to see a stall */
}

static void *server_thread(void *arg)
{
    RendezvousServer *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        events_begin(&s->events);
        double now = clock_monotonic(), look = s->rounds.until < INFINITY ? now + LOOK_S : INFINITY;
        events_until(&s->events, fmin(s->rounds.until, look));
        for (int i = 0; i < s->n_guests; i++) await_guest(&s->events, s->guests[i], now);
        events_add(&s->events, s->listener, POLLIN, accept_guest, s);
        pthread_mutex_unlock(&s->lock);
        events_wait(&s->events);
        pthread_mutex_lock(&s->lock);
        events_react(&s->events);
        now = clock_monotonic();
        s->rounds.until += clock_suspended(look); /* with the ranks */
        rendezvous_tick(&s->rounds, now);
        /* After all reads, because one guest may end the round that another waits for. */
        for (int i = 0; i < s->n_guests; i++)
            if (s->guests[i]->fd >= 0 && !answer_guest(s->guests[i], now)) guest_leave(s->guests[i]);
        free_closed_guests(s);
        pthread_cond_broadcast(&s->turned);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- opening ---- */

static void server_free(RendezvousServer *s)
{
    for (int i = 0; i < s->n_guests; i++) guest_leave(s->guests[i]);
    free_closed_guests(s);
    close(s->listener);
    events_free(&s->events);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->turned);
    rendezvous_rounds_free(&s->rounds);
    MEM_FREE(s->guests, s);
}

Status rendezvous_serve_key(bool loopback, int port, Hash128 key, int world_size, RendezvousServer **server)
{
    SocketAddress local;
    int fd = -1, why = 0, tries = port ? RENDEZVOUS_PORTS : 1;
    for (int i = 0; i < tries && fd < 0 && port + i < 65536; i++) {
        socket_address(socket_loopback(), port + i, &local);
        fd = loopback ? socket_listen(&local) : socket_listen_any(port + i);
        if (fd < 0) why = errno;
        if (fd < 0 && why != EADDRINUSE) break;
    }
    if (fd < 0)
        return fail(E_IO, "cannot listen on port %d%s: %s", port, tries > 1 ? " or the next ones" : "", strerror(why));
    RendezvousServer *s = mem_alloc(sizeof *s);
    s->listener = fd;
    s->rounds = rendezvous_rounds(key, world_size);
    thread_lock_init(&s->lock, &s->turned);
    Status status = events_init(&s->events);
    if (status == OK)
        status = status_context(thread_start(&s->thread, server_thread, s), "the thread of the rendezvous");
    if (status == OK)
        *server = s;
    else
        server_free(s);
    return status;
}

Status rendezvous_serve(const World *world, bool loopback, int port, const char *token, RendezvousServer **server)
{
    Hash128 key = siphash_key(token);
    *server = NULL;
    return rendezvous_serve_key(loopback, port, siphash(key, world->job, strlen(world->job)), world->size, server);
}

int rendezvous_port(const RendezvousServer *s) { return socket_port(s->listener); }

/* Answers that are on their way arrive also after the server's end. */
static bool is_sent(const RendezvousServer *s)
{
    for (int i = 0; i < s->n_guests; i++)
        if (s->guests[i]->session.sent < s->guests[i]->session.out.len) return false;
    return true;
}

void rendezvous_close(RendezvousServer *s)
{
    if (!s) return;
    double end = clock_monotonic() + test_seconds("LINGER", LINGER_S);
    pthread_mutex_lock(&s->lock);
    while (!is_sent(s) && thread_wait_until(&s->turned, &s->lock, end)) {}
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    events_wake(&s->events);
    pthread_join(s->thread, NULL);
    server_free(s);
}
