/* The control plane of the ranks: which are lost, and small messages between them. Every pair of ranks has a TCP
   connection of its own, and a thread sends signs of life over it. A closed connection means that the process has
   ended; silence for the peer timeout means that it is frozen or out of reach (a test says so by a file,
   CAIRN_TEST_SILENT). The first loss that a rank notices or receives is its verdict, which it sends to all and never
   changes. A peer needs the secret of the run to connect. */
#pragma once

#include "base/base.h"
#include "base/siphash.h"

/* X(name, what happened: after "rank 3 on node07 (10.0.0.7) ") */
#define LOSS_LIST(X)                                                                                                   \
    X(LOSS_NONE, "is well")                                                                                            \
    X(LOSS_CLOSED, "closed its connections: its process has ended")                                                    \
    X(LOSS_SILENT, "is silent: it is frozen, or cannot be reached")                                                    \
    X(LOSS_LEFT, "closed its connection in order while others wait for it")                                            \
    X(LOSS_BROKEN, "is alive, but its data connection broke")                                                          \
    X(LOSS_LATE, "is alive, but does not come to the collective that the others wait in")

typedef enum {
#define X(name, text) name,
    LOSS_LIST(X)
#undef X
} LossReason;

typedef struct {
    int rank;
    LossReason reason;
    int by;         /* the rank that noticed */
    double seconds; /* of silence, or of waiting for it */
} Loss;

/* Stored as plain bytes, because all ranks run the same build on the same kind of machine. */
typedef struct {
    Hash128 host;  /* of boot, host name and network namespace: equal for processes that share a host */
    Hash128 nonce; /* rank 0's is the secret of the run */
    char name[64];
    char address[48]; /* numerical; its peers connect to it */
    char interface[16];
    int32_t port; /* of its watch */
} PeerCard;

typedef struct Watch Watch;

/* Listens at `address`; *port is the system's choice. */
Status watch_open(int rank, int size, const char *address, double peer_timeout_s, int32_t *port, Watch **watch);
/* Connects to all others within `timeout_s`, and watches from then on. `cards` outlive the watch. The higher rank of a
   pair connects; errors[r] is 0, or the errno with which that failed for rank r. */
Status watch_connect(Watch *w, const PeerCard *cards, double timeout_s, int32_t *errors);
/* Calls `lost` once, from the watching thread, at the first loss. */
void watch_on_loss(Watch *w, void (*lost)(void *arg), void *arg);
/* Waits up to `wait_s` for the verdict. False: there is none. `w` NULL: there is one rank, which is never lost. */
bool watch_verdict(Watch *w, double wait_s, Loss *loss);
/* Reports a loss that this rank noticed by itself, and returns the verdict, which may be an earlier one. */
Loss watch_report(Watch *w, int rank, LossReason reason, double seconds);
/* The lowest rank, from `least` on, that left in order; -1: none. `w` may be NULL. */
int watch_left(Watch *w, int least);
/* How a rank is now: also after the verdict, which names one rank alone. It is silent when this one has not heard it
   for the peer timeout, but for so many signs of life: 0, or 2, for so long every rank has that cannot hear it, when
   the first of them loses it. `w` may be NULL: all are well. */
typedef enum { PEER_WELL, PEER_SILENT, PEER_ENDED } PeerState;
PeerState watch_peer(Watch *w, int rank, int signs);
/* Counts one more exchange of this rank; and the rank with the fewest exchanges, if known (else -1). */
void watch_advance(Watch *w);
int watch_laggard(Watch *w);
const char *loss_text(LossReason reason);
/* Leaves in order, when what was sent is on its way; takes NULL. */
void watch_close(Watch *w);

/* ---- mail: messages between two ranks, also after the verdict ---- */

typedef enum {
    MAIL_ADDRESS, /* read by comm/mesh/gloo_transport.c */
    MAIL_VOTE,
    MAIL_DECISION,
    MAIL_END,      /* train/ranks/votes.h */
    MAIL_SURVIVOR, /* train/keep/team.h */
    N_MAILS
} MailKind;

typedef struct {
    int from;
    size_t size;
    char *data; // (size) allocated; a NUL follows
} Mail;

#define MAIL_MOST ((size_t)64 << 20) /* bytes of a message */

/* Queues a message for a rank, and returns: a peer that reads nothing delays nobody. Dropped where that rank is gone.
   Messages between two ranks arrive in order. */
void watch_send(Watch *w, int to, MailKind kind, const void *data, size_t size);
/* Takes the oldest message of a kind; those of a rank that has ended stay until they are taken. Waits until `until`
   (clock_monotonic), but at most until anything happens, or a sign of life is due, so that the caller can look at the
   ranks that are gone. False: there is none. */
bool watch_receive(Watch *w, MailKind kind, double until, Mail *mail);
/* Calls `react` from the watching thread after whatever happens: bytes from a peer, a sign of life (every 2 s at
   least), `fd` (-1: none) being readable. Until watch_close. */
void watch_on_turn(Watch *w, int fd, void (*react)(void *arg), void *arg);
