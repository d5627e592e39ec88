/* Inside src/launch: the launcher's side. */
#ifndef CAIRN_LAUNCH_LAUNCH_INTERNAL_H
#define CAIRN_LAUNCH_LAUNCH_INTERNAL_H

#include <sys/types.h>

#include "base/base.h"
#include "comm/comm.h"
#include "config/config.h"
#include "launch/door.h"
#include "launch/sites.h"
#include "launch/wire.h"

/* An agent, seen from the launcher. */
typedef struct {
    Site *site;
    pid_t pid;           /* the agent's here, else that of ssh or of PBS's command; 0: none */
    int orders;          /* −1: closed */
    WireReader said;     /* what it tells */
    WireReader muttered; /* its standard error: ssh's complaints, above all */
    bool met, lost;
    bool entered; /* by the door: `orders` and `said` are its connection */
    int cores, gpus, first_rank, n_ranks;
    char client[64], hostname[256], complaint[512];
    int reached; /* of the address last asked for: 1 yes, 0 no, −1 not answered */
} Remote;

typedef struct {
    bool ended;
    int code, signal;    /* signal 0: it ended with code */
    size_t memory_limit; /* 0: none was at fault; 1: not known */
    double when;
    bool frozen; /* others lost it because it was silent, and it did not speak itself */
} Rank;

/* All agents of one start, and their ranks. */
typedef struct {
    Remote *remotes; // (n_remotes) as the sites
    int n_remotes;
    Rank *ranks; // (n_ranks)
    int n_ranks, running;
    double turned;                                                      /* when fleet_turn last waited */
    void (*on_line)(void *arg, int rank, int stream, const char *line); /* what a rank printed */
    void (*on_remark)(void *arg, const Remote *r, const char *line);    /* what ssh or an agent did */
    void *arg;
    Sites *sites;
    double connect_s;
    bool tasks;         /* PBS can start agents, where ssh is refused */
    Door door;          /* for those; path NULL: closed */
    char failure[1024]; /* what an agent could not do; "" */
} Fleet;

/* Starts an agent on each host of which `wanted` (n) is true. `from` says how others are reached (fleet.c). Under PBS a
   host that ssh does not reach becomes `by_task` in `sites`. */
Status fleet_start(Fleet *f, Sites *sites, const bool *wanted, double connect_s);
/* Waits at most `seconds` for something, takes it in, and marks what is lost: a closed connection, or one silent for
   `silence_s`. `watch`: a file descriptor that ends the wait, or −1. */
void fleet_turn(Fleet *f, int watch, double seconds, double silence_s);
/* The line to one agent, or (remote NULL) to all. */
void fleet_send(Fleet *f, Remote *remote, const char *word, const char *text);
/* The agents end, and with them whatever they still hold. */
void fleet_end(Fleet *f, double patience_s);
const Remote *fleet_host_of(const Fleet *f, int rank);

/* Finds the address at which ranks reach this process's `port`: 127.0.0.1 where all of them are here; else the first of
   this machine's that every agent with ranks can connect to. E_PEER names the hosts that reach none. */
Status meeting_choose(Fleet *f, int port, int watch, double silence_s, char address[128]);

/* A thread of its own writes what this process says from here on, so that a stopped terminal or a pipe that nobody
   reads keeps nobody from watching. What is not read waits, 16 MiB at most; then lines are counted, and their number
   said. */
void writer_begin(void);
void writer_put(int fd, const char *text, size_t size);
/* Waits until all of it is written, `patience_s` at most, or until a signal comes (`signals`, a signalfd). */
void writer_end(int signals, double patience_s);

/* What ranks print. Rank 0's as it is; of the others errors and warnings, with rank and host in front, each once
   however many ranks say it; with `all`, everything. The last lines of each are kept for output_last. */
typedef struct Output Output;
Output *output_open(int n_ranks, bool all);
void output_line(Output *o, int rank, const char *host, int stream, const char *line);
/* The last lines of a rank that were not shown, for one that ended in a way that nothing explains. */
void output_last(Output *o, int rank, const char *host);
void output_close(Output *o);

/* A `cairn launch`. */
typedef struct {
    const Config *c;
    Sites sites;
    bool *open;  // (sites.n) hosts that take part in this start
    int *lost;   // (sites.n) the start in which a host was lost last, or did not answer; 0: in none
    int *limits; // (sites.n) ranks they take; 0: no limit
    int *counts; // (sites.n) ranks they have now
    Fleet fleet;
    Output *output;
    StoreServer *store;
    char job[80], random[33], token[64], rendezvous[192], address[128];
    int port, generation, restarts;
    int signals;     /* a signalfd */
    int stop_signal; /* the first that asked for the end; 0: none */
    int interrupts;
    double stopped_at, failed_at, lost_at; /* 0: not so */
    bool terminated, killed, under_grid_engine;
    double peer_timeout;    /* the ranks' */
    double begun, max_time; /* the command's --max-time, which counts from the first start; 0: none */
    double time_left;       /* of it, at this start: ranks must agree */
} Launch;

/* The orders for one agent, number `node` of those with ranks; the last is "go". */
void orders_send(Launch *l, Remote *r, int node);
/* Who says nothing for so many seconds is lost. */
double launch_silence(const Launch *l);

/* `cairn launch -- @probe`: what a rank does under --probe. */
Status probe_run(const Config *c);

#endif
