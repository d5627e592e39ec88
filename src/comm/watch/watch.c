#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/socket.h"
#include "base/test_switch.h"
#include "base/thread.h"
#include "comm/watch/watch_internal.h"

enum { MOST_STRANGERS = 64 }; /* besides one per rank */
#define STRANGER_S 5.0
#define PROBE_S    1.0 /* between tests whether a rank of this host that does not connect is alive */

const char *loss_text(LossReason reason)
{
    static const char *const texts[] = {
#define X(name, text) text,
        LOSS_LIST(X)
#undef X
    };
    return texts[reason];
}

/* ---- the thread ---- */

/* Whether rank r is silent for longer than the timeout. For tests: also while the file CAIRN_TEST_SILENT<this
   rank>-<r> exists. */
static bool is_silent(const Watch *w, int r, double silence, double timeout_s)
{
    const char *path = test_switch("SILENT");
    char *name = path ? mem_printf("%s%d-%d", path, w->rank, r) : NULL;
    bool said = name && access(name, F_OK) == 0;
    free(name);
    return said || silence > timeout_s;
}

/* Sends signs of life, and records ranks that were silent for too long as lost. */
static void send_beats(Watch *w, double now, bool slept)
{
    WatchFrame f = {.type = FRAME_BEAT};
    f.sequence = atomic_load(&w->sequence);
    watch_send_all(w, f);
    for (int i = 0; i < w->n_links; i++) {
        WatchLink *l = &w->links[i];
        if (slept) l->heard = now; /* this process was stopped, not the peer */
        if (l->state == LINK_STRANGER && now - l->heard > STRANGER_S) watch_close_link(l, LINK_NONE);
        if (l->state != LINK_OPEN) continue;
        double silence = now - l->heard;
        if (is_silent(w, i, silence, w->timeout_s - w->beat_s)) watch_record_loss(w, i, LOSS_SILENT, w->rank, silence);
    }
}

static void await_events(Watch *w, double next)
{
    events_begin(&w->events);
    events_until(&w->events, next);
    for (WatchLink *l = w->links; l < w->links + w->n_links; l++) {
        short out = l->state == LINK_CONNECTING || l->left ? POLLOUT : 0;
        events_add(&w->events, l->fd, (short)(POLLIN | out), watch_on_link, l);
    }
    events_add(&w->events, w->listener, POLLIN, watch_on_listener, w);
    pthread_mutex_unlock(&w->lock);
    events_wait(&w->events);
    pthread_mutex_lock(&w->lock);
    events_react(&w->events);
}

/* Sends the verdict to all, once. True: it did so now. */
static bool send_verdict(Watch *w)
{
    if (w->loss.reason == LOSS_NONE || w->verdict_sent) return false;
    watch_send_all(w, watch_verdict_frame(w));
    w->verdict_sent = true;
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
            for (int r = 0; r < w->rank; r++) watch_start_connecting(w, r);
            w->connecting = false;
        }
        await_events(w, next);
        double now = clock_monotonic();
        if (now >= next) {
            send_beats(w, now, now - last > w->timeout_s / 2);
            next = now + w->beat_s;
        }
        last = now;
        if (send_verdict(w) && w->lost) {
            void (*lost)(void *) = w->lost;
            void *lost_arg = w->lost_arg;
            pthread_mutex_unlock(&w->lock);
            lost(lost_arg);
            pthread_mutex_lock(&w->lock);
        }
    }
    send_verdict(w);
    watch_send_all(w, (WatchFrame){.type = FRAME_BYE});
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- called from other threads ---- */

Status watch_open(int rank, int size, const char *address, double peer_timeout_s, int32_t *port, Watch **watch)
{
    Watch *w = mem_alloc(sizeof *w);
    w->rank = rank;
    w->size = size;
    w->timeout_s = peer_timeout_s;
    w->beat_s = test_switch("SILENT") ? 0.1 : 2;
    if (w->beat_s > peer_timeout_s / 6) w->beat_s = peer_timeout_s / 6;
    w->n_links = MOST_STRANGERS + 2 * w->size;
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
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && w->links[r].state < LINK_OPEN) return false;
    return true;
}

