/* The TCP store's server: one thread, whatever connects to it. */
#ifndef CAIRN_COMM_STORE_SERVER_H
#define CAIRN_COMM_STORE_SERVER_H

#include "comm/store_internal.h"

/* How many ports from the wanted one on are tried where others have taken them, by server and clients alike. */
#define STORE_PORTS 8

/* As store_serve, for a key that is made already. */
Status store_serve_key(bool loopback, int port, Hash128 key, int world_size, StoreServer **server);

#endif
