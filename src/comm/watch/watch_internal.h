/* Private to the watch: its connections, and the frames on them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/events.h"
#include "comm/watch/watch.h"

/* Sent as it lies in memory, because all ranks run the same program. */
typedef enum { FRAME_HELLO = 0x43, FRAME_BEAT, FRAME_LOSS, FRAME_BYE } WatchFrameType;
typedef struct {
    uint8_t type, reason, zero[2];
    int32_t from, rank;
    float seconds;
    union {
        Hash128 proof;     /* hello */
        uint64_t sequence; /* beat */
    };
} WatchFrame;

/* A connection; `fd` -1: none. A stranger has connected to us and sent no hello yet. */
typedef struct {
    Watch *watch;
    int fd, error;
    enum { LINK_NONE, LINK_STRANGER, LINK_CONNECTING, LINK_GREETED, LINK_OPEN, LINK_LEFT, LINK_GONE } state;
    WatchFrame in, out;
    size_t have, left; /* bytes of `in` received; bytes of `out` not yet sent */
    double heard;
    uint64_t sequence;
} WatchLink;

struct Watch {
    int rank, size, listener;
    double timeout_s, beat_s;
    pthread_t thread;
    bool threaded, stop, connecting, verdict_sent;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    PeerCard *cards;
    WatchLink *links; // (n_links): a link for each rank, then places for strangers
    int n_links;
    Events events;
    Loss loss;
    void (*lost)(void *arg);
    void *lost_arg;
    _Atomic uint64_t sequence;
};

/* All of these are called under the lock. */
void watch_send_all(Watch *w, WatchFrame f); /* to open links */
void watch_close_link(WatchLink *l, int state);
void watch_record_loss(Watch *w, int rank, LossReason reason, int by, double seconds); /* the first is the verdict */
WatchFrame watch_verdict_frame(const Watch *w);
void watch_start_connecting(Watch *w, int r);
/* Tests the ranks of this host that should have connected and did not: one that has ended refuses. */
void watch_probe_missing(Watch *w);
/* Handlers of events: a link, and the listener. */
void watch_on_link(void *link, int fd, short happened);
void watch_on_listener(void *watch, int listener, short happened);
