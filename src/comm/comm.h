/* Ranks: processes that train one model together, and the few collectives they use.

   READ FIRST. A World says who this process is: found in the environment that a launcher left, or in flags. A Comm is a
   connection of all ranks of a world, over one transport: self (one rank) or gloo (a module, loaded when asked
   for). Every function marked *Collective* must be called by all ranks in the same order with the same sizes, on a
   given Comm by one thread at a time; who wants to talk beside others from another thread duplicates the Comm first.

   Nothing waits for ever. A peer that died, froze or cannot be reached is E_PEER on every rank: one message that says
   who, where and for how long; a closed connection at once, silence after the peer timeout, a rank that lives and does
   not come after 20 of them. Then all Comms of these ranks are dead, and each call on them is E_PEER at once. The store
   of the rendezvous outlives them: by it survivors agree (not rank 0's own, tcp://, where rank 0 is lost).

   Data is host memory. What a device holds is copied by the caller, or goes from GPU to GPU by a CommDevice. */
#ifndef CAIRN_COMM_COMM_H
#define CAIRN_COMM_COMM_H

#include <signal.h>

#include "base/base.h"

/* ---- who we are ---- */

typedef struct {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
    int node, nodes;            /* the host's number, and how many hosts; nodes 0: not known before ranks have met */
    char source[48];  /* where it was found: "flags", "torchrun", "Open MPI", "Slurm" …; "" for one rank alone */
    char job[96];     /* the job's name or number, the same on all ranks: "slurm-1234.0"; "" where there is none */
    char master[256]; /* MASTER_ADDR or as the scheduler says; "" */
    int master_port;  /* MASTER_PORT; 0 */
} World;

/* Looks at an environment (as environ), in the order of docs/network.md: the first complete set wins. None at all is
   one rank. A partial set, or two that disagree, is E_USAGE and prints them. */
Status world_find(char **environment, World *world);

/* ---- rendezvous: a small store of named values that all ranks reach ---- */

typedef struct Store Store;

/* `where`: "file:DIR" (a shared folder), "tcp://HOST[:PORT]" (rank 0 serves it; where the port
   is taken the next ones are tried by all; none given: by the job's name), "served://HOST:PORT" (a process that is no
   rank serves it: store_serve), or "auto": what the launcher left in CAIRN_RENDEZVOUS, else tcp at the world's master,
   else a file store for one host. Names are kept apart by job and token, so what another job, or an earlier run of this
   one, left there is never seen. For files all ranks must come within `timeout_s`; E_PEER names who did not.
   With an empty token (may be NULL), whoever knows the job's name and reaches the port can join a tcp store. */
Status store_open(const World *world, const char *where, const char *token, double timeout_s, Store **store);
Status store_set(Store *s, const char *name, const void *data, size_t size);
/* Waits until the value is there: E_PEER after `timeout_s`, naming it. The caller frees `*data`; 0 bytes follow it. */
Status store_get(Store *s, const char *name, double timeout_s, void **data, size_t *size);
/* From now on a server that does not answer is given up after so long: it may be what was lost. */
void store_hurry(Store *s, double answer_s);
void store_close(Store *s); /* takes NULL; in a folder, the last rank of a run removes what is left of it */
/* Removes what the ranks of a job left there: all of them have ended, and no other has its name and token. */
void store_forget(const World *world, const char *where, const char *token);

/* For a launcher: serves a store for the ranks of `world` (its size and job count), in a thread, until closed. `port`
   0: any that is free. It also takes World.rank -1, for somebody who only looks. */
typedef struct StoreServer StoreServer;
Status store_serve(const World *world, bool loopback, int port, const char *token, StoreServer **server);
int store_server_port(const StoreServer *s);
/* Have all ranks met? From then on each notices a lost rank by itself. */
bool store_server_met(StoreServer *s);
/* The first loss that rank `rank` knows of: the lost rank, and whether it fell silent (else its process ended). -1: the
   rank knows of none, or meets elsewhere. */
int store_server_lost(StoreServer *s, int rank, bool *silent);
void store_server_close(StoreServer *s); /* takes NULL */

/* ---- the connection ---- */

typedef struct {
    const char *transport;  /* "auto", "self", "gloo", "nccl": gloo, beside which a CommDevice is opened */
    const char *rendezvous; /* see store_open */
    const char *interfaces; /* --iface: names, prefixes, ^exclusions, CIDR, with commas between; "": the route to the
                               peers decides */
    double connect_s;       /* how long ranks wait for each other at the start */
    double peer_timeout_s;  /* who is silent for so long is lost */
    const volatile sig_atomic_t *stop; /* not 0 once a signal asks for the end: who waits for the others to come does so
                                          no longer; may be NULL */
} CommOptions;

typedef struct Comm {
    int rank, size, local_rank, local_size, node, nodes;
    const struct CommTransport *transport; /* comm_internal.h */
    void *self;
    struct CommGroup *group; /* comm_internal.h */
    Store *store;            /* NULL for one rank; closed with the last Comm of these ranks */
    double peer_timeout_s;
    bool dead;
} Comm;

