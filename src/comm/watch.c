#include "comm/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/events.h"
#include "base/socket.h"
#include "base/thread.h"

enum { MOST_STRANGERS = 64 }; /* beside as many as there are ranks */
#define STRANGER_S 5.0
#define PROBE_S    1.0 /* between tests whether a rank of this host that does not connect is alive */

/* Sent as it lies in memory, because all ranks run the same program. */
typedef enum { FRAME_HELLO = 0x43, FRAME_BEAT, FRAME_LOSS, FRAME_BYE } FrameType;
typedef struct {
    uint8_t type, reason, zero[2];
    int32_t from, rank;
    float seconds;
    union {
        Hash128 proof;     /* hello */
        uint64_t sequence; /* beat */
    };
} Frame;

/* A connection; `fd` -1: none. A stranger has connected to us and sent no hello yet. */
typedef struct {
    Watch *watch;
    int fd, error;
    enum { LINK_NONE, LINK_STRANGER, LINK_CONNECTING, LINK_GREETED, LINK_OPEN, LINK_LEFT, LINK_GONE } state;
    Frame in, out;
    size_t have, left; /* bytes of `in` received; bytes of `out` not yet sent */
    double heard;
    uint64_t sequence;
} Link;

struct Watch {
    int rank, size, listener;
    double timeout_s, beat_s;
    pthread_t thread;
    bool threaded, stop, connecting, told;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    PeerCard *cards;
    Link *links; // (n_links): a link for each rank, then places for strangers
    int n_links;
    Events events;
    Loss loss;
    void (*lost)(void *arg);
    void *lost_arg;
    _Atomic uint64_t sequence;
};

const char *loss_text(LossReason reason)
{
    static const char *const texts[] = {
#define X(name, text) text,
        LOSS_LIST(X)
#undef X
    };
    return texts[reason];
}

/* ---- frames ---- */

static Hash128 proof_of(const Watch *w, int from, int to)
{
    struct {
        int32_t from, to;
        Hash128 to_nonce;
    } text = {from, to, w->cards[to].nonce};
    return siphash(w->cards[0].nonce, &text, sizeof text);
}

static void close_link(Link *l, int state)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    l->state = state;
}

/* The first loss is the verdict. Under the lock. */
static void judge(Watch *w, int rank, LossReason reason, int by, double seconds)
{
    if (w->loss.reason != LOSS_NONE || w->stop) return;
    w->loss = (Loss){rank, reason, by, seconds};
    pthread_cond_broadcast(&w->changed);
}

