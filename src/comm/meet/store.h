/* The rendezvous: a small store of named values that all ranks reach. One thread at a time uses a Store. */
#pragma once

#include <signal.h>

#include "comm/meet/world.h"

typedef struct Store Store;

/* Opens the store at `where`:
     tcp://HOST[:PORT]  rank 0 serves it; without a port the job's name gives one; where a port is taken, rank 0 and the
                        others try the next ones, also past another run of the same name
     served://HOST:PORT the launcher serves it (store_serve)
     auto               CAIRN_RENDEZVOUS of the launcher, else tcp at the world's master, else tcp at this host's
                        loopback address, for ranks of one user
   Ranks of another job or with another token are refused. With an empty token (or NULL) anyone who knows the job's
   name and reaches the port can join. E_PEER: no server within `timeout_s`. While *stop (may be NULL) is not 0, waits
   end with E_STOPPED. */
Status store_open(const World *world, const char *where, const char *token, double timeout_s,
                  const volatile sig_atomic_t *stop, Store **store);
Status store_set(Store *s, const char *name, const void *data, size_t size);
/* Waits for the value; E_PEER after `timeout_s`, naming it. The caller frees `*data`; a NUL follows the bytes. */
Status store_get(Store *s, const char *name, double timeout_s, void **data, size_t *size);
bool store_stopped(const volatile sig_atomic_t *stop);
/* E_STOPPED, with the message of all these waits. */
Status store_fail_stopped(void);
/* Ends the effect of `stop`: survivors use the store after a signal, too. */
void store_ignore_stop(Store *s);
/* Shortens the wait for a server's answer: the server itself may be lost. */
void store_hurry(Store *s, double answer_s);
void store_close(Store *s); /* takes NULL */

/* For a launcher: serves a store to the ranks of `world` (its size and job), from a thread, until it is closed. Port 0
   means any free one. The server also admits World.rank -1, an observer. */
typedef struct StoreServer StoreServer;
Status store_serve(const World *world, bool loopback, int port, const char *token, StoreServer **server);
int store_server_port(const StoreServer *s);
/* Waits for the clients to leave, for at most `seconds`. Takes NULL. */
void store_server_linger(StoreServer *s, double seconds);
void store_server_close(StoreServer *s); /* takes NULL */
