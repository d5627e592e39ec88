#include "base/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"

static socklen_t length_of(const SocketAddress *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int open_socket(int family)
{
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* accepted sockets inherit both */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    return fd;
}

void socket_set_port(SocketAddress *a, int port)
{
    in_port_t number = htons((uint16_t)port);
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = number;
    else
        ((struct sockaddr_in *)a)->sin_port = number;
}

bool socket_address(const char *text, int port, SocketAddress *a)
{
    bool v6 = strchr(text, ':') != NULL;
    memset(a, 0, sizeof *a);
    a->ss_family = v6 ? AF_INET6 : AF_INET;
    socket_set_port(a, port);
    void *bytes = v6 ? (void *)&((struct sockaddr_in6 *)a)->sin6_addr : (void *)&((struct sockaddr_in *)a)->sin_addr;
    return inet_pton(a->ss_family, text, bytes) == 1;
}

int socket_connect(const SocketAddress *a, int *error)
{
    int fd = open_socket(a->ss_family);
    *error = fd < 0 || connect(fd, (const struct sockaddr *)a, length_of(a)) != 0 ? errno : 0;
    return fd;
}

int socket_error(int fd)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

#define LOOK_S 0.25 /* between looks at `stop`: a signal may come just before a wait */

static bool wait_ready(int fd, short events, SocketLimit limit)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        double left = limit.end - clock_monotonic();
        int n = poll(&p, 1, left > LOOK_S ? (int)(LOOK_S * 1e3) : left > 0 ? (int)(left * 1e3) + 1 : 0);
        bool stopped = limit.stop && *limit.stop;
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
        errno = stopped ? EINTR : ETIMEDOUT;
        if (stopped || clock_monotonic() >= limit.end) return false;
    }
}

int socket_connected(int fd, SocketLimit limit) { return wait_ready(fd, POLLOUT, limit) ? socket_error(fd) : errno; }

static bool transfer(int fd, void *data, size_t size, bool out, SocketLimit limit)
{
    for (char *p = data; size;) {
        ssize_t n = out ? send(fd, p, size, MSG_NOSIGNAL) : recv(fd, p, size, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && wait_ready(fd, out ? POLLOUT : POLLIN, limit)) continue;
        if (n == 0) errno = ECONNRESET;
        if (n <= 0) return false;
        p += n, size -= (size_t)n;
    }
    return true;
}

bool socket_send_all(int fd, const void *data, size_t size, SocketLimit limit)
{
    return transfer(fd, (void *)data, size, true, limit);
}

bool socket_receive_all(int fd, void *data, size_t size, SocketLimit limit)
{
    return transfer(fd, data, size, false, limit);
}

int socket_listen(const SocketAddress *a)
{
    int one = 1, zero = 0, fd = open_socket(a->ss_family);
    bool named = ((const struct sockaddr_in *)a)->sin_port != 0; /* at the same place in both */
    if (fd < 0) return fd;
    if (named) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, (const struct sockaddr *)a, length_of(a)) == 0 && listen(fd, 1024) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int socket_listen_any(int port)
{
    SocketAddress at;
    socket_address("::", port, &at); /* for IPv4, too */
    int fd = socket_listen(&at);
    if (fd >= 0 || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) return fd;
    socket_address("0.0.0.0", port, &at);
    return socket_listen(&at);
}

const char *socket_loopback(void)
{
    static const char *const both[] = {"127.0.0.1", "::1"};
    for (int i = 0; i < 2; i++) {
        SocketAddress at;
        socket_address(both[i], 0, &at);
        int fd = socket_listen(&at);
        if (fd >= 0) close(fd);
        if (fd >= 0) return both[i];
    }
    return both[0];
}

int socket_port(int fd)
{
    SocketAddress a;
    socklen_t size = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &size) != 0) return 0;
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

int socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) usleep(10000);
    return fd;
}
