/* The watch's driver: its thread, and the calls of others. */
#include <unistd.h>

#include "base/socket.h"
#include "base/test_switch.h"
#include "base/thread.h"
#include "comm/watch/watch_internal.h"

enum { MOST_STRANGERS = 64 }; /* besides one per rank */
#define STRANGER_S 5.0
#define PROBE_S    1.0 /* between tests whether a rank of this host that does not connect is alive */
#define BEAT_S     2.0
#define FLUSH_S    1.0 /* for peers to take what was sent, at the end */

const char *loss_text(LossReason reason)
{
    static const char *const texts[] = {
#define X(name, text) text,
        LOSS_LIST(X)
#undef X
    };
    return texts[reason];
}

/* ---- the machine's actions ---- */

static void act(Watch *w, WatchOrder o)
{
    const Loss *l = &w->state.loss;
    WatchFrame f = {.type = FRAME_BEAT, .exchanges = atomic_load(&w->exchanges)};
    if (o.what == WATCH_ABORT) {
        w->abort = true; /* by the thread, without the lock */
        return;
    }
    if (o.what == WATCH_SEND_LOSS) {
        f = (WatchFrame){.type = FRAME_LOSS, .reason = (uint8_t)l->reason, .rank = l->rank, .by = l->by};
        f.seconds = (float)l->seconds;
    }
    for (int r = 0; r < w->state.size; r++) {
        bool behind = f.type == FRAME_BEAT && w->links[r].sent < w->links[r].out.len; /* its peer has stopped reading */
        if ((o.to < 0 || o.to == r) && !behind) watch_send_frame(w, r, f, NULL, 0);
    }
}

void watch_event(Watch *w, WatchEvent event)
{
    watch_on(&w->state, &event, clock_monotonic());
    for (int i = 0; i < w->state.n_actions; i++) act(w, w->state.actions[i]);
    w->state.n_actions = 0;
    pthread_cond_broadcast(&w->changed);
}

/* ---- the thread ---- */

/* For tests: a rank counts as silent while the file CAIRN_TEST_SILENT<this rank>-<that rank> exists. */
static void look_for_muted(Watch *w)
{
    const char *path = test_switch("SILENT");
    for (int r = 0; r < w->state.size && path; r++) {
        char *name = mem_printf("%s%d-%d", path, w->state.rank, r);
        watch_event(w, (WatchEvent){.kind = WATCH_MUTED, .rank = r, .muted = access(name, F_OK) == 0});
        free(name);
    }
}

static void await_events(Watch *w, double until)
{
    double now = clock_monotonic();
    events_begin(&w->events);
    events_until(&w->events, until);
    for (WatchLink *l = w->links; l < w->links + w->n_links; l++) {
        if (l->state == LINK_STRANGER && now - l->opened > STRANGER_S) watch_close_link(l, LINK_NONE);
        short out = l->state == LINK_CONNECTING || l->sent < l->out.len ? POLLOUT : 0;
        events_add(&w->events, l->fd, (short)(POLLIN | out), watch_on_link, l);
    }
    events_add(&w->events, w->listener, POLLIN, watch_on_listener, w);
    events_add(&w->events, w->react_fd, POLLIN, NULL, NULL);
    pthread_mutex_unlock(&w->lock);
    events_wait(&w->events);
    pthread_mutex_lock(&w->lock);
    events_react(&w->events);
}

/* Calls what others have asked for, without the lock. */
static void call_back(Watch *w)
{
    void (*lost)(void *) = w->abort ? w->lost : NULL, (*react)(void *) = w->react;
    void *lost_arg = w->lost_arg, *react_arg = w->react_arg;
    if (lost) w->abort = false;
    pthread_mutex_unlock(&w->lock);
    if (lost) lost(lost_arg);
    if (react) react(react_arg);
    pthread_mutex_lock(&w->lock);
}

static void *watch_thread(void *arg)
{
    Watch *w = arg;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->state.rank; r++) watch_start_connecting(w, r);
    while (!w->stop) {
        await_events(w, w->state.wake);
        look_for_muted(w);
        watch_event(w, (WatchEvent){.kind = WATCH_TIME});
        call_back(w);
    }
    watch_event(w, (WatchEvent){.kind = WATCH_LEAVE});
    for (int r = 0; r < w->state.size; r++) watch_send_frame(w, r, (WatchFrame){.type = FRAME_BYE}, NULL, 0);
    for (double end = clock_monotonic() + FLUSH_S; !watch_sent_all(w) && clock_monotonic() < end;) await_events(w, end);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- called from other threads ---- */

Status watch_open(int rank, int size, const char *address, double peer_timeout_s, int32_t *port, Watch **watch)
{
    Watch *w = mem_alloc(sizeof *w);
    w->state = watch_state(rank, size, peer_timeout_s, test_switch("SILENT") ? 0.1 : BEAT_S);
    w->react_fd = -1;
    w->n_links = MOST_STRANGERS + 2 * size;
    w->links = mem_array((size_t)w->n_links, sizeof *w->links);
    for (int i = 0; i < w->n_links; i++) w->links[i] = (WatchLink){.watch = w, .fd = -1};
    thread_lock_init(&w->lock, &w->changed);
    SocketAddress at;
    w->listener = socket_address(address, 0, &at) ? socket_listen(&at) : -1;
    Status status = w->listener < 0 ? fail(E_IO, "cannot listen at %s: %m", address) : events_init(&w->events);
    if (status == OK) {
        *port = socket_port(w->listener);
        *watch = w;
    } else {
        watch_close(w);
    }
    return status;
}

