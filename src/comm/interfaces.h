/* This host's network interfaces, and which of them leads to the others. */
#ifndef CAIRN_COMM_INTERFACES_H
#define CAIRN_COMM_INTERFACES_H

#include "base/base.h"

/* How likely an interface leads to other hosts, the likeliest first. */
typedef enum { WAY_DEVICE, WAY_VIRTUAL, WAY_BRIDGE, WAY_LOOPBACK, WAY_NO_CARRIER } Way;

/* One address of an interface that is up. */
typedef struct {
    char name[16];
    char text[48];     /* the address, numerical */
    uint8_t bytes[16]; /* in network order; IPv4: the first 4 */
    int32_t v6, prefix, loopback;
    Way way;
} Interface;

/* Those that are up, by `way` and IPv4 first; no link-local addresses. The caller frees the list. */
Status interfaces_list(Interface **list, int *n);
/* Keeps what `spec` (--iface) allows, in its order of preference: names, prefixes of names, addresses and CIDR, with
   commas between. ^ before one excludes it; before the first, as NCCL has it, all. Where several items match, those of
   the first that does are kept. "": all but loopback. E_USAGE: `spec` is wrong, or nothing is left; it lists what there
   is. */
Status interfaces_filter(const char *spec, Interface *list, int *n);
bool interface_same_network(const Interface *a, const Interface *b);
bool interface_same_address(const Interface *a, const Interface *b);
/* The one of `list` by which the system would send to `address` (numerical, or a name): its index; -1: by none. */
int interface_towards(const char *address, const Interface *list, int n);

#endif