static void flush_link(Watch *w, int r)
{
    Link *l = &w->links[r];
    while (l->left) {
        ssize_t n = send(l->fd, (char *)&l->out + sizeof l->out - l->left, l->left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* reading will see a broken connection */
        l->left -= (size_t)n;
    }
}

/* Drops the frame if an earlier one still waits: the other side has stopped reading. */
static void send_frame(Watch *w, int r, Frame f)
{
    Link *l = &w->links[r];
    if (l->fd < 0) return;
    flush_link(w, r);
    if (l->left) return;
    f.from = w->rank;
    l->out = f;
    l->left = sizeof f;
    flush_link(w, r);
}

static void send_all(Watch *w, Frame f)
{
    for (int r = 0; r < w->size; r++)
        if (w->links[r].state == LINK_OPEN) send_frame(w, r, f);
}

static void greet(Watch *w, int r)
{
    Frame f = {.type = FRAME_HELLO, .rank = r};
    f.proof = proof_of(w, w->rank, r);
    w->links[r].state = LINK_GREETED;
    send_frame(w, r, f);
}

static bool good_hello(const Watch *w, const Frame *f)
{
    return f->type == FRAME_HELLO && f->rank == w->rank && f->from >= 0 && f->from < w->size && f->from != w->rank &&
           hash128_equal(f->proof, proof_of(w, f->from, w->rank));
}

static Frame verdict_frame(const Watch *w)
{
    Frame f = {.type = FRAME_LOSS, .reason = (uint8_t)w->loss.reason, .rank = w->loss.rank};
    f.seconds = (float)w->loss.seconds;
    return f;
}

static void set_open(Watch *w, int r)
{
    w->links[r].state = LINK_OPEN;
    w->links[r].error = 0;
    w->links[r].heard = clock_monotonic();
    if (w->told) send_frame(w, r, verdict_frame(w)); /* the peer missed it */
    pthread_cond_broadcast(&w->changed);
}

static void take_frame(Watch *w, int r, const Frame *f)
{
    Link *l = &w->links[r];
    l->heard = clock_monotonic();
    if (l->state == LINK_GREETED) {
        if (good_hello(w, f) && f->from == r) {
            set_open(w, r);
        } else {
            l->error = EPROTO;
            close_link(l, LINK_GONE);
        }
    } else if (f->type == FRAME_BEAT) {
        l->sequence = f->sequence;
    } else if (f->type == FRAME_BYE) {
        l->state = LINK_LEFT;
        pthread_cond_broadcast(&w->changed);
    } else if (f->type == FRAME_LOSS && f->rank >= 0 && f->rank < w->size && f->reason <= LOSS_LATE) {
        judge(w, f->rank, (LossReason)f->reason, r, (double)f->seconds);
    }
}

/* ---- events ---- */

/* A valid hello makes a stranger a peer; anything else closes its connection. */
static void admit(Watch *w, Link *stranger)
{
    int fd = stranger->fd, r = w->cards && good_hello(w, &stranger->in) ? stranger->in.from : -1;
    bool good = r >= 0 && w->links[r].state == LINK_NONE;
    if (good) stranger->fd = -1;
    close_link(stranger, LINK_NONE);
    if (!good) return;
    w->links[r].fd = fd;
    greet(w, r);
    set_open(w, r);
}

static void read_link(Watch *w, Link *l)
{
    int r = (int)(l - w->links);
    while (l->fd >= 0) {
        ssize_t n = recv(l->fd, (char *)&l->in + l->have, sizeof l->in - l->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            bool lost = l->state == LINK_OPEN || l->state == LINK_GREETED;
            if (l->state == LINK_GREETED) l->error = n == 0 ? ECONNRESET : errno;
            close_link(l, l->state == LINK_LEFT ? LINK_LEFT : l->state == LINK_STRANGER ? LINK_NONE : LINK_GONE);
            if (lost) judge(w, r, LOSS_CLOSED, w->rank, 0);
            pthread_cond_broadcast(&w->changed);
            return;
        }
        l->have += (size_t)n;
        if (l->have < sizeof l->in) continue;
        l->have = 0;
        if (l->state == LINK_STRANGER)
            admit(w, l);
        else
            take_frame(w, r, &l->in);
    }
}

static bool same_host(const Watch *w, int r) { return hash128_equal(w->cards[r].host, w->cards[w->rank].host); }

/* A rank listens before it announces its port. On the same host a refusal therefore means that it has ended; between
   hosts it may come from a firewall. */
static void cannot_connect(Watch *w, int r, int error)
{
    w->links[r].error = error;
    close_link(&w->links[r], LINK_GONE);
    if (error == ECONNREFUSED && same_host(w, r)) judge(w, r, LOSS_CLOSED, w->rank, 0);
    pthread_cond_broadcast(&w->changed);
}

static void finish_connecting(Watch *w, int r)
{
    int error = socket_error(w->links[r].fd);
    if (error)
        cannot_connect(w, r, error);
    else
        greet(w, r);
}

/* With too many strangers the oldest is dropped. */
static void welcome(void *arg, int listener, short happened)
{
    Watch *w = arg;
    Link *place = NULL;
    int fd = socket_accept(listener);
    (void)happened;
    if (fd < 0) return;
    for (Link *l = w->links + w->size; l < w->links + w->n_links; l++)
        if (!place || (place->fd >= 0 && (l->fd < 0 || l->heard < place->heard))) place = l;
    close_link(place, LINK_NONE);
    *place = (Link){.watch = w, .fd = fd, .state = LINK_STRANGER, .heard = clock_monotonic()};
}

static int connect_to(const Watch *w, int r, int *error)
{
    SocketAddress address;
    socket_address(w->cards[r].address, w->cards[r].port, &address);
    return socket_connect(&address, error);
}

static void start_connecting(Watch *w, int r)
{
    Link *l = &w->links[r];
    int error;
    l->fd = connect_to(w, r, &error);
    l->state = LINK_CONNECTING;
    l->error = ETIMEDOUT;
    if (!error)
        greet(w, r);
    else if (error != EINPROGRESS)
        cannot_connect(w, r, error);
}

/* Tests the ranks of this host that should have connected and did not: one that has ended refuses. Under the lock. */
static void probe_missing(Watch *w)
{
    for (int r = w->rank + 1; r < w->size && w->loss.reason == LOSS_NONE; r++) {
        int error;
        if (w->links[r].state != LINK_NONE || !same_host(w, r)) continue;
        int fd = connect_to(w, r, &error);
        if (error == EINPROGRESS) error = socket_connected(fd, 0.1);
        if (error == ECONNREFUSED || error == ECONNRESET) {
            judge(w, r, LOSS_CLOSED, w->rank, 0);
            events_wake(&w->events);
        }
        if (fd >= 0) close(fd);
    }
}

/* ---- the thread ---- */

/* Sends signs of life, and judges ranks that have given none for too long. */
static void beat(Watch *w, double now, bool slept)
{
    Frame f = {.type = FRAME_BEAT};
    f.sequence = atomic_load(&w->sequence);
    send_all(w, f);
    for (int i = 0; i < w->n_links; i++) {
        Link *l = &w->links[i];
        if (slept) l->heard = now; /* this process was stopped, not the peer */
        if (l->state == LINK_STRANGER && now - l->heard > STRANGER_S) close_link(l, LINK_NONE);
        if (l->state != LINK_OPEN) continue;
        if (now - l->heard > w->timeout_s - w->beat_s) judge(w, i, LOSS_SILENT, w->rank, now - l->heard);
    }
}

static void on_link(void *arg, int fd, short happened)
{
    Link *l = arg;
    Watch *w = l->watch;
    if (l->fd != fd) return;
    if (l->state == LINK_CONNECTING)
        finish_connecting(w, (int)(l - w->links));
    else if (happened & ~POLLOUT)
        read_link(w, l);
    if (l->fd >= 0) flush_link(w, (int)(l - w->links));
}

static void await_events(Watch *w, double next)
{
    events_begin(&w->events);
    events_until(&w->events, next);
    for (Link *l = w->links; l < w->links + w->n_links; l++) {
        short out = l->state == LINK_CONNECTING || l->left ? POLLOUT : 0;
        events_add(&w->events, l->fd, (short)(POLLIN | out), on_link, l);
    }
    events_add(&w->events, w->listener, POLLIN, welcome, w);
    pthread_mutex_unlock(&w->lock);
    events_wait(&w->events);
    pthread_mutex_lock(&w->lock);
    events_react(&w->events);
}

/* Sends the verdict to all, once. True: it did so now. */
static bool tell_verdict(Watch *w)
{
    if (w->loss.reason == LOSS_NONE || w->told) return false;
    send_all(w, verdict_frame(w));
    w->told = true;
    pthread_cond_broadcast(&w->changed);
    return true;
}

static void *watch_thread(void *arg)
{
    Watch *w = arg;
    double next = 0, last = clock_monotonic();
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (w->connecting) {
            for (int r = 0; r < w->rank; r++) start_connecting(w, r);
            w->connecting = false;
        }
        await_events(w, next);
        double now = clock_monotonic();
        if (now >= next) {
            beat(w, now, now - last > w->timeout_s / 2);
            next = now + w->beat_s;
        }
        last = now;
        if (tell_verdict(w) && w->lost) {
            void (*lost)(void *) = w->lost;
            void *lost_arg = w->lost_arg;
            pthread_mutex_unlock(&w->lock);
            lost(lost_arg);
            pthread_mutex_lock(&w->lock);
        }
    }
    tell_verdict(w);
    send_all(w, (Frame){.type = FRAME_BYE});
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- called from other threads ---- */

Status watch_open(const World *world, const char *address, double peer_timeout_s, int32_t *port, Watch **watch)
{
    Watch *w = mem_alloc(sizeof *w);
    w->rank = world->rank;
    w->size = world->size;
    w->timeout_s = peer_timeout_s;
    w->beat_s = peer_timeout_s / 6 < 2 ? peer_timeout_s / 6 : 2;
    w->n_links = MOST_STRANGERS + 2 * w->size;
    w->links = mem_array((size_t)w->n_links, sizeof *w->links);
    for (int i = 0; i < w->n_links; i++) w->links[i] = (Link){.watch = w, .fd = -1};
    thread_lock_init(&w->lock, &w->changed);
    SocketAddress at;
    w->listener = socket_address(address, 0, &at) ? socket_listen(&at) : -1;
    Status status = w->listener < 0 ? fail(E_IO, "cannot listen at %s: %m", address) : events_init(&w->events);
    if (status == OK) *port = socket_port(w->listener);
    if (status != OK) {
        watch_close(w);
        return status;
    }
    *watch = w;
    return OK;
}

static bool all_settled(const Watch *w)
{
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && w->links[r].state < LINK_OPEN) return false;
    return true;
}

