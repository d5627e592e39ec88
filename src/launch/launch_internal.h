/* Between the files of the launcher. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "base/events.h"
#include "comm/meet/rendezvous.h"
#include "faults/fault_record.h"
#include "launch/agent.h"
#include "launch/door.h"
#include "launch/launch_state.h"
#include "launch/sites.h"
#include "launch/wire.h"

/* An agent, in the launcher. */
typedef struct {
    Site *site;
    pid_t pid;  /* of the local agent, of ssh or of PBS's command; 0: none */
    int orders; /* −1: closed */
    WireReader messages;
    WireReader errors; /* its standard error, and ssh's */
    bool entered;      /* through the door: `orders` and `messages` are its connection */
    int cores, gpus;
    char client[64], hostname[256], complaint[512];
    int reached; /* the address of the last "reach": 1 yes, 0 no, −1 no answer yet */
} Remote;

typedef struct Output Output;

/* The agents of a start, and their ranks. */
typedef struct {
    LaunchState *state;
    bool acting;     /* its actions are being performed */
    Remote *remotes; // (n_remotes) as the sites
    int n_remotes;
    Events events;
    Output *output; /* NULL: the ranks are not known yet */
    Sites *sites;
    double connect_s;
    bool tasks;         /* PBS can start agents if ssh is refused */
    Door door;          /* for those; path NULL: closed */
    char failure[1024]; /* an agent's error; "" */
} Fleet;

/* Starts an agent on each open host. Under PBS a host that ssh does not reach becomes `by_task` in `sites`. */
Status fleet_start(Fleet *f, Sites *sites, double connect_s);
Status fleet_start_agent(Fleet *f, Remote *r);
/* Tells the machine, and performs its actions. */
void fleet_tell(Fleet *f, const LaunchEvent *e);
/* Waits for messages, and tells them and the time. `watch`: a file descriptor that ends the wait, or −1. */
void fleet_turn(Fleet *f, int watch);
/* Sends a line to one agent, or to all (remote NULL). */
void fleet_send(Fleet *f, Remote *remote, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Ends the agents, and their ranks. */
void fleet_end(Fleet *f, double patience_s);
/* True: all agents are on this host. */
bool fleet_is_local(const Fleet *f);
Host *fleet_host(const Fleet *f, const Remote *r);
/* The site of a rank's host. */
const char *fleet_name_of(const Fleet *f, int rank);

/* Finds the address of this process's `port` for the ranks: that of loopback if all are on this host, else the first
   address of this machine that every agent can connect to. E_PEER names the hosts that reach none. */
Status meeting_choose(Fleet *f, int port, int watch, char address[128]);

/* From here on a thread writes the output of this process, so that the launcher never waits for a stopped terminal or
   an unread pipe. At most 16 MiB wait; later lines are dropped, and their number is reported. */
void writer_begin(void);
void writer_put(int fd, const char *text, size_t size);
/* Waits until everything is written, at most `patience_s`, or until a signal comes (`signals`, a signalfd). */
void writer_end(int signals, double patience_s);

/* Shows the output of ranks: of rank 0 all of it; of the others errors and warnings, prefixed by rank and host, each
   text once. With `all` it shows everything. output_last gets the last lines of each rank. */
Output *output_open(int n_ranks, bool all);
void output_line(Output *o, int rank, const char *host, int stream, const char *line);
/* Shows the last hidden lines of a rank that died or failed. */
void output_last(Output *o, int rank, const char *host);
void output_close(Output *o);

/* A `cairn launch`. */
typedef struct {
    const Config *c;
    Sites sites;
    LaunchState state;
    Fleet fleet;
    RendezvousServer *server; /* NULL: the ranks meet elsewhere */
    char job[80], random[33], token[64], rendezvous[192], address[128];
    int port;
    int signals;            /* a signalfd */
    double peer_timeout;    /* the ranks' */
    char *output_dir;       /* the command's; NULL: it has none */
    double begun, max_time; /* the command's --max-time, which counts from the first start; 0: none */
    double time_left;       /* the rest of it at this start, the same for all ranks */
    double trained_before;  /* faults_trained when this began */
    FaultRecord faults;     /* of this command so far */
} Launch;

/* The outcome of a start, in words. */
typedef struct {
    int code; /* the launcher's exit code */
    int rank; /* whose end is the outcome; −1: a host's loss, or nobody knows whose memory is damaged */
    char host[256];
    char what[1024]; /* one line: rank, host, signal */
} Outcome;

/* Has the machine find the verdict, with what --audit wrote into the output folder, and describes it. */
void outcome_find(Launch *l, Outcome *o);
/* Describes the next rank behind *rank (at first −1) that was lost beside the one of the outcome. False: no more. */
bool outcome_also(const Launch *l, int *rank, Outcome *also);
/* Adds these ranks to the outcome's text. */
void outcome_name_all(const Launch *l, Outcome *o);
/* Seconds of training that count, by the output folder: steps that are made again count once. 0 without a folder. */
double faults_trained(const Launch *l);
/* Record the outcome of a start if it is a fault, and sum up at the command's end. Both need an output_dir, and leave
   out a launch that never had the folder, because another process used it. */
void faults_add(Launch *l, const Outcome *o);
void faults_end(Launch *l);

/* Reads the signals of this process, and tells them. False: there are none. */
bool launch_take_signals(Launch *l);
/* fleet_turn, and launch_take_signals. */
void launch_turn(Launch *l);
/* Raises the limit on open files as far as it may. E_FAIL: it stays below the need of a process of so many ranks. */
Status launch_check_files(int ranks);
/* Starts agents and ranks. E_STOPPED: a signal came before. */
Status launch_start(Launch *l);

/* Sends its orders to an agent, number `node` of those with ranks; the last is "go". */
void orders_send(Launch *l, Remote *r, int node);

/* `cairn launch -- @probe`: a rank of --probe. */
Status probe_run(const Config *c);