/* Collective. Meets the other ranks, chooses the interface, checks who reaches whom (the table of who does not is in
   the message), and fills hosts: node, nodes, local_rank, local_size are exact from here on. The token is
   CAIRN_JOB_TOKEN in the environment. E_STOPPED: `stop` came before all were there. */
Status comm_open(const World *world, const CommOptions *options, Comm **comm);
/* One rank, nothing to exchange. */
Status comm_self(Comm **comm);
/* Collective, also with what goes on on `c`. Another connection of the same ranks, for another thread. */
Status comm_dup(Comm *c, Comm **copy);
void comm_close(Comm *c); /* takes NULL; waits for nobody */
/* "rank 3 on node07 (10.0.0.7)". Valid as long as the Comm. */
const char *comm_peer_name(const Comm *c, int rank);

/* ---- collectives on bytes; all of them Collective ---- */

Status comm_barrier(Comm *c);
Status comm_broadcast(Comm *c, void *data, size_t bytes, int root);
/* `all` (size, bytes): every rank's `mine`, in rank order. */
Status comm_allgather(Comm *c, const void *mine, size_t bytes, void *all);
/* `all` holds parts of bytes[r] in rank order; this rank's is filled, the others come. */
Status comm_allgatherv(Comm *c, void *all, const size_t *bytes); // (size)
/* Part r of `send` goes to rank r; part r of `receive` comes from rank r. Parts follow each other without gaps. */
Status comm_alltoallv(Comm *c, const void *send, const size_t *send_bytes, void *receive,
                      const size_t *receive_bytes); // (size) each
/* Between two ranks; not collective. */
Status comm_send(Comm *c, int to, const void *data, size_t bytes);
Status comm_receive(Comm *c, int from, void *data, size_t bytes);

/* ---- sums: of all ranks' terms, added in rank order, so the bits are the same everywhere; Collective ---- */

Status comm_sum(Comm *c, double *values, int count);

/* `parts` (size): which elements of x each rank owns. Every rank's own elements become the sum over all ranks' x; the
   others keep what they were. Terms go over the wire as `wire` (F32 or BF16, rounded to nearest even) and are added in
   rank order in fp32; then, for the bits to be the same wherever they go next, the sum is rounded as `wire` says.
   `scratch` has comm_reduce_bytes. */
Status comm_reduce_scatter(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
/* Every rank's own elements go to all others, rounded as `wire` says, here too. */
Status comm_gather_parts(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
/* Both: afterwards x is the sum on every rank, with the same bits. */
Status comm_allreduce(Comm *c, float *x, const Intervals *parts, Dtype wire, void *scratch);
size_t comm_reduce_bytes(const Intervals *parts, int size, Dtype wire);

/* ---- do they agree ---- */

/* Collective. Every rank gives the same list of named texts (version, configuration, digests of data); E_USAGE on all
   ranks where one differs, naming it, the ranks and both texts. */
typedef struct {
    const char *name, *value;
} CommFact;
Status comm_agree(Comm *c, const CommFact *facts, int n);

/* ---- between GPUs, by NCCL (cairn_nccl.so) ---- */

/* Belongs to a Comm of the same ranks, whose watch ends it when a rank is lost; closed before it. Sums are NCCL's: the
   same bits on all ranks, but in no order that we know. One thread at a time. */
typedef struct CommDevice CommDevice;

/* Collective. `unit` names this rank's GPU among all there are. E_USAGE, with the same text on all ranks, where some
   rank cannot load the module, or two are on one GPU. */
Status comm_device_ready(Comm *c, const char *unit);
/* Collective, after that. The calling thread's current device is used, for all calls. */
Status comm_device_open(Comm *c, CommDevice **device);
const char *comm_device_describe(const CommDevice *d); /* "NCCL 2.28.9" */
/* Collective. These queue their work on a cudaStream_t, in place in device memory. E_PEER: aborted, only close is left.
   F32, F64 or I64; parts as in comm_reduce_scatter and comm_gather_parts. */
Status comm_device_sum(CommDevice *d, void *x, size_t count, Dtype type, void *stream);
Status comm_device_sum_parts(CommDevice *d, float *x, const Intervals *parts, void *stream);
Status comm_device_gather_parts(CommDevice *d, float *x, const Intervals *parts, void *stream);
Status comm_device_broadcast(CommDevice *d, float *x, size_t count, int root, void *stream);
/* Until `done` says that what was queued has ended. It must be waited for so, before anybody waits for the stream in
   another way: E_PEER where a rank is lost or NCCL failed; then what was queued has been ended, and is worth nothing.
 */
Status comm_device_wait(CommDevice *d, Status (*done)(void *self, bool *done), void *self);
/* Never waits: E_PEER as above. */
Status comm_device_check(CommDevice *d);
/* Ends what is queued and was not waited for, if anything: before one waits for the stream after a failure. */
void comm_device_abort(CommDevice *d); /* takes NULL */
void comm_device_close(CommDevice *d); /* takes NULL */

#endif
