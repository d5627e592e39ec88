/* TCP sockets. All are non-blocking, closed on exec, and send without delay. */
#pragma once

#include "base/std.h"
#include <signal.h>
#include <sys/socket.h>

typedef struct sockaddr_storage SocketAddress;

/* Parses a numerical address, IPv4 or IPv6. False: not an address. */
bool socket_address(const char *text, int port, SocketAddress *address);
void socket_set_port(SocketAddress *address, int port);
/* Starts to connect. *error becomes 0, EINPROGRESS (socket_error has the result once the socket is writable) or another
   errno. Returns the descriptor, which the caller closes unless it is negative. */
int socket_connect(const SocketAddress *address, int *error);
/* A limit of a wait. */
typedef struct {
    double end;                        /* by clock_monotonic */
    const volatile sig_atomic_t *stop; /* nonzero ends the wait within 0.25 s, with EINTR; may be NULL */
} SocketLimit;

/* Waits for such a connection. Returns 0 or an errno. */
int socket_connected(int fd, SocketLimit limit);
/* Transfer `size` bytes. False: that failed, with errno; ETIMEDOUT at the limit, ECONNRESET at the end of the stream.
 */
bool socket_send_all(int fd, const void *data, size_t size, SocketLimit limit);
bool socket_receive_all(int fd, void *data, size_t size, SocketLimit limit);
int socket_error(int fd);
/* Negative, with errno, on failure. With port 0 the system chooses. */
int socket_listen(const SocketAddress *address);
int socket_listen_any(int port);   /* at all addresses, of IPv6 if the system has it */
const char *socket_loopback(void); /* 127.0.0.1, or ::1 where the host has that alone */
int socket_port(int fd);
/* Negative: no connection is waiting, or too many files are open (after a pause of 10 ms). */
int socket_accept(int listener);
