/* Between the files of the rendezvous. */
#pragma once

#include "comm/meet/rendezvous_wire.h"

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status rendezvous_parse_address(const char *text, char **host, int *port);

/* Number of ports that server and clients try, from the wanted one on. */
#define RENDEZVOUS_PORTS 8
/* rendezvous_serve with the key in place of the token. */
Status rendezvous_serve_key(bool loopback, int port, Hash128 key, int world_size, RendezvousServer **server);
