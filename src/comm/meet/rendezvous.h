/* The rendezvous: where the ranks of a run find each other. Its server, of rank 0 or of the launcher, gathers what the
   ranks say, in rounds, and answers all when all have come. Ranks leave it when they are connected. */
#pragma once

#include <signal.h>

#include "comm/meet/world.h"
#include "comm/watch/watch.h"

typedef struct Rendezvous Rendezvous;

/* Joins the rendezvous at `where`:
     tcp://HOST[:PORT]  rank 0 serves it; without a port the job's name gives one; where a port is taken, rank 0 and the
                        others try the next ones, also past another run of the same name
     served://HOST:PORT the launcher serves it (rendezvous_serve)
     auto               CAIRN_RENDEZVOUS of the launcher, else tcp at the world's master, else tcp at this host's
                        loopback address, for ranks of one user
   Ranks of another job or with another token are refused, and so are a rank of another world size and a second process
   of a rank. With an empty token (or NULL) anyone who knows the job's name and reaches the port can join. E_PEER: no
   server within `timeout_s`. While *stop (may be NULL) is not 0, waits end with E_STOPPED. */
Status rendezvous_join(const World *world, const char *where, const char *token, double timeout_s,
                       const volatile sig_atomic_t *stop, Rendezvous **rendezvous);
/* Collective: a round. `all` (size, bytes) receives every rank's `mine`, in rank order. E_PEER: some did not come
   within the shortest `timeout_s` of those who did, and the message of all who did names them; or the watch (may be
   NULL) knows of a loss. */
Status rendezvous_gather(Rendezvous *r, const void *mine, size_t bytes, void *all, double timeout_s, Watch *watch);
void rendezvous_leave(Rendezvous *r); /* takes NULL */

bool rendezvous_stopped(const volatile sig_atomic_t *stop);
/* E_STOPPED, with the message of all these waits. */
Status rendezvous_fail_stopped(void);

/* For a launcher: serves the ranks of `world` (its size and job), from a thread, until it is closed. Port 0 means any
   free one. */
typedef struct RendezvousServer RendezvousServer;
Status rendezvous_serve(const World *world, bool loopback, int port, const char *token, RendezvousServer **server);
int rendezvous_port(const RendezvousServer *s);
/* Lets the clients read their answers, for a few seconds at most. Takes NULL. */
void rendezvous_close(RendezvousServer *s);
