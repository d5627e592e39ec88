/* Between the files of comm/. */
#ifndef CAIRN_COMM_INTERNAL_H
#define CAIRN_COMM_INTERNAL_H

#include "comm/comm.h"

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

/* What all connections of the same ranks have in common; counted. */
typedef struct CommGroup {
    int references, size;
    char **names; // (size)
    Store *store;
    char address[64]; /* this rank's, for its peers */
    int copies;       /* connections made so far: the same on all ranks */
    double connect_s;
} CommGroup;

/* Opens the module cairn_gloo.so; `copy` tells the connections of one group apart. */
Status gloo_open(const Comm *c, const CommGroup *group, int copy, void **transport_self,
                 const CommTransport **transport);

/* Runs an exchange; a failure makes the Comm dead and is told as E_PEER with who and where. */
Status comm_exchange(Comm *c, const CommMessage *messages, int n, const char *what);

#endif
