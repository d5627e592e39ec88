/* The TCP store's server: one thread, whatever connects to it. */
#ifndef CAIRN_COMM_STORE_SERVER_H
#define CAIRN_COMM_STORE_SERVER_H

#include "comm/store_internal.h"

/* Number of ports that server and clients try, from the wanted one on. */
#define STORE_PORTS 8

/* As store_serve, with the key in place of the token. */
Status store_serve_key(bool loopback, int port, Hash128 key, int world_size, StoreServer **server);

#endif
