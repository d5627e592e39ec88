#include "base/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

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

int socket_connected(int fd, double seconds)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, (int)(1e3 * seconds)) > 0 ? socket_error(fd) : ETIMEDOUT;
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
