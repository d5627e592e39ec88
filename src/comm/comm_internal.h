/* Between the files of comm/. */
#ifndef CAIRN_COMM_INTERNAL_H
#define CAIRN_COMM_INTERNAL_H

#include <pthread.h>

#include "comm/comm.h"
#include "comm/peers.h"
#include "comm/watch.h"

/* One piece of an exchange. Between two ranks, pieces are matched in the order in which both name them; both name the
   same sizes. No bytes: nothing happens. */
typedef struct {
    int peer;
    bool send;
    void *data; /* read where `send` */
    size_t bytes;
} CommMessage;

/* What a transport must do. All collectives are made of `exchange`. */
typedef struct CommTransport {
    const char *name;
    /* All pieces at once; returns when all are done. A failure names what it knows; *peer: whom it was waiting for, -1
       unknown. After it the transport is good for nothing but close. */
    Status (*exchange)(void *self, const CommMessage *messages, int n, double timeout_s, int *peer);
    /* From any thread: makes an exchange under way, and each later one, fail soon. */
    void (*abort)(void *self);
    void (*close)(void *self);
} CommTransport;

/* Something that waits for other ranks, and how the watch ends that; `late`: after the others, it may take a while. */
typedef struct {
    void (*abort)(void *self);
    void *self;
    bool late;
} CommWait;

/* What all connections of the same ranks have in common; counted. */
typedef struct CommGroup {
    int rank, references, holders, size; /* Comms that are open; and those that are not yet freed */
    char **names;                        // (size)
    Store *store;
    Watch *watch;
    char address[64]; /* this rank's, for its peers */
    char interface[16];
    Hash128 secret; /* of the run */
    int copies;     /* connections made so far: the same on all ranks */
    pthread_mutex_t lock;
    CommWait *open; // (n_open), under the lock
    int n_open, cap_open;
} CommGroup;

/* How long Gloo, or NCCL, may take to connect, once it is known that all reach each other. */
#define COMM_CONNECT_S 30.0
/* A collective waits so many peer timeouts for a rank that lives, but does not come to it: it may be saving. */
#define COMM_PATIENCE 20.0

/* Can the module cairn_gloo.so be loaded? */
Status gloo_ready(void);
/* Collective. Connects all ranks; `copy` tells the connections of one group apart. */
Status gloo_open(const Comm *c, const CommGroup *group, int copy, void **transport_self,
                 const CommTransport **transport);

/* From now on a loss ends what this waits in; until it is removed, which waits for an abort that is under way. */
void comm_add_wait(CommGroup *g, void (*abort)(void *self), void *self, bool late);
void comm_remove_wait(CommGroup *g, const void *self);

/* Collective. Everybody proves to everybody that he is no stranger: 16 bytes each way. */
Status comm_prove(Comm *c, int copy);
/* What became of a rank, as the E_PEER of `what`. */
Status comm_tell_loss(const Comm *c, const char *what, const Loss *loss);
/* Runs an exchange; a failure makes the Comm dead and is told as E_PEER with who and where. */
Status comm_exchange(Comm *c, const CommMessage *messages, int n, const char *what);

#endif
