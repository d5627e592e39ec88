/* At which address of this machine do the agents reach it? */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "launch/launch_internal.h"

enum { MOST_ADDRESSES = 64 };

typedef struct {
    char text[MOST_ADDRESSES][128];
    int n;
} Addresses;

static void add_address(Addresses *a, const char *text)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->text[i], text) == 0) return;
    if (a->n < MOST_ADDRESSES) snprintf(a->text[a->n++], sizeof a->text[0], "%s", text);
}

/* First what ssh came from, as the other side sees it; then what the interfaces have. */
static void find_addresses(const Fleet *f, Addresses *a)
{
    struct ifaddrs *own = NULL;
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (!r->lost && strcmp(r->client, "-") != 0 && strncmp(r->client, "127.", 4) != 0 &&
            strcmp(r->client, "::1") != 0)
            add_address(a, r->client);
    }
    if (getifaddrs(&own) != 0) return;
    for (int family = 0; family < 2; family++)
        for (const struct ifaddrs *i = own; i; i = i->ifa_next) {
            char text[INET6_ADDRSTRLEN];
            const void *address = i->ifa_addr;
            const struct sockaddr_in *v4 = address;
            const struct sockaddr_in6 *v6 = address;
            if (!address || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
            if (family == 0 && i->ifa_addr->sa_family == AF_INET)
                inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
            else if (family == 1 && i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
                inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
            else
                continue;
            add_address(a, text);
        }
    freeifaddrs(own);
}

/* Asks all agents with ranks; `missing` gets the names of those that cannot. */
static bool all_reach(Fleet *f, const char *address, int port, int watch, double silence_s, Buf *missing)
{
    char *text = mem_printf("%s %d", address, port);
    double until = clock_monotonic() + 8;
    for (int i = 0; i < f->n_remotes; i++) f->remotes[i].reached = -1;
    fleet_send(f, NULL, "reach", text);
    free(text);
    bool waiting = true;
    struct pollfd stop = {.fd = watch, .events = POLLIN};
    while (waiting && clock_monotonic() < until && poll(&stop, 1, 0) == 0) {
        fleet_turn(f, watch, 0.1, silence_s);
        waiting = false;
        for (int i = 0; i < f->n_remotes; i++) waiting = waiting || (!f->remotes[i].lost && f->remotes[i].reached < 0);
    }
    bool good = true;
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (r->lost || r->reached == 1) continue;
        if (good) buf_printf(missing, "%s%s (not from ", missing->len ? ", " : "", address);
        buf_printf(missing, "%s%s", good ? "" : ", ", r->site->name);
        good = false;
    }
    if (!good) buf_puts(missing, ")");
    return good;
}

Status meeting_choose(Fleet *f, int port, int watch, double silence_s, char address[128])
{
    bool all_here = true;
    Addresses own = {.n = 0};
    Buf missing = {0};
    for (int i = 0; i < f->n_remotes; i++) all_here = all_here && (f->remotes[i].lost || f->remotes[i].site->here);
    snprintf(address, 128, "127.0.0.1");
    if (all_here) return OK;
    find_addresses(f, &own);
    for (int i = 0; i < own.n; i++) {
        if (!all_reach(f, own.text[i], port, watch, silence_s, &missing)) continue;
        snprintf(address, 128, "%s", own.text[i]);
        buf_free(&missing);
        return OK;
    }
    Status status =
        fail(E_PEER,
             "no address of this host is reached from all others, port %d: tried %s. Is a firewall between "
             "them? Start on one of the hosts that train, or give --rendezvous file:DIR, a folder that all share",
             port, missing.data ? missing.data : "none, it has only loopback");
    buf_free(&missing);
    return status;
}
