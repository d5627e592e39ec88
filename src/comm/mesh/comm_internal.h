/* Between the files of comm/mesh/. */
#pragma once

#include <pthread.h>

#include "comm/meet/peers.h"
#include "comm/meet/rendezvous.h"
#include "comm/mesh/comm.h"
#include "comm/mesh/gloo.h"
#include "comm/watch/watch.h"

/* Something that waits for other ranks, and its abort by the watch. `late`: aborted after the others, because that may
   take a while. */
typedef struct {
    void (*abort)(void *self);
    void *self;
    bool late;
} CommWait;

/* State shared by all connections of the same ranks; reference-counted. */
typedef struct CommGroup {
    int rank, size, references; /* open Comms */
    PeerCard *cards;            // (size) the first one's nonce is the secret of the run
    char **names;               // (size)
    int *node_of;               // (size) the number of each rank's host
    Watch *watch;
    int copies;      /* connections made so far, the same on all ranks */
    Mail *addresses; // (n_addresses) that other ranks have sent, for connections to come: name, NUL, value
    int n_addresses, cap_addresses;
    pthread_mutex_t lock;
    CommWait *open; // (n_open), under the lock
    int n_open, cap_open;
} CommGroup;

/* Gloo or NCCL must connect within this time, after the preflight has shown that all reach each other. */
#define COMM_CONNECT_S 30.0
/* Seconds that a collective waits for a live rank that does not come: 20 peer timeouts, because it may be saving. For
   tests: CAIRN_TEST_PATIENCE. */
double comm_patience(const Comm *c);

/* Loads the module cairn_gloo.so. */
Status gloo_ready(void);
/* Collective. Connects the ranks of `c`, as c->gloo; `copy` numbers the connections that all ranks make together. */
Status gloo_open(Comm *c, int copy);
/* Runs all messages at once, and returns when all are done. Two ranks list the messages between them in the same order
   with the same sizes. After a failure *peer is the rank that it was waiting for (-1: unknown), and the connection can
   only be closed. */
Status gloo_exchange(const Comm *c, const GlooMessage *messages, int n, double timeout_s, int *peer);
/* One message in the background; `tag` is not 0. The ticket ends with gloo_wait, also after a failure. */
Status gloo_post(const Comm *c, const GlooMessage *message, uint64_t tag, void **ticket);
Status gloo_wait(const Comm *c, void *ticket, double timeout_s);
/* From any thread: makes the current exchange and each later one fail soon. `connection` is c->gloo. */
void gloo_abort(void *connection);
void gloo_close(struct GlooConnection *g);

/* A loss aborts this wait until comm_remove_wait, which waits for an abort in progress. */
void comm_add_wait(CommGroup *g, void (*abort)(void *self), void *self, bool late);
void comm_remove_wait(CommGroup *g, const void *self);

/* A rank's number among all ranks. */
static inline int comm_world_rank(const Comm *c, int rank) { return c->members ? c->members[rank] : rank; }

/* Collective. Mutual authentication of all pairs: 16 bytes each way. */
Status comm_prove(Comm *c, int copy);
/* E_PEER of the collective `what`, with the lost rank and the reason. */
Status comm_fail_lost(const Comm *c, const char *what, const Loss *loss);
