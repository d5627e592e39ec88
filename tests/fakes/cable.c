/* A long cable: joins two Ethernet interfaces, delays each frame and loses some. For kernels without netem. Must run as
   root. A frame has up to 64 KiB unless the interfaces' offloads are switched off.

   cable IF IF DELAY_MS LOSS SEED    until it is killed; LOSS is a probability
   cable IF                          switches the offloads of one interface off, and ends: with them the interface would
                                     cut segments and compute checksums, and no other host would accept the frames */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct Frame {
    struct Frame *next;
    double due;
    size_t size;
    char data[];
} Frame;

typedef struct {
    int fd;
    const char *name;
    Frame *first, *last; /* in transit to this end, the earliest first */
} End;

static void die(const char *what, const char *name)
{
    fprintf(stderr, "cable: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void switch_off(const char *name)
{
    static const uint32_t offloads[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq r = {0};
    struct ethtool_value off = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
    r.ifr_data = (char *)&off;
    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++) {
        off.cmd = offloads[i];
        if (ioctl(fd, SIOCETHTOOL, &r) != 0) die("offloads of", name);
    }
    close(fd);
}

static void open_end(End *e, const char *name)
{
    int one = 1, room = 32 << 20;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    struct packet_mreq all = {.mr_type = PACKET_MR_PROMISC};
    e->name = name;
    at.sll_ifindex = all.mr_ifindex = (int)if_nametoindex(name);
    e->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    if (e->fd < 0 || at.sll_ifindex == 0 || bind(e->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        setsockopt(e->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0 ||
        setsockopt(e->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0)
        die("cannot listen at", name);
    setsockopt(e->fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(e->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
}

/* Takes all frames that arrived at `from` for `to`. */
static void take(const End *from, End *to, double delay, double loss)
{
    static char frame[1 << 16];
    for (;;) {
        ssize_t n = recv(from->fd, frame, sizeof frame, MSG_TRUNC);
        if (n < 0) return;
        if ((size_t)n > sizeof frame || drand48() < loss) continue;
        Frame *f = malloc(sizeof *f + (size_t)n);
        if (!f) die("no memory for", from->name);
        *f = (Frame){.due = now() + delay, .size = (size_t)n};
        memcpy(f->data, frame, (size_t)n);
        if (to->last)
            to->last->next = f;
        else
            to->first = f;
        to->last = f;
    }
}

/* Sends the frames that are due. A frame that the kernel does not accept is lost. */
static void give(End *to)
{
    while (to->first && to->first->due <= now()) {
        Frame *f = to->first;
        if (send(to->fd, f->data, f->size, 0) < 0 && errno != ENOBUFS && errno != EAGAIN && errno != ENETDOWN)
            fprintf(stderr, "cable: %zu bytes to %s: %s\n", f->size, to->name, strerror(errno));
        to->first = f->next;
        if (!to->first) to->last = NULL;
        free(f);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        switch_off(argv[1]);
        return 0;
    }
    if (argc != 6) {
        fprintf(stderr, "usage: cable IF IF DELAY_MS LOSS SEED\n       cable IF\n");
        return 2;
    }
    End ends[2] = {0};
    double delay = atof(argv[3]) * 1e-3, loss = atof(argv[4]);
    srand48(atol(argv[5]));
    for (int i = 0; i < 2; i++) {
        switch_off(argv[1 + i]);
        open_end(&ends[i], argv[1 + i]);
    }
    printf("joined\n");
    fflush(stdout);
    for (;;) {
        struct pollfd p[2] = {{.fd = ends[0].fd, .events = POLLIN}, {.fd = ends[1].fd, .events = POLLIN}};
        double wait = 1, t = now();
        for (int i = 0; i < 2; i++)
            if (ends[i].first && ends[i].first->due - t < wait) wait = ends[i].first->due - t;
        struct timespec rest = {0, wait > 0 ? (long)(wait * 999e6) : 0};
        if (ppoll(p, 2, &rest, NULL) < 0 && errno != EINTR) die("waiting at", argv[1]);
        for (int i = 0; i < 2; i++) take(&ends[i], &ends[!i], delay, loss);
        for (int i = 0; i < 2; i++) give(&ends[i]);
    }
}
