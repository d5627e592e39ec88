/* A connection of all ranks, and the few collectives that they use.

   READ FIRST. A Comm connects all ranks of a World over one transport: self (one rank) or gloo (a module, loaded on
   demand). All ranks must call every function marked *Collective* in the same order with the same sizes, and one thread
   at a time may use a Comm; another thread needs a duplicate (comm_dup).

   No call waits forever. A peer that died, froze or cannot be reached is E_PEER on every rank, with one message that
   names the rank, its host and the time: at once for a closed connection, after the peer timeout for silence, after 20
   of them for a live rank that does not come. Then all Comms of these ranks are dead, and each call on them is E_PEER
   at once. The watch (comm_watch) outlives them: survivors agree over it.

   Data is host memory. The caller copies the data of a device, or uses a CommDevice (comm/mesh/device.h). */
#pragma once

#include <signal.h>

#include "comm/meet/world.h"
#include "comm/watch/watch.h"

/* ---- the connection ---- */

typedef struct {
    const char *transport;  /* "auto", "self", "gloo"; "nccl": gloo, and a CommDevice */
    const char *rendezvous; /* see rendezvous_join */
    const char *interfaces; /* --iface: names, prefixes, ^exclusions, CIDR, separated by commas; "": by the route to the
                               peers */
    double connect_s;       /* how long ranks wait for each other at the start */
    double peer_timeout_s;  /* a rank that is silent for so long is lost */
    const volatile sig_atomic_t *stop; /* not 0 after a signal: the wait for the other ranks ends; may be NULL */
} CommOptions;

/* How sums are added. `terms` 0: in rank order, a term of each rank. Else in the tree of base/sum_tree.h over so many,
   each rank with as many consecutive ones. It has added what it can; of the branches that are left the last one lies
   where the sum will be, and the others, in their order, from `behind` elements further on, `stride` apart. */
typedef struct {
    int64_t terms, behind, stride;
} CommTree;

typedef struct Comm {
    int rank, size, local_rank, local_size, node, nodes;
    struct GlooConnection *gloo; /* NULL: one rank */
    struct CommGroup *group;     /* comm_internal.h */
    int *members;                /* (size) of a part of the ranks: their numbers among all; NULL: all ranks */
    double peer_timeout_s;
    CommTree tree; /* the owner sets it, on all ranks; at first in rank order */
    bool dead;
} Comm;

/* Collective. Meets the other ranks, chooses the interface, checks that all reach each other (else the message has the
   table), and fills node, nodes, local_rank and local_size. The token is CAIRN_JOB_TOKEN in the environment. E_STOPPED:
   `stop` came before all ranks did. */
Status comm_open(const World *world, const CommOptions *options, Comm **comm);
/* Collective on `c`, which connects all ranks. A second connection of them, for another thread. */
Status comm_dup(Comm *c, Comm **copy);
/* Collective on `c`, which connects all ranks. Ranks with the same color get a Comm of their own, over a connection of
   its own; they are numbered by key, then by rank. A color below 0 takes part and gets NULL. node, nodes, local_rank
   and local_size stay those of `c`. A lost rank ends the waits of all groups. */
Status comm_split(Comm *c, int color, int key, Comm **part);
void comm_close(Comm *c); /* takes NULL; does not wait for other ranks, which still receive all that was sent */
int comm_node(const Comm *c, int rank); /* the number of its host */
/* "rank 3 on node07 (10.0.0.7)". Valid as long as the Comm. */
const char *comm_peer_name(const Comm *c, int rank);

/* The control plane of all ranks of the run; NULL: one rank alone. */
Watch *comm_watch(const Comm *c);
/* E_PEER where a rank is lost already, with the message of the collective `what`. */
Status comm_check(const Comm *c, const char *what);

/* ---- collectives on bytes; all of them Collective ---- */

Status comm_barrier(Comm *c);
Status comm_broadcast(Comm *c, void *data, size_t bytes, int root);
/* `all` (size, bytes) receives every rank's `mine`, in rank order. */
Status comm_allgather(Comm *c, const void *mine, size_t bytes, void *all);
/* `all` holds parts of bytes[r] in rank order. The caller fills its own; the others arrive. */
Status comm_allgatherv(Comm *c, void *all, const size_t *bytes); // (size)
/* comm_allgatherv where no rank knows the others' numbers of bytes, which `bytes` (size) receives. Also after a failure
   the caller frees *all. */
Status comm_gather(Comm *c, const void *mine, size_t own, char **all, size_t *bytes);
/* Part r of `send` goes to rank r; part r of `receive` comes from rank r. Parts follow each other without gaps. */
Status comm_alltoallv(Comm *c, const void *send, const size_t *send_bytes, void *receive,
                      const size_t *receive_bytes); // (size) each
/* Between two ranks; not collective. */
Status comm_send(Comm *c, int to, const void *data, size_t bytes);
Status comm_receive(Comm *c, int from, void *data, size_t bytes);

/* ---- messages that travel while their ranks go on; not collective ---- */

typedef struct CommTicket CommTicket;
/* Begins to send `data` to a rank, or to receive it from there. Messages with the same tag between two ranks arrive in
   the order in which they were posted; those with different tags do not wait for each other. `data` must stay until
   comm_wait, which takes the ticket. Other calls on `c` are allowed meanwhile. */
Status comm_post(Comm *c, int peer, uint32_t tag, bool send, void *data, size_t bytes, CommTicket **ticket);
/* `what` is for the message of E_PEER: "the activations of micro-batch 5". Takes NULL. After a failure of any call the
   tickets that are left must be given here before comm_close; each wait then fails at once. */
Status comm_wait(Comm *c, CommTicket *ticket, const char *what);

/* ---- sums of all ranks' terms, added in rank order or as a tree: the same bits everywhere; Collective ---- */

/* In a tree the branches follow each other without gaps. */
Status comm_sum(Comm *c, double *values, int count);

/* `parts` (size): the elements of x that each rank owns. A rank's own elements become the sum over all ranks' x; its
   other elements stay. Terms travel as `wire` (F32, or BF16 rounded to nearest even; in a tree F32) and are added in
   fp32. The sum is then rounded to `wire`, so that its bits survive a later transfer. `scratch` has comm_reduce_bytes.
 */
Status comm_reduce_scatter(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
/* Sends every rank's own elements to all others, rounded to `wire` on all ranks. */
Status comm_gather_parts(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
/* Both: x becomes the sum on every rank, with the same bits. */
Status comm_allreduce(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
/* The additions of a tree of so many terms (0: in rank order) over the branches of `size` ranks, in their order: branch
   `from` to branch `to`; the sum is in the first one. The caller frees the array. */
typedef struct {
    int to, from;
} CommAddition;
CommAddition *comm_tree_additions(int64_t terms, int size, int *n); // (n)
/* Elements of other ranks' terms that a rank receives of a tree, at most. */
int64_t comm_received(const Intervals *parts, int size, int64_t terms);
/* Terms that a rank sends of a tree of so many (0: no tree, one) over `size` ranks. */
int comm_branches(int64_t terms, int size, int rank);
/* `terms` of the tree; 0: in rank order. */
size_t comm_reduce_bytes(const Intervals *parts, int size, Dtype wire, int64_t terms);

/* ---- agreement ---- */

/* Collective. Every rank passes the same list of named texts (version, configuration, digests of data). E_USAGE on all
   ranks where one differs, naming it, the ranks and both texts. */
typedef struct {
    const char *name, *value;
} CommFact;
Status comm_agree(Comm *c, const CommFact *facts, int n);
