#include "comm/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"

enum { MOST_STRANGERS = 64 }; /* beside as many as there are ranks */
#define STRANGER_S 5.0
#define PROBE_S    1.0 /* after so long without a connection from a rank of this host: does it live? */

/* What goes over the connections, as it lies in memory: all ranks run the same program. */
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

/* One connection. `fd` -1: none. */
typedef struct {
    int fd, error;
    enum { LINK_NONE, LINK_CONNECTING, LINK_GREETED, LINK_OPEN, LINK_LEFT, LINK_GONE } state;
    Frame in, out;
    size_t have, left; /* bytes of `in` that are here; of `out` that are still to go */
    double heard;
    uint64_t sequence;
} Link;

typedef struct {
    int fd;
    Frame in;
    size_t have;
    double until;
} Stranger;

struct Watch {
    int rank, size, listener, wake;
    double timeout_s, beat_s;
    pthread_t thread;
    bool threaded, stop, connecting, told;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    PeerCard *cards;
    Link *links;
    Stranger *strangers; // (most_strangers)
    int n_strangers, most_strangers;
    struct pollfd *polls;
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
        if (n < 0) return; /* a broken one is seen by reading */
        l->left -= (size_t)n;
    }
}

/* A frame that finds one before it still waiting is left out: then the other side has stopped reading. */
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
    if (w->told) send_frame(w, r, verdict_frame(w)); /* it was not there to hear it */
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

static void wake(Watch *w)
{
    uint64_t one = 1;
    if (write(w->wake, &one, sizeof one) != (ssize_t)sizeof one) log_debug("the watch was not woken: %m");
}

/* ---- what happens on the connections ---- */

static void read_link(Watch *w, int r)
{
    Link *l = &w->links[r];
    while (l->fd >= 0) {
        ssize_t n = recv(l->fd, (char *)&l->in + l->have, sizeof l->in - l->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            bool lost = l->state == LINK_OPEN || l->state == LINK_GREETED;
            if (l->state == LINK_GREETED) l->error = n == 0 ? ECONNRESET : errno;
            close_link(l, l->state == LINK_LEFT ? LINK_LEFT : LINK_GONE);
            if (lost) judge(w, r, LOSS_CLOSED, w->rank, 0);
            pthread_cond_broadcast(&w->changed);
            return;
        }
        l->have += (size_t)n;
        if (l->have < sizeof l->in) continue;
        l->have = 0;
        take_frame(w, r, &l->in);
    }
}

static bool same_host(const Watch *w, int r) { return hash128_equal(w->cards[r].host, w->cards[w->rank].host); }

/* It listened before it told its port. Within a host a refusal means that it has ended; between hosts it may be a
   firewall's. */
static void cannot_connect(Watch *w, int r, int error)
{
    w->links[r].error = error;
    close_link(&w->links[r], LINK_GONE);
    if (error == ECONNREFUSED && same_host(w, r)) judge(w, r, LOSS_CLOSED, w->rank, 0);
    pthread_cond_broadcast(&w->changed);
}

static int error_of(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    return error;
}

static void finish_connecting(Watch *w, int r)
{
    int error = error_of(w->links[r].fd);
    if (error)
        cannot_connect(w, r, error);
    else
        greet(w, r);
}

static void drop_stranger(Watch *w, int i, bool keep_open)
{
    if (!keep_open) close(w->strangers[i].fd);
    memmove(&w->strangers[i], &w->strangers[i + 1], (size_t)(w->n_strangers - i - 1) * sizeof w->strangers[0]);
    w->n_strangers--;
}

/* One that connected becomes a peer by its hello; anything else is a stranger and goes. */
static void read_stranger(Watch *w, int i)
{
    Stranger *s = &w->strangers[i];
    ssize_t n = recv(s->fd, (char *)&s->in + s->have, sizeof s->in - s->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) s->have += (size_t)n;
    if (n > 0 && s->have < sizeof s->in) return;
    int r = n > 0 && w->cards && good_hello(w, &s->in) ? s->in.from : -1;
    if (r < 0 || w->links[r].state != LINK_NONE) {
        drop_stranger(w, i, false);
        return;
    }
    w->links[r].fd = s->fd;
    drop_stranger(w, i, true);
    greet(w, r);
    set_open(w, r);
}

static void welcome(Watch *w, double now)
{
    int one = 1, fd = accept4(w->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) usleep(10000); /* one will go */
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (w->n_strangers == w->most_strangers) drop_stranger(w, 0, false);
    w->strangers[w->n_strangers++] = (Stranger){.fd = fd, .until = now + STRANGER_S};
}

/* A connection to rank r that is on its way, or there: *error is EINPROGRESS, or 0. */
static int connect_to(const Watch *w, int r, int *error)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->cards[r].port)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = a4.sin_port};
    bool v6 = strchr(w->cards[r].address, ':') != NULL;
    int one = 1;
    inet_pton(v6 ? AF_INET6 : AF_INET, w->cards[r].address, v6 ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr);
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bool bad = fd < 0 || (v6 ? connect(fd, (struct sockaddr *)&a6, sizeof a6)
                             : connect(fd, (struct sockaddr *)&a4, sizeof a4)) != 0;
    *error = bad ? errno : 0;
    return fd;
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

