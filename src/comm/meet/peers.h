/* The preflight: ranks exchange their identities, choose a network, and check that all reach each other. */
#pragma once

#include "comm/meet/rendezvous.h"
#include "comm/meet/world.h"
#include "comm/watch/watch.h"

/* Collective. Chooses one of the `interfaces` (--iface), connects the watch, and checks that all ranks reach each
   other. If `ready` is not OK on some rank, all ranks fail with its message. The caller frees `cards` (size) and closes
   `watch`. */
Status peers_meet(const World *world, const char *interfaces, double peer_timeout_s, Rendezvous *rendezvous,
                  double timeout_s, Status ready, PeerCard **cards, Watch **watch);
/* The lowest rank on the host of `rank`. */
int peers_first_of_host(const PeerCard *cards, int rank);
