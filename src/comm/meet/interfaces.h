/* This host's network interfaces, and the choice among them. */
#pragma once

#include "base/base.h"

/* Kinds of interfaces, those likeliest to reach other hosts first. */
typedef enum { WAY_DEVICE, WAY_VIRTUAL, WAY_BRIDGE, WAY_LOOPBACK, WAY_NO_CARRIER } Way;

/* One address of an interface that is up. */
typedef struct {
    char name[16];
    uint8_t bytes[16]; /* the address in network order; IPv4: the first 4 */
    bool v6;
    uint8_t prefix; /* bits of the network */
    Way way;
} Interface;

/* Writes the numerical address, and returns `out`. */
const char *interface_text(const Interface *x, char out[48]);

/* Lists interfaces that are up, sorted by `way`, IPv4 first, without link-local addresses. The caller frees the list.
 */
Status interfaces_list(Interface **list, int *n);
/* Keeps the interfaces that `spec` (--iface) allows. Its items are names, prefixes of names, addresses and CIDR
   networks, separated by commas; the first that matches anything decides. ^ before an item excludes it, and before the
   first item all of them, as with NCCL. "" allows all but loopback. E_USAGE: `spec` is wrong, or nothing is left; the
   message lists the interfaces. */
Status interfaces_filter(const char *spec, Interface *list, int *n);
bool interface_same_address(const Interface *a, const Interface *b);
bool interface_same_network(const Interface *a, const Interface *b);
/* Index of the interface that the system would use to send to `address` (numerical, or a name); -1: none. */
int interface_towards(const char *address, const Interface *list, int n);
