/* A whole job in one process and in virtual time: its launcher, agents and ranks, by the machines that decide for them
   (launch_state.h, agent_state.h, watch_state.h, votes.h, team_state.h), on hosts whose network delays, cuts and heals;
   processes that die, freeze and go on; disks that are slow or full; a scheduler that ends the job.

   What happens follows from a Schedule, which a seed draws or a text gives, so every failure can be shown again:
   `sim --seed N --trace`. After each event the invariants are checked; `must` reports the first one that is broken.

     world.c     time, processes, lines between them, faults
     schedule.c  schedules: drawn, as text, made smaller
     launcher.c, agent.c, rank.c, survivor.c   a driver for each machine, as thin as the product's
     standby.c   processes without a rank, which take a rank of a later start: no driver of the product does so yet
     disk.c      folders, their locks and checkpoints */
#pragma once

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/meet/report.h"
#include "comm/watch/watch_state.h"
#include "launch/agent_state.h"
#include "launch/launch_state.h"
#include "train/keep/team_state.h"
#include "train/ranks/votes.h"

enum { SIM_RANKS = 64, SIM_HOSTS = 9, SIM_FAULTS = 8, SIM_STANDBYS = 4 }; /* hosts: with one of the launcher alone */

/* ---- schedules ---- */

/* X(name, its word in texts): where a fault may strike, besides at a time. Most are those of test_at. */
#define POINT_LIST(X)                                                                                                  \
    X(POINT_TIME, "time")           /* `when` seconds after the job's begin */                                         \
    X(POINT_LOAD, "load")           /* before a rank reads the state */                                                \
    X(POINT_STEP, "step")           /* before a step; `nth`: the step */                                               \
    X(POINT_SUM, "sum")             /* in the step's sum of gradients */                                               \
    X(POINT_PART, "part")           /* before a rank writes its part of a checkpoint */                                \
    X(POINT_NAME, "name")           /* before a checkpoint gets its name */                                            \
    X(POINT_PRUNE, "prune")         /* before older checkpoints are removed */                                         \
    X(POINT_MEET, "meet")           /* before a survivor announces itself */                                           \
    X(POINT_ANNOUNCED, "announced") /* behind that */                                                                  \
    X(POINT_FOLLOW, "follow")       /* before it follows another one */                                                \
    X(POINT_LEAD, "lead")           /* the leader, with the folder's lock */                                           \
    X(POINT_PLANNED, "planned")     /* it has sent the plan */                                                         \
    X(POINT_WRITE, "write")         /* before a survivor writes its part */                                            \
    X(POINT_WROTE, "wrote")         /* behind that */                                                                  \
    X(POINT_GATHERED, "gathered")   /* the leader has all parts */                                                     \
    X(POINT_OVER, "over")           /* a survivor's save has ended */                                                  \
    X(POINT_EXIT, "exit")           /* before a rank ends */

typedef enum {
#define X(name, word) name,
    POINT_LIST(X)
#undef X
        N_POINTS
} Point;

/* X(name, its word, what its target is: r rank, h host, l launcher, a agent of a host, - none) */
#define FAULT_LIST(X)                                                                                                  \
    X(FAULT_KILL, "kill", 'r')                                                                                         \
    X(FAULT_FREEZE, "freeze", 'r') /* for `seconds`; INFINITY: for ever */                                             \
    X(FAULT_FAIL, "fail", 'r')     /* the rank ends with 1, and says so */                                             \
    X(FAULT_DESERT, "desert", 'r') /* it leaves in order, without a word */                                            \
    X(FAULT_HANG, "hang", 'r')     /* it beats, but does not end its present work for `seconds` */                     \
    X(FAULT_SIGNAL, "signal", 'r') /* the rank alone gets `number` */                                                  \
    X(FAULT_FULL, "full",                                                                                              \
      'r') /* what it writes for `seconds` fails; `number` 1: its parts in a save of survivors are wrong */            \
    X(FAULT_SLOW, "slow", 'r') /* what it writes for `seconds` takes `number` times as long */                         \
    X(FAULT_KILL_AGENT, "kill-agent", 'a')                                                                             \
    X(FAULT_FREEZE_AGENT, "freeze-agent", 'a')                                                                         \
    X(FAULT_HOST, "down", 'h') /* it is gone, and back after `seconds` */                                              \
    X(FAULT_CUT, "cut", 'h')   /* nothing passes to and from `other`, −1: all, for `seconds` */                      \
    X(FAULT_KILL_LAUNCHER, "kill-launcher", 'l')                                                                       \
    X(FAULT_FREEZE_LAUNCHER, "freeze-launcher", 'l')                                                                   \
    X(FAULT_SIGNAL_LAUNCHER, "signal-launcher", 'l')                                                                   \
    X(FAULT_SCHEDULER, "end-job", '-') /* SIGTERM to the launcher, `number` 1: to all; `seconds` later SIGKILL */

