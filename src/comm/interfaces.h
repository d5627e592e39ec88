/* This host's network interfaces, and the choice among them. */
#ifndef CAIRN_COMM_INTERFACES_H
#define CAIRN_COMM_INTERFACES_H

#include "base/base.h"

/* Kinds of interfaces, those likeliest to reach other hosts first. */
typedef enum { WAY_DEVICE, WAY_VIRTUAL, WAY_BRIDGE, WAY_LOOPBACK, WAY_NO_CARRIER } Way;

/* One address of an interface that is up. */
typedef struct {
    char name[16];
    char text[48];     /* the address, numerical */
    uint8_t bytes[16]; /* in network order; IPv4: the first 4 */
    int32_t v6, prefix, loopback;
    Way way;
} Interface;

/* Lists interfaces that are up, sorted by `way`, IPv4 first, without link-local addresses. The caller frees the list.
 */
Status interfaces_list(Interface **list, int *n);
/* Keeps the interfaces that `spec` (--iface) allows. Its items are names, prefixes of names, addresses and CIDR
   networks, separated by commas; the first that matches anything decides. ^ before an item excludes it, and before the
   first item all of them, as with NCCL. "" allows all but loopback. E_USAGE: `spec` is wrong, or nothing is left; the
   message lists the interfaces. */
Status interfaces_filter(const char *spec, Interface *list, int *n);
bool interface_same_network(const Interface *a, const Interface *b);
/* Index of the interface that the system would use to send to `address` (numerical, or a name); -1: none. */
int interface_towards(const char *address, const Interface *list, int n);

#endif
