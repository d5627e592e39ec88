/* What the exchange between ranks takes: a model of a network that every host is connected to alike, for predictions.
 */
#ifndef CAIRN_TRAIN_NETWORK_H
#define CAIRN_TRAIN_NETWORK_H

#include "plan/plan.h"
#include "train/exchange.h"

typedef struct {
    char name[64];
    double bytes;   /* per second, each way at once, of what is to be sent (without headers) */
    double latency; /* seconds from sending a message to having it */
    /* of the exchange that is predicted */
    int ranks;
    int buckets; /* collectives that sharing the weights takes */
    bool shard;
    double wire;   /* bytes of an element on the way */
    double memory; /* bytes per second that a rank packs and adds with */
} Network;

/* "10GbE" …, or "GB/s,microseconds": each rank has such a link of its own. */
Status network_find(const char *text, Network *n);
/* `rates` predict REDUCE and SHARE over this network, which must live as long. */
void network_rates(Network *n, const Exchange *x, CostRates *rates);

#endif
