/* TCP sockets. All are non-blocking, closed on exec, and send without delay. */
#ifndef CAIRN_BASE_SOCKET_H
#define CAIRN_BASE_SOCKET_H

#include <stdbool.h>
#include <sys/socket.h>

typedef struct sockaddr_storage SocketAddress;

/* Parses a numerical address, IPv4 or IPv6. False: not an address. */
bool socket_address(const char *text, int port, SocketAddress *address);
void socket_set_port(SocketAddress *address, int port);
/* Starts to connect. *error becomes 0, EINPROGRESS (socket_error has the result once the socket is writable) or another
   errno. Returns the descriptor, which the caller closes unless it is negative. */
int socket_connect(const SocketAddress *address, int *error);
/* Waits for such a connection. Returns 0 or an errno. */
int socket_connected(int fd, double seconds);
int socket_error(int fd);
/* Negative, with errno, on failure. With port 0 the system chooses. */
int socket_listen(const SocketAddress *address);
int socket_listen_any(int port); /* at all addresses, of IPv6 if the system has it */
int socket_port(int fd);
/* Negative: no connection is waiting, or too many files are open (after a pause of 10 ms). */
int socket_accept(int listener);

#endif