typedef enum {
#define X(name, word, target) name,
    FAULT_LIST(X)
#undef X
        N_FAULT_KINDS
} FaultKind;

typedef struct {
    FaultKind kind;
    int target, other, number;
    double seconds;
    Point at;
    double when; /* POINT_TIME */
    int by, nth; /* else: at the point of rank `by` (−1: any), when it comes there for the nth time, from 0 on; of
                    steps: step nth */
    int seen;    /* in this run: how often a rank came to its point */
    bool struck;
} Fault;

typedef struct {
    uint64_t seed;   /* of what is not said here: delays, times of work */
    int hosts, each; /* hosts with ranks; ranks of a host */
    bool here;       /* the launcher runs on host 0; else on host number `hosts`, which has no rank */
    bool shared;     /* all hosts see the run's folder; else host 0 alone */
    bool scattered;  /* no rank has the whole state; rank r has slice r of as many as there are ranks */
    bool all;        /* --ranks asks for the ranks of all hosts; else a start has those of the hosts that are there */
    bool copies;     /* and, where scattered, that of the next rank */
    int standby;     /* processes without a rank, spread over the hosts; survivors that have saved wait beside them */
    int steps, save_every, keep, restarts; /* save_every 0: only at the end */
    double step_s, write_s;                /* of a step's work; of writing a checkpoint or a part */
    double timeout;                        /* --peer-timeout */
    double delay;                          /* of a letter between hosts, at most */
    Fault faults[SIM_FAULTS];
    int n_faults;
} Schedule;

void schedule_draw(Schedule *s, uint64_t seed);
/* Words and numbers, such as "hosts 2 each 2 timeout 6; kill 3 @ 4.5; freeze 0 for 60 @ lead 0". What is missing is as
   in a small quiet job. False, with a message: not understood. */
bool schedule_parse(Schedule *s, const char *text);
/* Allocated. */
char *schedule_text(const Schedule *s);
/* A smaller one that fails, too. */
void schedule_shrink(Schedule *s);

/* ---- processes ---- */

typedef enum { PROC_LAUNCHER, PROC_AGENT, PROC_RANK, PROC_IDLE } ProcKind; /* idle: without a rank */
typedef struct Proc Proc;
typedef struct Launcher Launcher;
typedef struct Agent Agent;
typedef struct Trainer Trainer; /* a rank */

typedef enum {
    SAY_CLOSED, /* the other side has closed the line, or has ended */
    /* between ranks */
    SAY_CARD, /* proves that the sender is of this start: WATCH_MET */
    SAY_BEAT,
    SAY_BYE,
    SAY_LOSS,     /* loss */
    SAY_VOTE,     /* votes */
    SAY_DECISION, /* votes; data: all_own_s */
    SAY_ENDED,
    SAY_SURVIVOR, /* data */
    /* a rank to its agent, over a pipe; the agent to the launcher */
    SAY_REPORT, /* rank, report, about, silent */
    /* an agent to the launcher */
    SAY_HELLO,
    SAY_ALIVE,  /* both ways */
    SAY_END,    /* rank, code, number: a signal */
    SAY_STANDS, /* rank, which has saved, and its process waits; a rank to its agent, too */
    /* the launcher to an agent */
    SAY_AGAIN, /* number: the start that begins, for which the agent goes on */
    SAY_RANKS, /* the ranks begin: rank is the first, number their number */
    SAY_SIGNAL,
    SAY_KILL,
    SAY_REACH, /* and back: number 1: the agent's host can connect to the launcher's */
    /* a rank to the rendezvous, and back */
    SAY_COME, /* rank */
    SAY_GO    /* all have come; number 0: they have not, in time */
} Word;

