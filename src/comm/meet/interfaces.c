#include "comm/meet/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Address as 16 bytes, IPv4 in the first 4. False: another family. */
static bool address_bytes(const struct sockaddr *a, uint8_t bytes[16], bool *v6)
{
    memset(bytes, 0, 16);
    if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6)) return false;
    *v6 = a->sa_family == AF_INET6;
    if (*v6)
        memcpy(bytes, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
    else
        memcpy(bytes, &((const struct sockaddr_in *)a)->sin_addr, 4);
    return true;
}

static uint8_t prefix_of(const uint8_t mask[16], bool v6)
{
    uint8_t n = 0;
    while (n < (v6 ? 128 : 32) && mask[n / 8] & (0x80 >> n % 8)) n++;
    return n;
}

static bool link_local(const uint8_t b[16], bool v6)
{
    return v6 ? b[0] == 0xfe && (b[1] & 0xc0) == 0x80 : b[0] == 169 && b[1] == 254;
}

/* A device is on a bus. Container bridges have the same address on every host. */
static Way way_of(int fd, const char *name, unsigned flags)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq request = {.ifr_data = (void *)&info};
    if (flags & IFF_LOOPBACK) return WAY_LOOPBACK;
    if (!(flags & IFF_RUNNING)) return WAY_NO_CARRIER;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (fd < 0 || ioctl(fd, SIOCETHTOOL, &request) != 0) return WAY_VIRTUAL;
    if (strcmp(info.driver, "bridge") == 0) return WAY_BRIDGE;
    return *info.bus_info && strcmp(info.bus_info, "N/A") != 0 ? WAY_DEVICE : WAY_VIRTUAL;
}

