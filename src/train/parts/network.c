#include "train/parts/network.h"

#include "comm/mesh/comm.h"

#define MESSAGE_S 4e-6 /* a rank's work for one message, of sending and of receiving */
#define PASSES    3    /* over the sent bytes: packing, the transport's copy, adding or unpacking */

/* Rates are those of large TCP messages: the line's less Ethernet's, IP's and TCP's headers. */
static const struct {
    const char *name;
    double bytes, latency;
} table[] = {{"1GbE", 0.117e9, 50e-6},  {"10GbE", 1.17e9, 30e-6}, {"25GbE", 2.93e9, 20e-6},
             {"100GbE", 11.7e9, 15e-6}, {"HDR", 23.5e9, 5e-6},    {"NDR", 47e9, 5e-6}};

Status network_find(const char *text, Network *n)
{
    char *end, *last;
    *n = (Network){0};
    snprintf(n->name, sizeof n->name, "%s", text);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcasecmp(table[i].name, text) == 0) {
            n->bytes = table[i].bytes;
            n->latency = table[i].latency;
            return OK;
        }
    n->bytes = strtod(text, &end) * 1e9;
    if (end != text && *end == ',') {
        n->latency = strtod(end + 1, &last) * 1e-6;
        if (last != end + 1 && *last == '\0' && n->bytes > 0 && isfinite(n->bytes) && n->latency >= 0 &&
            isfinite(n->latency))
            return OK;
    }
    return fail(E_USAGE,
                "--network '%s': expected 1GbE, 10GbE, 25GbE, 100GbE, HDR, NDR, or GB/s,microseconds as in 1.1,30",
                text);
}

/* One half of an all-reduce: each rank sends all but its own part to the others, once for each term, and gets as much.
 */
static double half(const Network *n, double bytes, double terms)
{
    double others = (double)(n->ranks - 1), sent = bytes * n->wire / 4 * terms;
    return n->latency + others * MESSAGE_S + sent * others / n->ranks / n->bytes + PASSES * sent / n->memory;
}

static double exchange_seconds(const void *network, Op op, double bytes)
{
    const Network *n = network;
    if (op == OP_REDUCE) return half(n, bytes, n->terms) + (bytes < 64 || n->shard ? 0 : half(n, bytes, 1));
    Network gather = *n;
    gather.wire = 4;
    double more = (double)(n->buckets - 1) * (n->latency + (double)(n->ranks - 1) * MESSAGE_S);
    return half(&gather, bytes, 1) + (bytes > 1e6 ? more : 0);
}

void network_rates(Network *n, const Holding *h, CostRates *rates)
{
    const Pieces *p = &h->mine;
    n->ranks = p->holders;
    n->buckets = p->n;
    n->shard = h->shard;
    n->terms = 0;
    for (int r = 0; r < n->ranks; r++) n->terms += (double)comm_branches(p->tree, n->ranks, r) / n->ranks;
    n->wire = (double)dtype_size(p->wire);
    n->memory = rates->stream > 0 ? rates->stream : rates->bytes;
    rates->exchange = exchange_seconds;
    rates->network = n;
}