typedef struct Letter {
    struct Letter *next;
    Proc *from, *to;
    Word word;
    int rank, about, number, code;
    bool silent;
    Report report;
    Loss loss;
    VotesMessage votes;
    char *data; // (size) of the world's memory
    size_t size;
} Letter;

typedef struct {
    Proc *peer;               /* NULL: there is no line */
    double last;              /* arrival of the last letter from the peer */
    bool closed;              /* by this side */
    Letter *held, **held_end; /* from the peer, behind a cut */
} Line;

struct Proc {
    ProcKind kind;
    int start; /* the job's starts are counted from 1 on; of the launcher 0 */
    int host, rank;
    int born;    /* the start in which the process began; it may have been another Proc then */
    Proc *again; /* what it goes on as, with a rank or without one: this Proc has ended; NULL: nothing */
    enum { PROC_RUNS, PROC_FROZEN, PROC_DEAD } life;
    double begun, since;        /* since: frozen or dead */
    double frozen_s, thawed;    /* seconds of earlier freezes; the end of the last one, -INFINITY: none */
    int code, signal;           /* how it ended */
    double wake;                /* when `time` is called; INFINITY */
    uint64_t token, freezes;    /* of the next `time`; of the end of a freeze */
    Line *lines;                // (ranks + hosts + 1) by place_of
    Letter *inbox, **inbox_end; /* that came while it was frozen */
    int signals[8], n_signals;  /* the same */
    bool told, vanished; /* its parent knows that it has ended; its host has gone down, so nothing of it arrives */
    Proc *parent;
    union {
        Launcher *launcher;
        Agent *agent;
        Trainer *trainer;
    };
};

/* What a process does when something happens to it. `hears` gets each letter; `time` is called at `wake`, and when the
   process begins or goes on; `signalled` gets TERM, INT, USR1, USR2 and HUP, TSTP and CONT. `child` of an agent: its
   rank has ended. */
typedef struct {
    void (*hears)(Proc *p, const Letter *l);
    void (*time)(Proc *p);
    void (*signalled)(Proc *p, int number);
    void (*child)(Proc *p, Proc *child);
} Behaviour;
extern const Behaviour launcher_behaviour, agent_behaviour, rank_behaviour, idle_behaviour;

/* It begins now, on a host that is up. */
Proc *proc_begin(ProcKind kind, int host, int start, int rank, Proc *parent);
/* Its next `time`; the earlier of several calls counts until then. */
void proc_wake(Proc *p, double at);
/* It ends by itself, or by a signal, also where it is frozen. What it has said arrives, then SAY_CLOSED at all its
   lines. An agent's ranks are killed with it. Its locks are released. */
void proc_end(Proc *p, int code, int signal);
/* SIGKILL, SIGSTOP and SIGCONT do what they do; others reach `signalled`. */
void proc_signal(Proc *p, int number);
void proc_freeze(Proc *p, double seconds);
static inline bool proc_runs(const Proc *p) { return p && p->life == PROC_RUNS; }

/* Opens a line of both directions, if they have none. */
void line_open(Proc *a, Proc *b);
/* In order on each line. Dropped where the line is closed by one side. */
void say(Proc *from, Proc *to, Letter l);
/* SAY_CLOSED behind what was said. */
void line_close(Proc *from, Proc *to);
bool is_cut(int host, int other); /* now, or one of them is down */
/* Seconds until now, in which the process was frozen, dead, or cut off from the other one: what that one may have heard
   nothing for. */
double silent_s(const Proc *p, const Proc *to);
/* At times one of them may not have heard the other for a while: a freeze or a cut. Sticky: of cuts also in later
 * starts. */
bool troubled(const Proc *a, const Proc *b);

/* Strikes with the faults of this point. True: the process does not come to what follows, now (frozen: its `time` is
   called later, and comes here again without these faults) or ever. */
bool point(Proc *p, Point at, int number);

/* ---- the world ---- */

