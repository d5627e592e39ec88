/* Between the files of the watch's driver: its connections, and the frames on them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/events.h"
#include "comm/watch/watch_state.h"

/* Sent as it lies in memory, because all ranks run the same program. */
typedef enum { FRAME_HELLO = 0x43, FRAME_BEAT, FRAME_LOSS, FRAME_BYE, FRAME_MAIL } WatchFrameType;
typedef struct {
    uint8_t type, reason, mail, zero;
    int32_t from, rank;
    float seconds;
    union {
        Hash128 proof;      /* hello */
        uint64_t exchanges; /* beat */
        int32_t by;         /* loss: the rank that noticed it */
        uint64_t size;      /* mail: bytes that follow */
    };
} WatchFrame;

/* A connection; `fd` -1: none. A stranger has connected to us and sent no hello yet. */
typedef struct {
    Watch *watch;
    int fd, error;
    enum { LINK_NONE, LINK_STRANGER, LINK_CONNECTING, LINK_GREETED, LINK_OPEN, LINK_LEFT, LINK_GONE } state;
    WatchFrame in;
    size_t have; /* bytes of `in` received */
    Mail mail;   /* behind `in`, of which `rest` bytes are to come */
    size_t rest;
    Buf out;
    size_t sent;   /* bytes of `out` */
    double opened; /* a stranger's */
} WatchLink;

/* Messages of a kind that nobody has taken. */
typedef struct {
    Mail *mails; // (n)
    int n, cap;
} MailBox;

struct Watch {
    int listener;
    pthread_t thread;
    bool threaded, stop, abort;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    WatchState state;
    const PeerCard *cards;
    WatchLink *links; // (n_links): a link for each rank, then places for strangers
    int n_links;
    Events events;
    MailBox boxes[N_MAILS];
    void (*lost)(void *arg), (*react)(void *arg);
    void *lost_arg, *react_arg;
    int react_fd;
    _Atomic uint64_t exchanges;
};

/* All of these are called under the lock. */

/* Gives the machine an event, and does what it says. */
void watch_event(Watch *w, WatchEvent event);
/* Puts a frame, and `size` bytes behind it, on an open link; nothing on another one. */
void watch_send_frame(Watch *w, int r, WatchFrame f, const void *data, size_t size);
bool watch_sent_all(const Watch *w);
void watch_close_link(WatchLink *l, int state);
void watch_start_connecting(Watch *w, int r);
/* Tests the ranks of this host that should have connected and did not: one that has ended refuses. */
void watch_probe_missing(Watch *w);
/* Handlers of events: a link, and the listener. */
void watch_on_link(void *link, int fd, short happened);
void watch_on_listener(void *watch, int listener, short happened);
