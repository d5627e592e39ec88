/* Who the others are and by which of their addresses they are reached: what ranks tell each other first. */
#ifndef CAIRN_COMM_PEERS_H
#define CAIRN_COMM_PEERS_H

#include "comm/comm.h"
#include "comm/siphash.h"

/* As it goes through the store: plain bytes, so all ranks run the same build on the same kind of machine. */
typedef struct {
    Hash128 host;  /* equal where processes share a host: its start, its name, and the network as they see it */
    Hash128 nonce; /* rank 0's is the secret of the run */
    char name[64];
    char address[48]; /* numerical; where its peers reach it */
    char interface[16];
    int32_t process, port; /* port: where its watch listens */
    int32_t hosts;         /* how many there are, as this rank counts them */
} PeerCard;

typedef struct Watch Watch;

/* Collective. Chooses the interface, connects the watch, and checks that everybody reaches everybody. `ready`: this
   rank can go on; where one cannot, its message is everybody's. The caller frees `cards` (size) and closes `watch`. */
Status peers_meet(const World *world, const CommOptions *options, Store *store, double timeout_s, Status ready,
                  PeerCard **cards, Watch **watch);

#endif