void watch_connect(Watch *w, const PeerCard *cards, double timeout_s, int32_t *errors)
{
    double end = clock_monotonic() + timeout_s;
    w->cards = mem_array((size_t)w->size, sizeof *w->cards);
    memcpy(w->cards, cards, (size_t)w->size * sizeof *cards);
    w->connecting = true;
    w->threaded = thread_start(&w->thread, watch_thread, w) == 0;
    CHECK(w->threaded, "no thread for the watch");
    pthread_mutex_lock(&w->lock);
    for (double now = clock_monotonic(); now < end && !all_settled(w) && w->loss.reason == LOSS_NONE;) {
        double next = now + PROBE_S < end ? now + PROBE_S : end;
        while (!all_settled(w) && w->loss.reason == LOSS_NONE && thread_wait_until(&w->changed, &w->lock, next)) {}
        probe_missing(w);
        now = clock_monotonic();
    }
    for (int r = 0; r < w->size; r++) {
        const Link *l = &w->links[r];
        errors[r] = r == w->rank || l->state == LINK_OPEN || l->state == LINK_LEFT ? 0
                    : r < w->rank                                                  ? l->error
                                                                                   : ETIMEDOUT;
    }
    pthread_mutex_unlock(&w->lock);
}

void watch_on_loss(Watch *w, void (*lost)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    w->lost = lost;
    w->lost_arg = arg;
    bool now = w->told && lost;
    pthread_mutex_unlock(&w->lock);
    if (now) lost(arg);
}

