#include "comm/watch/watch_state.h"

WatchState watch_state(int rank, int size, double timeout_s, double beat_s)
{
    return (WatchState){.rank = rank,
                        .size = size,
                        .timeout_s = timeout_s,
                        .beat_s = beat_s < timeout_s / 6 ? beat_s : timeout_s / 6,
                        .peers = mem_array((size_t)size, sizeof(WatchPeer))};
}

void watch_state_free(WatchState *s) { MEM_FREE(s->peers, s->actions); }

static void order(WatchState *s, WatchAction what, int to)
{
    MEM_PUSH(s->actions, s->n_actions, s->cap_actions, (WatchOrder){what, to});
}

/* The first loss is the verdict. A rank that this one has just heard is silent to others alone, which do not reach it.
 */
static void lose(WatchState *s, Loss loss)
{
    if (s->loss.reason != LOSS_NONE || s->leaving) return;
    s->loss = loss;
    s->peers[loss.rank].given_up = loss.reason == LOSS_SILENT && s->last > s->peers[loss.rank].heard + 2 * s->beat_s;
    order(s, WATCH_SEND_LOSS, -1);
    order(s, WATCH_ABORT, s->rank);
}

static bool is_silent(const WatchPeer *p, double now, double timeout_s)
{
    return p->life == PEER_THERE && (p->muted || p->given_up || now >= p->heard + timeout_s);
}

/* Sends signs of life, and records ranks that were silent for too long as lost, as soon as that is so. */
static void look(WatchState *s, double now)
{
    double limit = s->timeout_s - s->beat_s;
    if (now >= s->beat_at) {
        order(s, WATCH_SEND_BEAT, -1);
        s->beat_at = (floor(now / s->beat_s + 1e-6) + 1) * s->beat_s; /* all ranks of a host wake together */
    }
    s->wake = s->beat_at;
    for (int r = 0; r < s->size; r++) {
        const WatchPeer *p = &s->peers[r];
        if (is_silent(p, now, limit))
            lose(s, (Loss){r, LOSS_SILENT, s->rank, now - p->heard});
        else if (p->life == PEER_THERE && p->heard + limit < s->wake)
            s->wake = p->heard + limit;
    }
}

/* A rank that has left in order stays so. */
static void end_peer(WatchPeer *p, int life)
{
    if (p->life != PEER_LEFT) p->life = life;
}

static bool is_loss(const WatchState *s, const Loss *l)
{
    bool ranks = l->rank >= 0 && l->rank < s->size && l->by >= 0 && l->by < s->size;
    return ranks && l->reason > LOSS_NONE && l->reason <= LOSS_LATE;
}

void watch_on(WatchState *s, const WatchEvent *e, double now)
{
    WatchPeer *p = &s->peers[e->rank];
    double slept = now - s->last; /* this process was stopped, where that is more than the time between two beats */
    for (int r = 0; r < s->size && slept > 2 * s->beat_s; r++) s->peers[r].heard += slept;
    s->last = now;
    if (e->kind <= WATCH_NEWS) p->heard = now, p->given_up = false;
    switch (e->kind) {
    case WATCH_MET:
        p->life = PEER_THERE;
        if (s->loss.reason != LOSS_NONE) order(s, WATCH_SEND_LOSS, e->rank); /* it was not there for the verdict */
        break;
    case WATCH_HEARD:
        break;
    case WATCH_BEAT:
        p->exchanges = e->exchanges;
        break;
    case WATCH_CLOSED:
        if (p->life != PEER_LEFT) lose(s, (Loss){e->rank, LOSS_CLOSED, s->rank, 0});
        end_peer(p, PEER_GONE);
        break;
    case WATCH_UNREACHED:
        end_peer(p, PEER_GONE);
        break;
    case WATCH_BYE:
        p->life = PEER_LEFT;
        break;
    case WATCH_NEWS:
        if (is_loss(s, &e->loss)) lose(s, e->loss);
        break;
    case WATCH_FOUND:
        lose(s, e->loss);
        break;
    case WATCH_MUTED:
        p->muted = e->muted;
        break;
    case WATCH_TIME:
        break;
    case WATCH_LEAVE:
        s->leaving = true;
        break;
    }
    if (now >= s->wake && !s->leaving) look(s, now);
}

PeerState watch_state_peer(const WatchState *s, int rank, int signs, double now)
{
    const WatchPeer *p = &s->peers[rank];  /* this one's own is ABSENT */
    double sure = s->last + 2 * s->beat_s; /* later this process may have been stopped, and has heard nobody since */
    if (p->life == PEER_LEFT || p->life == PEER_GONE) return PEER_ENDED;
    return is_silent(p, now < sure ? now : sure, s->timeout_s - signs * s->beat_s) ? PEER_SILENT : PEER_WELL;
}

int watch_state_left(const WatchState *s, int least)
{
    for (int r = least; r < s->size; r++)
        if (s->peers[r].life == PEER_LEFT) return r;
    return -1;
}

int watch_state_laggard(const WatchState *s, uint64_t own_exchanges)
{
    uint64_t least = own_exchanges;
    int rank = -1;
    for (int r = 0; r < s->size; r++)
        if (r != s->rank && s->peers[r].exchanges < least) least = s->peers[r].exchanges, rank = r;
    return rank;
}
