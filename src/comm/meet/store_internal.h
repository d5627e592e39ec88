/* Between the files of the store. */
#pragma once

#include "base/siphash.h"
#include "comm/meet/store.h"

#define STORE_MAX_NAME  256
#define STORE_MAX_VALUE ((size_t)64 << 20)

/* A connection to a server. One thread at a time. */
typedef struct StoreClient StoreClient;

/* `serve`: this rank serves it. A rank of another world size and a second process of a rank are refused. */
Status store_client_open(const World *world, const char *host_and_port, bool serve, Hash128 key, double timeout_s,
                         const volatile sig_atomic_t *stop, StoreClient **client);
Status store_client_set(StoreClient *c, const char *name, const void *data, size_t size);
/* The value that is there now or comes within about `wait_s`; *data NULL: none. */
Status store_client_get(StoreClient *c, const char *name, double wait_s, void **data, size_t *size);
/* Shortens the wait for an answer. */
void store_client_hurry(StoreClient *c, double answer_s);
void store_client_close(StoreClient *c); /* takes NULL */

/* Number of ports that server and clients try, from the wanted one on. */
#define STORE_PORTS 8
/* store_serve with the key in place of the token. */
Status store_serve_key(bool loopback, int port, Hash128 key, int world_size, StoreServer **server);

/* "HOST:PORT", "[V6]:PORT", "HOST", ":PORT" or "": the caller frees *host. `port` stays where none is given. */
Status store_parse_address(const char *text, char **host, int *port);