bool watch_verdict(Watch *w, double wait_s, Loss *loss)
{
    double end = clock_monotonic() + wait_s;
    pthread_mutex_lock(&w->lock);
    while (w->loss.reason == LOSS_NONE && wait_s > 0 && thread_wait_until(&w->changed, &w->lock, end)) {}
    *loss = w->loss;
    pthread_mutex_unlock(&w->lock);
    return loss->reason != LOSS_NONE;
}

void watch_report(Watch *w, int rank, LossReason reason, double seconds)
{
    double end = clock_monotonic() + 1;
    pthread_mutex_lock(&w->lock);
    judge(w, rank, reason, w->rank, seconds);
    events_wake(&w->events);
    while (w->loss.reason != LOSS_NONE && !w->told && thread_wait_until(&w->changed, &w->lock, end)) {
    } /* the verdict must be sent before this process ends */
    pthread_mutex_unlock(&w->lock);
}

int watch_left(Watch *w)
{
    int rank = -1;
    pthread_mutex_lock(&w->lock);
    for (int r = w->size - 1; r >= 0; r--)
        if (w->links[r].state == LINK_LEFT) rank = r;
    pthread_mutex_unlock(&w->lock);
    return rank;
}

void watch_advance(Watch *w) { atomic_fetch_add(&w->sequence, 1); }

int watch_laggard(Watch *w)
{
    uint64_t least = atomic_load(&w->sequence);
    int rank = -1;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && w->links[r].sequence < least) least = w->links[r].sequence, rank = r;
    pthread_mutex_unlock(&w->lock);
    return rank;
}

void watch_close(Watch *w)
{
    if (!w) return;
    if (w->threaded) {
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_mutex_unlock(&w->lock);
        events_wake(&w->events);
        pthread_join(w->thread, NULL);
    }
    for (int i = 0; i < w->n_links; i++) close_link(&w->links[i], LINK_GONE);
    if (w->listener >= 0) close(w->listener);
    events_free(&w->events);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->cards);
    free(w->links);
    free(w);
}
