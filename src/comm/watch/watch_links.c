/* The watch's connections: hellos, frames, connecting and accepting. */
#include <errno.h>
#include <unistd.h>

#include "base/socket.h"
#include "comm/watch/watch_internal.h"

/* ---- frames ---- */

static Hash128 hello_proof(const Watch *w, int from, int to)
{
    struct {
        int32_t from, to;
        Hash128 to_nonce;
    } text = {from, to, w->cards[to].nonce};
    return siphash(w->cards[0].nonce, &text, sizeof text);
}

void watch_close_link(WatchLink *l, int state)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    l->state = state;
}

void watch_record_loss(Watch *w, int rank, LossReason reason, int by, double seconds)
{
    if (w->loss.reason != LOSS_NONE || w->stop) return;
    w->loss = (Loss){rank, reason, by, seconds};
    pthread_cond_broadcast(&w->changed);
}

static void flush_link(Watch *w, int r)
{
    WatchLink *l = &w->links[r];
    while (l->left) {
        ssize_t n = send(l->fd, (char *)&l->out + sizeof l->out - l->left, l->left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* reading will see a broken connection */
        l->left -= (size_t)n;
    }
}

/* Drops the frame if an earlier one still waits: the other side has stopped reading. */
static void send_frame(Watch *w, int r, WatchFrame f)
{
    WatchLink *l = &w->links[r];
    if (l->fd < 0) return;
    flush_link(w, r);
    if (l->left) return;
    f.from = w->rank;
    l->out = f;
    l->left = sizeof f;
    flush_link(w, r);
}

void watch_send_all(Watch *w, WatchFrame f)
{
    for (int r = 0; r < w->size; r++)
        if (w->links[r].state == LINK_OPEN) send_frame(w, r, f);
}

static void send_hello(Watch *w, int r)
{
    WatchFrame f = {.type = FRAME_HELLO, .rank = r};
    f.proof = hello_proof(w, w->rank, r);
    w->links[r].state = LINK_GREETED;
    send_frame(w, r, f);
}

static bool good_hello(const Watch *w, const WatchFrame *f)
{
    return f->type == FRAME_HELLO && f->rank == w->rank && f->from >= 0 && f->from < w->size && f->from != w->rank &&
           hash128_equal(f->proof, hello_proof(w, f->from, w->rank));
}

WatchFrame watch_verdict_frame(const Watch *w)
{
    WatchFrame f = {.type = FRAME_LOSS, .reason = (uint8_t)w->loss.reason, .rank = w->loss.rank};
    f.seconds = (float)w->loss.seconds;
    return f;
}

static void open_link(Watch *w, int r)
{
    w->links[r].state = LINK_OPEN;
    w->links[r].error = 0;
    w->links[r].heard = clock_monotonic();
    if (w->verdict_sent) send_frame(w, r, watch_verdict_frame(w)); /* the peer missed it */
    pthread_cond_broadcast(&w->changed);
}

static void take_frame(Watch *w, int r, const WatchFrame *f)
{
    WatchLink *l = &w->links[r];
    l->heard = clock_monotonic();
    if (l->state == LINK_GREETED) {
        if (good_hello(w, f) && f->from == r) {
            open_link(w, r);
        } else {
            l->error = EPROTO;
            watch_close_link(l, LINK_GONE);
        }
    } else if (f->type == FRAME_BEAT) {
        l->sequence = f->sequence;
    } else if (f->type == FRAME_BYE) {
        l->state = LINK_LEFT;
        pthread_cond_broadcast(&w->changed);
    } else if (f->type == FRAME_LOSS && f->rank >= 0 && f->rank < w->size && f->reason <= LOSS_LATE) {
        watch_record_loss(w, f->rank, (LossReason)f->reason, r, (double)f->seconds);
    }
}

/* ---- events ---- */

/* Makes a stranger with a valid hello a peer; otherwise closes its connection. */
static void admit_stranger(Watch *w, WatchLink *stranger)
{
    int fd = stranger->fd, r = w->cards && good_hello(w, &stranger->in) ? stranger->in.from : -1;
    bool good = r >= 0 && w->links[r].state == LINK_NONE;
    if (good) stranger->fd = -1;
    watch_close_link(stranger, LINK_NONE);
    if (!good) return;
    w->links[r].fd = fd;
    send_hello(w, r);
    open_link(w, r);
}

static void read_link(Watch *w, WatchLink *l)
{
    int r = (int)(l - w->links);
    while (l->fd >= 0) {
        ssize_t n = recv(l->fd, (char *)&l->in + l->have, sizeof l->in - l->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            bool lost = l->state == LINK_OPEN || l->state == LINK_GREETED;
            if (l->state == LINK_GREETED) l->error = n == 0 ? ECONNRESET : errno;
            watch_close_link(l, l->state == LINK_LEFT ? LINK_LEFT : l->state == LINK_STRANGER ? LINK_NONE : LINK_GONE);
            if (lost) watch_record_loss(w, r, LOSS_CLOSED, w->rank, 0);
            pthread_cond_broadcast(&w->changed);
            return;
        }
        l->have += (size_t)n;
        if (l->have < sizeof l->in) continue;
        l->have = 0;
        if (l->state == LINK_STRANGER)
            admit_stranger(w, l);
        else
            take_frame(w, r, &l->in);
    }
}

static bool same_host(const Watch *w, int r) { return hash128_equal(w->cards[r].host, w->cards[w->rank].host); }

/* The end of connecting; `error` 0: it succeeded. A rank listens before it announces its port. On the same host a
   refusal therefore means that it has ended; between hosts it may come from a firewall. */
static void end_connecting(Watch *w, int r, int error)
{
    if (!error) {
        send_hello(w, r);
        return;
    }
    w->links[r].error = error;
    watch_close_link(&w->links[r], LINK_GONE);
    if (error == ECONNREFUSED && same_host(w, r)) watch_record_loss(w, r, LOSS_CLOSED, w->rank, 0);
    pthread_cond_broadcast(&w->changed);
}

/* Accepts a connection. If no place is free, the oldest stranger is closed. */
void watch_on_listener(void *arg, int listener, short happened)
{
    Watch *w = arg;
    WatchLink *place = NULL;
    int fd = socket_accept(listener);
    (void)happened;
    if (fd < 0) return;
    for (WatchLink *l = w->links + w->size; l < w->links + w->n_links; l++)
        if (!place || (place->fd >= 0 && (l->fd < 0 || l->heard < place->heard))) place = l;
    watch_close_link(place, LINK_NONE);
    *place = (WatchLink){.watch = w, .fd = fd, .state = LINK_STRANGER, .heard = clock_monotonic()};
}

static int connect_to(const Watch *w, int r, int *error)
{
    SocketAddress address;
    socket_address(w->cards[r].address, w->cards[r].port, &address);
    return socket_connect(&address, error);
}

void watch_start_connecting(Watch *w, int r)
{
    WatchLink *l = &w->links[r];
    int error;
    l->fd = connect_to(w, r, &error);
    l->state = LINK_CONNECTING;
    l->error = ETIMEDOUT;
    if (error != EINPROGRESS) end_connecting(w, r, error);
}

void watch_probe_missing(Watch *w)
{
    for (int r = w->rank + 1; r < w->size && w->loss.reason == LOSS_NONE; r++) {
        int error;
        if (w->links[r].state != LINK_NONE || !same_host(w, r)) continue;
        int fd = connect_to(w, r, &error);
        if (error == EINPROGRESS) error = socket_connected(fd, (SocketLimit){.end = clock_monotonic() + 0.1});
        if (error == ECONNREFUSED || error == ECONNRESET) {
            watch_record_loss(w, r, LOSS_CLOSED, w->rank, 0);
            events_wake(&w->events);
        }
        if (fd >= 0) close(fd);
    }
}

void watch_on_link(void *arg, int fd, short happened)
{
    WatchLink *l = arg;
    Watch *w = l->watch;
    if (l->fd != fd) return;
    if (l->state == LINK_CONNECTING)
        end_connecting(w, (int)(l - w->links), socket_error(fd));
    else if (happened & ~POLLOUT)
        read_link(w, l);
    if (l->fd >= 0) flush_link(w, (int)(l - w->links));
}
