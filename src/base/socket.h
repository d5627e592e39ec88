/* TCP sockets. All are non-blocking, closed on exec, and send without delay. */
#ifndef CAIRN_BASE_SOCKET_H
#define CAIRN_BASE_SOCKET_H

#include <stdbool.h>
#include <sys/socket.h>

typedef struct sockaddr_storage SocketAddress;

/* From a numerical address, IPv4 or IPv6. False: it is none. */
bool socket_address(const char *text, int port, SocketAddress *address);
void socket_set_port(SocketAddress *address, int port);
/* Begins to connect. *error: 0, EINPROGRESS (socket_error knows when it is writable), or why not. The caller closes
   what is not negative. */
int socket_connect(const SocketAddress *address, int *error);
/* Waits for that. 0, or errno. */
int socket_connected(int fd, double seconds);
int socket_error(int fd);
/* Negative, and errno: it cannot listen. Port 0: one of the system's choice.
 */
int socket_listen(const SocketAddress *address);
int socket_listen_any(int port); /* at all addresses, of IPv6 if the system has it */
int socket_port(int fd);
int socket_accept(
    int listener); /* negative: nobody is there, or too many files are open, which it waits a little for */

#endif
