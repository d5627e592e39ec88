/* Who is alive. Every pair of ranks has a small TCP connection beside that of the data, on which each shows signs of
   life; a thread looks at them. One that is closed means that the process has ended, one that is silent for the peer
   timeout that it is frozen or out of reach. The first loss that a rank sees or hears of is its verdict: it is told to
   all and never changes. What goes over these connections is a few bytes; to be let in takes the secret of the run. */
#ifndef CAIRN_COMM_WATCH_H
#define CAIRN_COMM_WATCH_H

#include "comm/peers.h"

/* X(name, what happened: after "rank 3 on node07 (10.0.0.7) ") */
#define LOSS_LIST(X)                                                                                                   \
    X(LOSS_NONE, "is well")                                                                                            \
    X(LOSS_CLOSED, "closed its connections: its process has ended")                                                    \
    X(LOSS_SILENT, "is silent: it is frozen, or cannot be reached")                                                    \
    X(LOSS_LEFT, "has ended its part")                                                                                 \
    X(LOSS_BROKEN, "lives, but the connection of the data broke")                                                      \
    X(LOSS_LATE, "lives, but does not come to what the others wait in")

typedef enum {
#define X(name, text) name,
    LOSS_LIST(X)
#undef X
} LossReason;

typedef struct {
    int rank;
    LossReason reason;
    int by;         /* the rank that noticed */
    double seconds; /* for how long it had been silent, or waited for */
} Loss;

typedef struct Watch Watch;

/* Begins to listen at `address`, at a port of the system's choice, which is then in *port. */
Status watch_open(const World *world, const char *address, double peer_timeout_s, int32_t *port, Watch **watch);
/* Connects to all others, within `timeout_s`. errors[r]: 0, or errno of why rank r cannot be reached, as far as it is
   this one that calls (the higher rank does). From now on it watches. */
void watch_connect(Watch *w, const PeerCard *cards, double timeout_s, int32_t *errors);
/* Is called once, from the watching thread, at the first loss. */
void watch_on_loss(Watch *w, void (*lost)(void *arg), void *arg);
/* The verdict, waiting up to `wait_s` for one: false, none. */
bool watch_verdict(Watch *w, double wait_s, Loss *loss);
/* This rank knows of a loss (BROKEN, LATE). An earlier verdict stays. */
void watch_report(Watch *w, int rank, LossReason reason, double seconds);
/* The lowest rank that has said good-bye; -1: none. */
int watch_left(Watch *w);
/* This rank came to one more exchange; and the rank that came to the fewest, as far as is known. */
void watch_advance(Watch *w);
int watch_laggard(Watch *w);
const char *loss_text(LossReason reason);
void watch_close(Watch *w); /* says good-bye; takes NULL */

#endif
