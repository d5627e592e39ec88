/* Predicted time of the exchange between ranks, over a network that connects all hosts alike. */
#pragma once

#include "holding/holding.h"
#include "plan/plan.h"

typedef struct {
    char name[64];
    double bytes;   /* payload per second, each way at once */
    double latency; /* seconds from sending a message to its arrival */
    /* of the exchange that is predicted */
    int ranks;
    int buckets; /* collectives of one exchange of the weights */
    bool shard;
    double terms;  /* branches of the tree that a rank sends, on average; 1 without one */
    double wire;   /* bytes of an element as sent */
    double memory; /* bytes per second that a rank packs and adds with */
} Network;

/* "10GbE" …, or "GB/s,microseconds": each rank has such a link of its own. */
Status network_find(const char *text, Network *n);
/* `rates` predict REDUCE and SHARE over this network, which must live as long. */
void network_rates(Network *n, const Holding *h, CostRates *rates);
