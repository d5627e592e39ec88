/* Between the files of the launcher. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "base/events.h"
#include "comm/meet/store.h"
#include "config/config.h"
#include "faults/fault_record.h"
#include "launch/door.h"
#include "launch/sites.h"
#include "launch/wire.h"

/* An agent, in the launcher. */
typedef struct {
    Site *site;
    pid_t pid;  /* of the local agent, of ssh or of PBS's command; 0: none */
    int orders; /* −1: closed */
    WireReader messages;
    WireReader errors; /* its standard error, and ssh's */
    bool met, lost;
    bool entered; /* through the door: `orders` and `messages` are its connection */
    int cores, gpus, first_rank, n_ranks;
    char client[64], hostname[256], complaint[512];
    int reached; /* the address of the last "reach": 1 yes, 0 no, −1 no answer yet */
} Remote;

typedef struct {
    bool ended;
    int code, signal;    /* signal 0: it ended with code */
    size_t memory_limit; /* 0: not killed for memory; 1: unknown */
    double when;
    bool aware;       /* it reported a loss */
    double silent_at; /* when another rank first reported it as silent; 0: none did */
    bool led;         /* another rank reported that it led the save, and was silent */
} Rank;

typedef struct Output Output;

/* The agents of a start, and their ranks. */
typedef struct {
    Remote *remotes; // (n_remotes) as the sites
    int n_remotes;
    Rank *ranks; // (n_ranks)
    int n_ranks, running;
    bool *silent;    // (n_remotes, n_ranks): a rank of this host reported this rank as silent
    bool met, saved; /* reported by some rank: all ranks have met; survivors have saved the state */
    Events events;
    Output *output; /* NULL: the ranks are not known yet */
    double turned;  /* when fleet_turn last waited */
    Sites *sites;
    double connect_s;
    bool tasks;         /* PBS can start agents if ssh is refused */
    Door door;          /* for those; path NULL: closed */
    char failure[1024]; /* an agent's error; "" */
} Fleet;

/* Starts an agent on each open host. Under PBS a host that ssh does not reach becomes `by_task` in `sites`. */
Status fleet_start(Fleet *f, Sites *sites, double connect_s);
Status fleet_start_agent(Fleet *f, Remote *r);
/* Waits at most `seconds` for messages, and handles them. An agent whose connection is closed, or silent for
   `silence_s`, is lost. `watch`: a file descriptor that ends the wait, or −1. */
void fleet_turn(Fleet *f, int watch, double seconds, double silence_s);
/* Sends a line to one agent, or to all (remote NULL). */
void fleet_send(Fleet *f, Remote *remote, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Ends the agents, and their ranks. */
void fleet_end(Fleet *f, double patience_s);
/* True: all agents are on this host. */
bool fleet_is_local(const Fleet *f);
const Remote *fleet_host_of(const Fleet *f, int rank);
/* True: other ranks report it as silent, while it trained, if it reported nothing itself; else in the save. */
bool rank_is_frozen(const Rank *r);

/* Finds the address of this process's `port` for the ranks: that of loopback if all are on this host, else the first
   address of this machine that every agent can connect to. E_PEER names the hosts that reach none. */
Status meeting_choose(Fleet *f, int port, int watch, double silence_s, char address[128]);

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

/* The last command before this one, as if its launcher was killed. */
typedef struct {
    char *job;  /* NULL: it was summed up */
    double end; /* clock_wall */
    FaultSeconds seconds;
} KilledLaunch;

/* The faults of a job so far. */
typedef struct {
    FaultRecord record;    /* of this command */
    double trained_before; /* of earlier commands, in the same folder */
    double trained;        /* by the last start */
    int starts;            /* of this command that trained, before the one that runs */
    int fruitless;         /* starts in succession whose training did not advance */
    KilledLaunch last;
} Faults;

/* A `cairn launch`. */
typedef struct {
    const Config *c;
    Sites sites;
    Fleet fleet;
    StoreServer *store; /* NULL: the ranks meet elsewhere */
    char job[80], random[33], token[64], rendezvous[192], address[128];
    int port, restarts;
    int signals;     /* a signalfd */
    int stop_signal; /* the first signal that asked for the end; 0: none */
    int interrupts;
    double stopped_at, failed_at, lost_at, saved_at; /* INFINITY: not yet */
    double killed_at;                                /* with `killed` */
    bool terminated, killed, under_grid_engine;
    double peer_timeout;    /* the ranks' */
    char *output_dir;       /* the command's; NULL: it has none */
    double begun, max_time; /* the command's --max-time, which counts from the first start; 0: none */
    double time_left;       /* the rest of it at this start, the same for all ranks */
    Faults faults;
} Launch;

/* The outcome of a start. */
typedef struct {
    int code;   /* the launcher's exit code */
    bool again; /* another start may help */
    int rank;   /* whose end is the outcome; −1: a host's loss, or nobody knows whose memory is damaged */
    char host[256];
    char what[1024]; /* one line: rank, host, signal */
} Outcome;

/* Finds the outcome; marks lost hosts. */
void outcome_find(Launch *l, Outcome *o);
/* The next rank behind *rank (at first −1) that was lost beside the one of the outcome: killed or frozen, before it
   noticed another's loss. False: no more. */
bool outcome_also(const Launch *l, const Outcome *o, int *rank, Outcome *also);
/* Adds these ranks to the outcome's text. */
void outcome_name_all(const Launch *l, Outcome *o);
/* Records the outcome of a start if it is a fault, and prints a summary at the job's end; both leave out a launch that
   never had the folder, because another process used it. faults_end_start counts starts without progress. faults_turn
   sums up the last command once a rank of this one trains, and so holds the folder's lock. All but faults_end_start and
   faults_turn need an output_dir. */
void faults_begin(Launch *l);
void faults_turn(Launch *l);
void faults_add(Launch *l, const Outcome *o);
void faults_end_start(Launch *l);
void faults_end(Launch *l);

/* An exit code that is neither success nor the consequence of a stop or a lost peer. */
bool outcome_is_failure(int code);

/* Reads the signals of this process, and passes them on to the ranks. */
void launch_take_signals(Launch *l);
/* The name that ranks find (comm/meet/world.c). */
void launch_world(const Launch *l, World *world);
/* Raises the limit on open files as far as it may. E_FAIL: it stays below the need of a process of so many ranks. */
Status launch_check_files(int ranks);
/* Starts agents and ranks. E_STOPPED: a signal came before. */
Status launch_start(Launch *l);

/* Sends its orders to an agent, number `node` of those with ranks; the last is "go". */
void orders_send(Launch *l, Remote *r, int node);
/* Seconds of silence after which launcher or agent is lost. */
double launch_silence(const Launch *l);

/* `cairn launch -- @probe`: a rank of --probe. */
Status probe_run(const Config *c);
