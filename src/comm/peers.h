/* The preflight: ranks exchange their identities, choose a network, and check that all reach each other. */
#ifndef CAIRN_COMM_PEERS_H
#define CAIRN_COMM_PEERS_H

#include "comm/comm.h"
#include "comm/siphash.h"

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

/* Collective. Chooses the interface, connects the watch, and checks that all ranks reach each other. If `ready` is not
   OK on some rank, all ranks fail with its message. The caller frees `cards` (size) and closes `watch`. */
Status peers_meet(const World *world, const CommOptions *options, Store *store, double timeout_s, Status ready,
                  PeerCard **cards, Watch **watch);
/* As store_get, but the loss of `rank` (-1: of any rank) that `watch` (may be NULL) knows of ends the wait. */
Status peers_get(Store *s, const char *name, double timeout_s, Watch *watch, int rank, void **data, size_t *size);
/* The lowest rank on the host of `rank`. */
int peers_first_of_host(const PeerCard *cards, int rank);

#endif
