/* The watch's connections: hellos, frames, connecting and accepting. */
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
    free(l->mail.data);
    buf_free(&l->out);
    *l = (WatchLink){.watch = l->watch, .fd = -1, .error = l->error, .state = state};
}

static void flush_link(WatchLink *l)
{
    while (l->sent < l->out.len) {
        ssize_t n = send(l->fd, l->out.data + l->sent, l->out.len - l->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return; /* the peer reads nothing, or reading will see a broken connection */
        l->sent += (size_t)n;
    }
    buf_free(&l->out);
    l->sent = 0;
}

static void put_frame(Watch *w, int r, WatchFrame f, const void *data, size_t size)
{
    WatchLink *l = &w->links[r];
    f.from = w->state.rank;
    buf_append(&l->out, &f, sizeof f);
    if (size) buf_append(&l->out, data, size);
    flush_link(l);
}

void watch_send_frame(Watch *w, int r, WatchFrame f, const void *data, size_t size)
{
    if (w->links[r].state == LINK_OPEN) put_frame(w, r, f, data, size);
}

bool watch_sent_all(const Watch *w)
{
    for (int r = 0; r < w->state.size; r++)
        if (w->links[r].state == LINK_OPEN && w->links[r].sent < w->links[r].out.len) return false;
    return true;
}

static void send_hello(Watch *w, int r)
{
    WatchFrame f = {.type = FRAME_HELLO, .rank = r};
    f.proof = hello_proof(w, w->state.rank, r);
    w->links[r].state = LINK_GREETED;
    put_frame(w, r, f, NULL, 0);
}

static bool good_hello(const Watch *w, const WatchFrame *f)
{
    const WatchState *s = &w->state;
    return f->type == FRAME_HELLO && f->rank == s->rank && f->from >= 0 && f->from < s->size && f->from != s->rank &&
           hash128_equal(f->proof, hello_proof(w, f->from, s->rank));
}

static void open_link(Watch *w, int r)
{
    w->links[r].state = LINK_OPEN;
    w->links[r].error = 0;
    watch_event(w, (WatchEvent){.kind = WATCH_MET, .rank = r});
}

/* ---- received frames ---- */

static void keep_mail(Watch *w, WatchLink *l)
{
    MailBox *box = &w->boxes[l->in.mail];
    MEM_PUSH(box->mails, box->n, box->cap, l->mail);
    l->mail = (Mail){0};
    pthread_cond_broadcast(&w->changed);
}

/* False: it is none of this program's. */
static bool begin_mail(Watch *w, WatchLink *l, int r)
{
    if (l->in.mail >= N_MAILS || l->in.size > MAIL_MOST) return false;
    l->rest = (size_t)l->in.size;
    l->mail = (Mail){.from = r, .size = l->rest, .data = mem_alloc(l->rest + 1)};
    if (!l->rest) keep_mail(w, l);
    return true;
}

/* The end of a link by its peer, or by an error of the connection. */
static void lose_link(Watch *w, int r, int error)
{
    WatchLink *l = &w->links[r];
    if (l->state == LINK_GREETED) l->error = error;
    watch_close_link(l, l->state == LINK_LEFT ? LINK_LEFT : LINK_GONE);
    watch_event(w, (WatchEvent){.kind = WATCH_CLOSED, .rank = r});
}

static void take_greeting(Watch *w, int r, const WatchFrame *f)
{
    if (good_hello(w, f) && f->from == r) {
        open_link(w, r);
        return;
    }
    w->links[r].error = EPROTO;
    watch_close_link(&w->links[r], LINK_GONE);
    watch_event(w, (WatchEvent){.kind = WATCH_UNREACHED, .rank = r});
}

static void take_frame(Watch *w, int r, const WatchFrame *f)
{
    WatchLink *l = &w->links[r];
    WatchEvent e = {.kind = WATCH_HEARD, .rank = r};
    if (l->state == LINK_GREETED) {
        take_greeting(w, r, f);
        return;
    }
    if (f->type == FRAME_BEAT) {
        e.kind = WATCH_BEAT;
        e.exchanges = f->exchanges;
    } else if (f->type == FRAME_BYE) {
        e.kind = WATCH_BYE;
        l->state = LINK_LEFT;
    } else if (f->type == FRAME_LOSS) {
        e.kind = WATCH_NEWS;
        e.loss = (Loss){f->rank, (LossReason)f->reason, f->by, (double)f->seconds};
    } else if (f->type == FRAME_MAIL && !begin_mail(w, l, r)) {
        lose_link(w, r, EPROTO);
        return;
    }
    watch_event(w, e);
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
        size_t left = l->rest ? l->rest : sizeof l->in - l->have;
        char *to = l->rest ? l->mail.data + (l->mail.size - l->rest) : (char *)&l->in + l->have;
        ssize_t n = recv(l->fd, to, left, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0 && l->state == LINK_STRANGER) {
            watch_close_link(l, LINK_NONE);
        } else if (n <= 0) {
            lose_link(w, r, n == 0 ? ECONNRESET : errno);
        } else if (l->rest) {
            l->rest -= (size_t)n;
            if (l->rest)
                watch_event(w, (WatchEvent){.kind = WATCH_HEARD, .rank = r});
            else
                keep_mail(w, l);
        } else if ((l->have += (size_t)n) == sizeof l->in) {
            l->have = 0;
            if (l->state == LINK_STRANGER)
                admit_stranger(w, l);
            else
                take_frame(w, r, &l->in);
        }
    }
}

static bool same_host(const Watch *w, int r) { return hash128_equal(w->cards[r].host, w->cards[w->state.rank].host); }

/* The end of connecting; `error` 0: it succeeded. A rank listens before it announces its port. On the same host a
   refusal therefore means that it has ended; between hosts it may come from a firewall. */
static void end_connecting(Watch *w, int r, int error)
{
    if (!error) {
        send_hello(w, r);
        return;
    }
    bool ended = error == ECONNREFUSED && same_host(w, r);
    w->links[r].error = error;
    watch_close_link(&w->links[r], LINK_GONE);
    watch_event(w, (WatchEvent){.kind = ended ? WATCH_CLOSED : WATCH_UNREACHED, .rank = r});
}

/* Accepts a connection. If no place is free, the oldest stranger is closed. */
void watch_on_listener(void *arg, int listener, short happened)
{
    Watch *w = arg;
    WatchLink *place = NULL;
    int fd = socket_accept(listener);
    (void)happened;
    if (fd < 0) return;
    for (WatchLink *l = w->links + w->state.size; l < w->links + w->n_links; l++)
        if (!place || (place->fd >= 0 && (l->fd < 0 || l->opened < place->opened))) place = l;
    watch_close_link(place, LINK_NONE);
    *place = (WatchLink){.watch = w, .fd = fd, .state = LINK_STRANGER, .opened = clock_monotonic()};
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
    for (int r = w->state.rank + 1; r < w->state.size && w->state.loss.reason == LOSS_NONE; r++) {
        int error;
        if (w->links[r].state != LINK_NONE || !same_host(w, r)) continue;
        int fd = connect_to(w, r, &error);
        if (error == EINPROGRESS) error = socket_connected(fd, (SocketLimit){.end = clock_monotonic() + 0.1});
        if (error == ECONNREFUSED || error == ECONNRESET) {
            watch_event(w, (WatchEvent){.kind = WATCH_CLOSED, .rank = r});
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
    if (l->fd >= 0) flush_link(l);
}