static bool all_answered(const Watch *w)
{
    for (int r = 0; r < w->state.size; r++)
        if (r != w->state.rank && w->links[r].state < LINK_OPEN) return false;
    return true;
}

Status watch_connect(Watch *w, const PeerCard *cards, double timeout_s, int32_t *errors)
{
    const WatchState *s = &w->state;
    double end = clock_monotonic() + timeout_s;
    w->cards = cards;
    Status status = thread_start(&w->thread, watch_thread, w);
    w->threaded = status == OK;
    if (status != OK) return status_context(status, "the thread that watches the other ranks");
    pthread_mutex_lock(&w->lock);
    for (double now = clock_monotonic(); now < end && !all_answered(w) && s->loss.reason == LOSS_NONE;) {
        double next = now + PROBE_S < end ? now + PROBE_S : end;
        while (!all_answered(w) && s->loss.reason == LOSS_NONE && thread_wait_until(&w->changed, &w->lock, next)) {}
        watch_probe_missing(w);
        now = clock_monotonic();
        end += clock_suspended(next); /* with the others */
    }
    for (int r = 0; r < s->size; r++) {
        const WatchLink *l = &w->links[r];
        bool good = r == s->rank || l->state == LINK_OPEN || l->state == LINK_LEFT || s->loss.reason != LOSS_NONE;
        errors[r] = good ? 0 : r < s->rank ? l->error : ETIMEDOUT;
    }
    pthread_mutex_unlock(&w->lock);
    return OK;
}

void watch_on_loss(Watch *w, void (*lost)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    w->lost = lost;
    w->lost_arg = arg;
    pthread_mutex_unlock(&w->lock);
    events_wake(&w->events); /* the loss may be there already */
}

void watch_on_turn(Watch *w, int fd, void (*react)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    w->react_fd = fd;
    w->react = react;
    w->react_arg = arg;
    pthread_mutex_unlock(&w->lock);
    events_wake(&w->events);
}

bool watch_verdict(Watch *w, double wait_s, Loss *loss)
{
    double end = clock_monotonic() + wait_s;
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    while (w->state.loss.reason == LOSS_NONE && wait_s > 0 && thread_wait_until(&w->changed, &w->lock, end)) {}
    *loss = w->state.loss;
    pthread_mutex_unlock(&w->lock);
    return loss->reason != LOSS_NONE;
}

Loss watch_report(Watch *w, int rank, LossReason reason, double seconds)
{
    pthread_mutex_lock(&w->lock);
    watch_event(w, (WatchEvent){.kind = WATCH_FOUND, .loss = {rank, reason, w->state.rank, seconds}});
    Loss verdict = w->state.loss;
    pthread_mutex_unlock(&w->lock);
    events_wake(&w->events);
    return verdict;
}

int watch_left(Watch *w, int least)
{
    if (!w) return -1;
    pthread_mutex_lock(&w->lock);
    int rank = watch_state_left(&w->state, least);
    pthread_mutex_unlock(&w->lock);
    return rank;
}

PeerState watch_peer(Watch *w, int rank, int signs)
{
    if (!w) return PEER_WELL;
    pthread_mutex_lock(&w->lock);
    PeerState is = watch_state_peer(&w->state, rank, signs, clock_monotonic());
    pthread_mutex_unlock(&w->lock);
    return is;
}

void watch_advance(Watch *w) { atomic_fetch_add(&w->exchanges, 1); }

int watch_laggard(Watch *w)
{
    pthread_mutex_lock(&w->lock);
    int rank = watch_state_laggard(&w->state, atomic_load(&w->exchanges));
    pthread_mutex_unlock(&w->lock);
    return rank;
}

void watch_send(Watch *w, int to, MailKind kind, const void *data, size_t size)
{
    CHECK(size <= MAIL_MOST, "a message of %zu bytes between two ranks", size);
    pthread_mutex_lock(&w->lock);
    watch_send_frame(w, to, (WatchFrame){.type = FRAME_MAIL, .mail = (uint8_t)kind, .size = size}, data, size);
    bool waits = w->links[to].sent < w->links[to].out.len;
    pthread_mutex_unlock(&w->lock);
    if (waits) events_wake(&w->events); /* the thread sends the rest */
}

bool watch_receive(Watch *w, MailKind kind, double until, Mail *mail)
{
    MailBox *box = &w->boxes[kind];
    pthread_mutex_lock(&w->lock);
    if (!box->n && clock_monotonic() < until) thread_wait_until(&w->changed, &w->lock, until);
    bool there = box->n > 0;
    if (there) {
        *mail = box->mails[0];
        memmove(box->mails, box->mails + 1, (size_t)--box->n * sizeof *box->mails);
    }
    pthread_mutex_unlock(&w->lock);
    return there;
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
    for (int i = 0; i < w->n_links; i++) watch_close_link(&w->links[i], LINK_GONE);
    for (int k = 0; k < N_MAILS; k++) {
        for (int i = 0; i < w->boxes[k].n; i++) free(w->boxes[k].mails[i].data);
        free(w->boxes[k].mails);
    }
    if (w->listener >= 0) close(w->listener);
    events_free(&w->events);
    watch_state_free(&w->state);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    MEM_FREE(w->links, w);
}