/* Ranks of this host that should have connected, and did not: one that has ended refuses. Under the lock. */
static void probe_missing(Watch *w)
{
    for (int r = w->rank + 1; r < w->size && w->loss.reason == LOSS_NONE; r++) {
        int error;
        if (w->links[r].state != LINK_NONE || !same_host(w, r)) continue;
        int fd = connect_to(w, r, &error);
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (error == EINPROGRESS && poll(&p, 1, 100) > 0) error = error_of(fd);
        if (error == ECONNREFUSED || error == ECONNRESET) {
            judge(w, r, LOSS_CLOSED, w->rank, 0);
            wake(w);
        }
        if (fd >= 0) close(fd);
    }
}

/* ---- the thread ---- */

/* Signs of life go out, and who has given none for too long is lost. */
static void beat(Watch *w, double now, bool slept)
{
    Frame f = {.type = FRAME_BEAT};
    f.sequence = atomic_load(&w->sequence);
    send_all(w, f);
    for (int r = 0; r < w->size; r++) {
        Link *l = &w->links[r];
        if (l->state != LINK_OPEN) continue;
        if (slept) l->heard = now; /* it was this process that stood still */
        if (now - l->heard > w->timeout_s - w->beat_s) judge(w, r, LOSS_SILENT, w->rank, now - l->heard);
    }
}

static int prepare_polls(Watch *w)
{
    int n = 0;
    w->polls[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    w->polls[n++] = (struct pollfd){.fd = w->listener, .events = POLLIN};
    for (int r = 0; r < w->size; r++) {
        const Link *l = &w->links[r];
        short out = l->state == LINK_CONNECTING || l->left ? POLLOUT : 0;
        w->polls[n++] = (struct pollfd){.fd = l->fd, .events = (short)(POLLIN | out)};
    }
    for (int i = 0; i < w->n_strangers; i++)
        w->polls[n++] = (struct pollfd){.fd = w->strangers[i].fd, .events = POLLIN};
    return n;
}

static void handle_polls(Watch *w, double now)
{
    uint64_t word;
    int strangers = w->n_strangers;
    if (w->polls[0].revents && read(w->wake, &word, sizeof word) < 0) log_debug("watch: %m");
    for (int i = strangers - 1; i >= 0; i--) {
        if (w->polls[2 + w->size + i].revents)
            read_stranger(w, i);
        else if (now > w->strangers[i].until)
            drop_stranger(w, i, false);
    }
    for (int r = 0; r < w->size; r++) {
        Link *l = &w->links[r];
        short happened = w->polls[2 + r].revents;
        if (!happened || l->fd != w->polls[2 + r].fd) continue;
        if (l->state == LINK_CONNECTING)
            finish_connecting(w, r);
        else if (happened & ~POLLOUT)
            read_link(w, r);
        if (l->fd >= 0) flush_link(w, r);
    }
    if (w->polls[1].revents) welcome(w, now);
}

/* To all, once. True: just now. */
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
        int n = prepare_polls(w);
        pthread_mutex_unlock(&w->lock);
        double wait_s = next - clock_monotonic();
        poll(w->polls, (nfds_t)n, wait_s > 0 ? (int)(wait_s * 1e3) + 1 : 0);
        pthread_mutex_lock(&w->lock);
        double now = clock_monotonic();
        handle_polls(w, now);
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

/* ---- from the other threads ---- */

static Status listen_on(const char *address, int *fd, int32_t *port)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    bool v6 = strchr(address, ':') != NULL;
    struct sockaddr *a = v6 ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4;
    socklen_t len = v6 ? sizeof a6 : sizeof a4;
    inet_pton(v6 ? AF_INET6 : AF_INET, address, v6 ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr);
    *fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, a, len) != 0 || listen(*fd, 1024) != 0 || getsockname(*fd, a, &len) != 0)
        return fail(E_IO, "cannot listen at %s: %m", address);
    *port = ntohs(v6 ? a6.sin6_port : a4.sin_port);
    return OK;
}

Status watch_open(const World *world, const char *address, double peer_timeout_s, int32_t *port, Watch **watch)
{
    Watch *w = mem_alloc(sizeof *w);
    w->rank = world->rank;
    w->size = world->size;
    w->timeout_s = peer_timeout_s;
    w->beat_s = peer_timeout_s / 6 < 2 ? peer_timeout_s / 6 : 2;
    w->links = mem_array((size_t)w->size, sizeof *w->links);
    w->most_strangers = MOST_STRANGERS + w->size;
    w->strangers = mem_array((size_t)w->most_strangers, sizeof *w->strangers);
    w->polls = mem_array((size_t)(w->size + 2 + w->most_strangers), sizeof *w->polls);
    for (int r = 0; r < w->size; r++) w->links[r].fd = -1;
    thread_lock_init(&w->lock, &w->changed);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Status status = listen_on(address, &w->listener, port);
    if (status == OK && w->wake < 0) status = fail(E_IO, "eventfd: %m");
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
    wake(w);
    while (w->loss.reason != LOSS_NONE && !w->told && thread_wait_until(&w->changed, &w->lock, end)) {
    } /* this process may end next */
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
        wake(w);
        pthread_join(w->thread, NULL);
    }
    for (int r = 0; r < w->size; r++)
        if (w->links[r].fd >= 0) close(w->links[r].fd);
    while (w->n_strangers) drop_stranger(w, 0, false);
    if (w->listener > 0) close(w->listener);
    if (w->wake >= 0) close(w->wake);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->cards);
    free(w->links);
    free(w->strangers);
    free(w->polls);
    free(w);
}