Status watch_connect(Watch *w, const PeerCard *cards, double timeout_s, int32_t *errors)
{
    double end = clock_monotonic() + timeout_s;
    w->cards = mem_array((size_t)w->size, sizeof *w->cards);
    memcpy(w->cards, cards, (size_t)w->size * sizeof *cards);
    w->connecting = true;
    Status status = thread_start(&w->thread, watch_thread, w);
    w->threaded = status == OK;
    if (status != OK) return status_context(status, "the thread that watches the other ranks");
    pthread_mutex_lock(&w->lock);
    for (double now = clock_monotonic(); now < end && !all_answered(w) && w->loss.reason == LOSS_NONE;) {
        double next = now + PROBE_S < end ? now + PROBE_S : end;
        while (!all_answered(w) && w->loss.reason == LOSS_NONE && thread_wait_until(&w->changed, &w->lock, next)) {}
        watch_probe_missing(w);
        now = clock_monotonic();
    }
    for (int r = 0; r < w->size; r++) {
        const WatchLink *l = &w->links[r];
        errors[r] = r == w->rank || l->state == LINK_OPEN || l->state == LINK_LEFT ? 0
                    : r < w->rank                                                  ? l->error
                                                                                   : ETIMEDOUT;
    }
    pthread_mutex_unlock(&w->lock);
    return OK;
}

void watch_on_loss(Watch *w, void (*lost)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    w->lost = lost;
    w->lost_arg = arg;
    bool now = w->verdict_sent && lost;
    pthread_mutex_unlock(&w->lock);
    if (now) lost(arg);
}

bool watch_verdict(Watch *w, double wait_s, Loss *loss)
{
    double end = clock_monotonic() + wait_s;
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    while (w->loss.reason == LOSS_NONE && wait_s > 0 && thread_wait_until(&w->changed, &w->lock, end)) {}
    *loss = w->loss;
    pthread_mutex_unlock(&w->lock);
    return loss->reason != LOSS_NONE;
}

Loss watch_report(Watch *w, int rank, LossReason reason, double seconds)
{
    double end = clock_monotonic() + 1;
    pthread_mutex_lock(&w->lock);
    watch_record_loss(w, rank, reason, w->rank, seconds);
    events_wake(&w->events);
    while (w->loss.reason != LOSS_NONE && !w->verdict_sent && thread_wait_until(&w->changed, &w->lock, end)) {
    } /* the verdict must be sent before this process ends */
    Loss verdict = w->loss;
    pthread_mutex_unlock(&w->lock);
    return verdict;
}

int watch_left(Watch *w)
{
    int rank = -1;
    if (!w) return rank;
    pthread_mutex_lock(&w->lock);
    for (int r = w->size - 1; r >= 0; r--)
        if (w->links[r].state == LINK_LEFT) rank = r;
    pthread_mutex_unlock(&w->lock);
    return rank;
}

bool watch_gone(Watch *w, int rank, bool *silent)
{
    *silent = false;
    if (!w || rank == w->rank) return false;
    pthread_mutex_lock(&w->lock);
    const WatchLink *l = &w->links[rank];
    *silent = l->state == LINK_OPEN && is_silent(w, rank, clock_monotonic() - l->heard, w->timeout_s);
    bool gone = l->state == LINK_LEFT || l->state == LINK_GONE || *silent;
    pthread_mutex_unlock(&w->lock);
    return gone;
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
    for (int i = 0; i < w->n_links; i++) watch_close_link(&w->links[i], LINK_GONE);
    if (w->listener >= 0) close(w->listener);
    events_free(&w->events);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    MEM_FREE(w->cards, w->links, w);
}
