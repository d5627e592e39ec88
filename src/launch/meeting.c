/* Finds the address at which the agents reach this machine. */
#include <poll.h>

#include "base/socket.h"
#include "comm/meet/interfaces.h"
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

/* First the addresses that ssh connections came from, then those of the interfaces. */
static void find_addresses(const Fleet *f, Addresses *a)
{
    Interface *own = NULL;
    char text[48];
    int n = 0;
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (!fleet_host(f, r)->lost && strcmp(r->client, "-") != 0 && strncmp(r->client, "127.", 4) != 0 &&
            strcmp(r->client, "::1") != 0)
            add_address(a, r->client);
    }
    if (interfaces_list(&own, &n) != OK) return;
    for (int i = 0; i < n; i++)
        if (own[i].way != WAY_LOOPBACK) add_address(a, interface_text(&own[i], text));
    free(own);
}

/* Asks all agents; `missing` gets the names of those that cannot connect. */
static bool all_reach(Fleet *f, const char *address, int port, int watch, Buf *missing)
{
    double until = clock_monotonic() + 8;
    for (int i = 0; i < f->n_remotes; i++) f->remotes[i].reached = -1;
    fleet_send(f, NULL, "reach %s %d", address, port);
    bool waiting = true;
    struct pollfd stop = {.fd = watch, .events = POLLIN};
    while (waiting && clock_monotonic() < until && poll(&stop, 1, 0) == 0) {
        fleet_turn(f, watch);
        waiting = false;
        for (int i = 0; i < f->n_remotes; i++)
            waiting = waiting || (!f->state->hosts[i].lost && f->remotes[i].reached < 0);
    }
    bool good = true;
    for (int i = 0; i < f->n_remotes; i++) {
        const Remote *r = &f->remotes[i];
        if (f->state->hosts[i].lost || r->reached == 1) continue;
        if (good) buf_printf(missing, "%s%s (not from ", missing->len ? ", " : "", address);
        buf_printf(missing, "%s%s", good ? "" : ", ", r->site->name);
        good = false;
    }
    if (!good) buf_puts(missing, ")");
    return good;
}

Status meeting_choose(Fleet *f, int port, int watch, char address[128])
{
    Addresses own = {.n = 0};
    Buf missing = {0};
    snprintf(address, 128, "%s", socket_loopback());
    if (fleet_is_local(f)) return OK;
    find_addresses(f, &own);
    for (int i = 0; i < own.n; i++) {
        if (!all_reach(f, own.text[i], port, watch, &missing)) continue;
        snprintf(address, 128, "%s", own.text[i]);
        buf_free(&missing);
        return OK;
    }
    Status status = fail(
        E_PEER,
        "the other hosts reach no address of this host at port %d: tried %s. Open the firewall, start on one "
        "of the hosts that train, or give --rendezvous tcp://HOST, the host of rank 0, which then serves the meeting",
        port, missing.data ? missing.data : "none (it has only loopback)");
    buf_free(&missing);
    return status;
}