typedef struct {
    Schedule schedule;
    uint64_t random;
    double now;
    int starts;
    Proc **procs; // (n_procs) of all starts
    int n_procs, cap_procs;
    Proc *launcher;
    Proc *ranks[SIM_RANKS];   // (n_ranks) of the newest start
    Proc *idle[SIM_STANDBYS]; // (schedule.standby) as they began
    Proc *agents[SIM_HOSTS];  /* of the newest start; NULL: none */
    int n_ranks;
    bool down[SIM_HOSTS], cut[SIM_HOSTS][SIM_HOSTS];
    double cut_at[SIM_HOSTS][SIM_HOSTS], healed[SIM_HOSTS][SIM_HOSTS], cut_s[SIM_HOSTS][SIM_HOSTS];
    double disturbed;          /* the last fault that struck, or the end of one */
    bool kinds[N_FAULT_KINDS]; /* that have struck */
    int exit_code;             /* of the launcher; −1: none yet */
    Buf story;                 /* what happened, in a line: the outcome of each start, the end */
    bool trace, failed;
    char failure[512];
    uint64_t events;
} Sim;
extern Sim w;

/* Runs it to its end. False: an invariant is broken, as w.failure says. w.story is there until the next run. */
bool sim_run(const Schedule *s, bool trace);

/* Zeroed memory until the end of the run. */
void *sim_alloc(size_t size);
double uniform(double low, double high);
bool chance(double p);
int pick(int n);
Proc *start_rank(int start, int rank); /* NULL: none */

/* Ends the run, which has failed. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define must(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) sim_fail(__VA_ARGS__);                                                                       \
    } while (0)
/* A line of --trace. */
void trace_line(const Proc *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define trace(p, ...)                                                                                                  \
    do {                                                                                                               \
        if (w.trace) trace_line(p, __VA_ARGS__);                                                                       \
    } while (0)
void story(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- launcher.c, agent.c ---- */

/* The launcher begins. When the job is over it ends with its exit code. */
void launcher_open(void);
void launcher_close(void); /* frees; the run is over */
void launcher_check_end(void);
void agent_free(Agent *a);

/* ---- standby.c ---- */

/* The process goes on as another one, which is frozen where it was. For all others `p` has ended with 77. */
Proc *proc_go_on(Proc *p, ProcKind kind, int start, int rank);
Proc *proc_last(Proc *p); /* takes NULL */
/* The rank, or the process without one, of this number as it began; NULL: none. */
Proc *standby_target(int number);
void standby_stand(Proc *rank);
void standby_check_end(void);

/* ---- rank.c, survivor.c ---- */

void trainer_free(Trainer *t);
/* A fault that a running rank itself must play: FAULT_FAIL, FAULT_DESERT, FAULT_HANG, FAULT_FULL, FAULT_SLOW. */
void trainer_struck(Proc *p, const Fault *f);
bool rank_ends(const Proc *p); /* it has nothing more to do than to end */
/* What must hold between ranks whose machines changed. Called behind each event of a rank. */
void rank_check(Proc *p);

/* ---- disk.c: the folder of the run (place −1) and spare ones (from 0 on) ---- */

enum { DISK_SPARES = SIM_RANKS, DISK_MAIN = -1 };

void disk_reset(void);
/* The system's lock of the folder, which a process holds until it ends or releases it. False: another one has it. */
bool disk_lock(Proc *p, int place);
void disk_release(Proc *p, int place);
void disk_forget(Proc *p); /* it has ended */
/* The newest good checkpoint of all folders that is of `least` or a later step; -1: none. */
int64_t disk_newest(int64_t least);
/* By a new start, with the lock of OUT: moves what spare folders have. False: a process holds one of the rest. */
bool disk_join(Proc *p);
/* A checkpoint of `step`, of `parts` parts, is begun by `p` in `place`; a part is written; the whole gets its name, and
   becomes durable; all but the `keep` newest up to it are removed. What must hold is checked in each. */
void disk_begin(Proc *p, int place, int64_t step, uint64_t parts);
void disk_write(Proc *p, int place, int64_t step, uint64_t parts, uint64_t content);
void disk_name(Proc *p, int place, int64_t step);
void disk_prune(Proc *p, int place, int64_t step, int keep);
bool disk_fails(const Proc *p);                     /* FAULT_FULL */
double disk_seconds(const Proc *p, double seconds); /* FAULT_SLOW */