Status interfaces_list(Interface **list, int *n)
{
    struct ifaddrs *all;
    int cap = 0;
    *list = NULL;
    *n = 0;
    if (getifaddrs(&all) != 0) return fail(E_IO, "cannot list the network interfaces: %m");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int v6 = 0; v6 < 2; v6++) /* IPv4 first */
        for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
            Interface x = {0};
            uint8_t mask[16];
            bool mask_v6;
            int at = *n;
            if (!(a->ifa_flags & IFF_UP) || !address_bytes(a->ifa_addr, x.bytes, &x.v6) || x.v6 != v6) continue;
            if (link_local(x.bytes, x.v6)) continue;
            x.prefix = address_bytes(a->ifa_netmask, mask, &mask_v6) ? prefix_of(mask, x.v6) : (x.v6 ? 128 : 32);
            snprintf(x.name, sizeof x.name, "%s", a->ifa_name);
            x.way = way_of(fd, a->ifa_name, a->ifa_flags);
            MEM_GROW(*list, *n, cap);
            for (++*n; at > 0 && (*list)[at - 1].way > x.way; at--) (*list)[at] = (*list)[at - 1];
            (*list)[at] = x;
        }
    if (fd >= 0) close(fd);
    freeifaddrs(all);
    return OK;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, int bits)
{
    int whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, (size_t)whole) != 0) return false;
    return rest == 0 || ((a[whole] ^ b[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

const char *interface_text(const Interface *x, char out[48])
{
    return inet_ntop(x->v6 ? AF_INET6 : AF_INET, x->bytes, out, 48);
}

bool interface_same_address(const Interface *a, const Interface *b)
{
    return a->v6 == b->v6 && memcmp(a->bytes, b->bytes, 16) == 0;
}

bool interface_same_network(const Interface *a, const Interface *b)
{
    return a->v6 == b->v6 && a->prefix == b->prefix && same_bits(a->bytes, b->bytes, a->prefix);
}

/* ---- --iface ---- */

typedef struct {
    bool exclude, network;
    char name[64];
    uint8_t bytes[16];
    bool v6;
    int prefix;
} Item;

static Status read_item(const char *p, size_t len, bool exclude, Item *item)
{
    char *slash, *stop;
    *item = (Item){.exclude = exclude};
    if (len == 0 || len >= sizeof item->name)
        return fail(E_USAGE,
                    "--iface: an item of %zu characters; expected names, prefixes of names, addresses or "
                    "10.1.0.0/16, with commas between",
                    len);
    memcpy(item->name, p, len);
    slash = strchr(item->name, '/');
    if (slash) *slash = '\0';
    item->v6 = strchr(item->name, ':') != NULL;
    item->network = inet_pton(item->v6 ? AF_INET6 : AF_INET, item->name, item->bytes) == 1;
    int most = item->v6 ? 128 : 32;
    item->prefix = most;
    if (slash) {
        long n = strtol(slash + 1, &stop, 10);
        if (!item->network || stop == slash + 1 || *stop || n < 0 || n > most)
            return fail(E_USAGE, "--iface: '%.*s' is not a network; expected one like 10.1.0.0/16", (int)len, p);
        item->prefix = (int)n;
    }
    return OK;
}

static bool item_matches(const Item *item, const Interface *x)
{
    if (item->network) return item->v6 == x->v6 && same_bits(item->bytes, x->bytes, item->prefix);
    return strncmp(x->name, item->name, strlen(item->name)) == 0;
}

/* An exact name wins over a prefix: "eth1" does not match eth10 if there is an eth1. */
static bool has_exact_name(const Item *item, const Interface *list, int n)
{
    for (int i = 0; i < n && !item->network; i++)
        if (strcmp(list[i].name, item->name) == 0) return true;
    return false;
}

static Status fail_nothing_left(const char *spec, const Interface *list, int n)
{
    Buf b = {0};
    char text[48];
    for (int i = 0; i < n; i++)
        buf_printf(&b, "%s%s (%s/%d)", i ? ", " : "", list[i].name, interface_text(&list[i], text), list[i].prefix);
    Status status = fail(E_USAGE, "%s%s leaves no network interface of this host; it has %s",
                         *spec ? "--iface " : "no --iface", spec, b.len ? b.data : "none that is up");
    buf_free(&b);
    return status;
}

Status interfaces_filter(const char *spec, Interface *list, int *n)
{
    enum { MOST = 32 };
    Item items[MOST];
    int count = 0, wanted = 0, kept = 0, best = MOST;
    bool all_excluded = *spec == '^';
    for (const char *p = spec; *spec;) {
        size_t len = strcspn(p, ",");
        bool exclude = *p == '^' || all_excluded;
        if (count == MOST) return fail(E_USAGE, "--iface: more than %d items", MOST);
        TRY(read_item(p + (*p == '^'), len - (*p == '^'), exclude, &items[count]));
        if (!items[count++].exclude) wanted++;
        p += len;
        if (!*p) break;
        p++;
    }
    int *rank = mem_array((size_t)*n + 1, sizeof *rank); /* by the first item that matches; MOST: out */
    for (int i = 0; i < *n; i++) {
        rank[i] = wanted ? MOST : 0;
        for (int k = count - 1; k >= 0; k--) {
            bool yes = has_exact_name(&items[k], list, *n) ? strcmp(items[k].name, list[i].name) == 0
                                                           : item_matches(&items[k], &list[i]);
            if (yes && !items[k].exclude) rank[i] = k;
        }
        if (list[i].way == WAY_LOOPBACK && !wanted) rank[i] = MOST;
        for (int k = 0; k < count; k++)
            if (items[k].exclude && item_matches(&items[k], &list[i])) rank[i] = MOST;
        if (rank[i] < best) best = rank[i];
    }
    Status status = best == MOST ? fail_nothing_left(spec, list, *n) : OK;
    for (int i = 0; i < *n && status == OK; i++)
        if (rank[i] == best) list[kept++] = list[i];
    if (status == OK) *n = kept;
    free(rank);
    return status;
}

/* ---- routes ---- */

int interface_towards(const char *address, const Interface *list, int n)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    int index = -1;
    if (getaddrinfo(address, "9", &hints, &found) != 0) return -1;
    for (const struct addrinfo *a = found; a && index < 0; a = a->ai_next) {
        struct sockaddr_storage own;
        socklen_t len = sizeof own;
        Interface x = {0};
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        /* Sends nothing: connect only looks up the route. */
        bool good = connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                    getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
                    address_bytes((struct sockaddr *)&own, x.bytes, &x.v6);
        for (int i = 0; i < n && good && index < 0; i++)
            if (interface_same_address(&x, &list[i])) index = i;
        close(fd);
    }
    freeaddrinfo(found);
    return index;
}
