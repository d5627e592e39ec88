/* The decisions of the watch, without sockets, clocks or threads: which ranks are in touch, which one was lost first,
   and what is said to the others. The driver (watch.c) makes events of what happens, and does what `actions` has. */
#pragma once

#include "comm/watch/watch.h"

typedef enum {
    WATCH_MET,       /* `rank` and this one have proved that they are of this run */
    WATCH_HEARD,     /* bytes came from `rank` */
    WATCH_BEAT,      /* `rank` says that it has begun `exchanges` */
    WATCH_CLOSED,    /* `rank` has closed its connection, or a port that it had open */
    WATCH_UNREACHED, /* no connection to `rank` can be made, though it may live */
    WATCH_BYE,       /* `rank` leaves in order */
    WATCH_NEWS,      /* `rank` says that `loss` is its verdict */
    WATCH_FOUND,     /* this rank noticed `loss` by itself */
    WATCH_MUTED,     /* for tests: from now on `rank` counts as silent, or no more (`muted`) */
    WATCH_TIME,      /* nothing but the time */
    WATCH_LEAVE      /* this rank leaves: it reports no loss any more */
} WatchEventKind;

typedef struct {
    WatchEventKind kind;
    int rank;
    uint64_t exchanges;
    bool muted;
    Loss loss;
} WatchEvent;

typedef enum {
    WATCH_SEND_BEAT, /* to all */
    WATCH_SEND_LOSS, /* to `to`; -1: to all */
    WATCH_ABORT      /* ends this rank's waits: the verdict is there */
} WatchAction;

typedef struct {
    WatchAction what;
    int to;
} WatchOrder;

typedef struct {
    enum { PEER_ABSENT, PEER_THERE, PEER_LEFT, PEER_GONE } life;
    double heard;
    uint64_t exchanges;
    bool muted;
    bool given_up; /* the verdict is its silence; until it is heard again */
} WatchPeer;

typedef struct {
    int rank, size;
    double timeout_s, beat_s;
    WatchPeer *peers; // (size)
    double last;      /* event */
    double beat_at;   /* the next sign of life */
    double wake;      /* of the next WATCH_TIME */
    Loss loss;        /* the verdict */
    bool leaving;
    WatchOrder *actions; // (n_actions) to be done in this order; the driver empties the list
    int n_actions, cap_actions;
} WatchState;

/* Signs of life every `beat_s`, and every sixth of `timeout_s` at least. */
WatchState watch_state(int rank, int size, double timeout_s, double beat_s);
/* `now`: seconds of a clock that goes on while the process is stopped. */
void watch_on(WatchState *s, const WatchEvent *event, double now);
/* The questions of watch.h. */
PeerState watch_state_peer(const WatchState *s, int rank, int signs, double now);
int watch_state_left(const WatchState *s, int least);
int watch_state_laggard(const WatchState *s, uint64_t own_exchanges);
void watch_state_free(WatchState *s);
