/* Decides for the launcher: which agents and ranks are lost, when ranks are asked to end and when they are killed,
   whose fault a start's end was, and when and where the next one begins. A pure machine: the driver (command_launch.c,
   fleet.c) tells it events, and performs its actions. Times are seconds of clock_monotonic.

     LAUNCH_START ─▶ AGENTS ─▶ READY ─LAUNCH_PLACED─▶ RUNS ─▶ ENDED ─LAUNCH_AUDITED─▶ OVER ─LAUNCH_NEXT─▶ PAUSE or DONE
                        └──────── or LAUNCH_NO_START ────────────────────────────────▶ OVER               └─▶ START

   Live standby: with `standby`, agents and processes without a rank go on from one start to the next, which gives them
   its ranks. LAUNCH_STANDS, LAUNCH_DO_RELEASE and AGENT_AGAIN serve it; only tests/sim uses them so far. */
#pragma once

#include "comm/meet/report.h"
#include "launch/sites.h"

/* For tests they may change from one event to the next. */
typedef struct {
    double connect;  /* from the start of the agents to their answers */
    double retry[2]; /* at most, of a later start: [0] of a host, [1] of one that was lost before */
    double silence;  /* an agent that is silent for so long is lost */
    double notice;   /* from a rank's loss to the others' SIGTERM */
    double fail;     /* from a rank's failure to the others' SIGTERM */
    double save;     /* for survivors to save, after they must have noticed a loss */
    double saved;    /* for ranks to end after survivors have saved, or found them frozen, or where there is no state */
    double stop;     /* from a signal to the last rank's end */
} LaunchTimes;

/* A host in a start. */
typedef struct {
    int first_rank, n_ranks;
    bool met;     /* its agent has answered */
    bool lost;    /* or it takes no part */
    double heard; /* the last message of its agent */
} Host;

typedef struct {
    bool ended;
    int code, signal;    /* signal 0: it ended with code */
    size_t memory_limit; /* 0: not killed for memory; 1: unknown */
    double when;         /* it ended */
    bool aware;          /* it reported a loss */
    double silent_at;    /* when another rank first reported it as silent; INFINITY: none did */
    bool stuck;          /* a rank of its own host reported it as silent: it cannot be out of reach */
    bool led;            /* another rank reported that it led the save, and was silent */
} Rank;

typedef enum {
    LAUNCH_START,    /* agents are being started on the open sites */
    LAUNCH_HELLO,    /* `host`: its agent has answered */
    LAUNCH_HEARD,    /* `host`: of its agent there are new bytes */
    LAUNCH_GONE,     /* `host`: its agent has ended, or takes no orders, `why` */
    LAUNCH_PLACED,   /* the sites have their ranks, which begin now */
    LAUNCH_NO_START, /* the ranks of some hosts could not meet */
    LAUNCH_REPORT,   /* `rank` reports `report` about `about` */
    LAUNCH_END,      /* `rank` has ended, with `code`, `number` and `memory_limit` */
    LAUNCH_STANDS,   /* `rank` has saved, and its process waits for a rank of the next start. For the verdict: an end
                        with 77 */
    LAUNCH_FAILED,   /* an agent cannot do its work */
    LAUNCH_SIGNAL,   /* this process received `number` */
    LAUNCH_AUDITED,  /* what the run's folder says after the ranks' end: `rank` is excluded, `about` damaged (-1: none)
                      */
    LAUNCH_NEXT,     /* the outcome is recorded; `trained` seconds of training count so far */
    LAUNCH_TIME      /* everything that was there has been told */
} LaunchEventKind;

typedef struct {
    LaunchEventKind kind;
    int host, rank, about, code, number;
    Report report;
    bool silent; /* REPORT_LOST: the lost rank is silent, else it has ended */
    bool folder; /* LAUNCH_AUDITED: the command has an output folder */
    size_t memory_limit;
    double trained;
    const char *why;
} LaunchEvent;

typedef enum {
    LAUNCH_DO_SIGNAL, /* all ranks get `number` */
    LAUNCH_DO_KILL,   /* all ranks are killed */
    LAUNCH_DO_WARN,   /* ranks are killed because they did not end in time */
    LAUNCH_DO_LOSE,   /* `number` is a host: nothing is read of its agent any more, `why` */
    LAUNCH_DO_BEAT,   /* all agents get a sign of life */
    LAUNCH_DO_PAUSE,  /* this process stops itself (SIGSTOP) */
    LAUNCH_DO_RELEASE /* `number` is a host: its agent ends, and the processes that wait there */
} LaunchActionKind;

typedef struct {
    LaunchActionKind kind;
    int number;
    const char *why;
} LaunchAction;

typedef enum {
    PHASE_AGENTS, /* agents have yet to answer */
    PHASE_READY,  /* ranks can be placed */
    PHASE_RUNS,
    PHASE_ENDED, /* all ranks have ended, or are on lost hosts */
    PHASE_OVER,  /* the verdict is there */
    PHASE_PAUSE,
    PHASE_START, /* the next start may begin */
    PHASE_DONE
} LaunchPhase;

typedef enum {
    CAUSE_NONE,     /* all ended well */
    CAUSE_RANK,     /* the end of `rank` */
    CAUSE_EXCLUDED, /* --audit excluded `rank` */
    CAUSE_DAMAGE,   /* --audit found damaged memory, of `rank` if it is known */
    CAUSE_HOST,     /* the agent of `host` was lost */
    CAUSE_CUT_OFF,  /* the ranks of other hosts did not reach `host` */
    CAUSE_NO_START  /* hosts did not answer, or did not reach each other */
} Cause;

typedef struct {
    Cause cause;
    int code;       /* the launcher's exit code */
    int rank, host; /* -1: none */
    bool again;     /* another start may help */
} Verdict;

typedef struct {
    /* of the launch */
    Site *sites; // (n_hosts) the driver's; `ranks` is set by it, `open` and `lost_in` here
    int n_hosts;
    int64_t wanted; /* --ranks; 0: by the hosts */
    int64_t max_restarts;
    bool standby;           /* agents go on into the next start, and processes may wait there without a rank */
    bool under_grid_engine; /* where SIGUSR1 ends nothing */
    LaunchTimes times;
    LaunchPhase phase;
    int restarts, interrupts;
    int stop_signal; /* the first signal that asked for the end; 0: none */
    int fruitless;   /* starts in succession whose training did not advance */
    double trained;  /* seconds that counted after the last one */
    bool had_folder; /* rank 0 of a start began to train, and so held the lock of the run's folder */
    /* of a start */
    Host *hosts;  // (n_hosts)
    Rank *ranks;  // (n_ranks)
    bool *silent; // (n_ranks, n_ranks) the first did not hear the second. Itself: others did not, though it heard all
    int n_ranks, running;
    bool met, saved; /* a rank reported that all have met; that survivors have saved the state */
    bool failed;     /* an agent */
    bool terminated; /* ranks have SIGTERM */
    bool died;       /* the first loss was that of a rank which a signal ended, or of a host */
    double begun, stopped_at, failed_at, lost_at, saved_at, killed_at, last_end; /* INFINITY: not yet */
    double turned, beat_at, pause_until;
    Verdict verdict;
    /* for the driver, which performs and empties them */
    LaunchAction *actions; // (n_actions)
    int n_actions, cap_actions;
    double wake; /* LAUNCH_TIME is due then at the latest */
} LaunchState;

#define LAUNCH_SIGN_S 2.0 /* at most from one sign of life to the next, of ranks and agents */

/* The driver has set what is of the launch. */
void launch_on(LaunchState *s, const LaunchEvent *e, double now);
void launch_state_free(LaunchState *s); /* takes a zeroed one */

int launch_host_of(const LaunchState *s, int rank);
/* Behind the verdict: whether the agent of this host goes on into the next start, if there is one. */
bool launch_goes_on(const LaunchState *s, int host);
/* True: other ranks report it as silent, while it trained, if it reported nothing itself; else in the save. */
bool rank_is_frozen(const Rank *r);
/* By the launcher, because it did not end in time. */
bool rank_killed_late(const LaunchState *s, const Rank *r);
/* An exit code that is neither success nor the consequence of a stop or a lost peer. */
bool launch_is_failure(int code);
/* The next rank behind `rank` (at first -1) that was lost beside that of the verdict: killed or frozen, before it
   noticed another's loss. -1: no more. */
int launch_lost_beside(const LaunchState *s, int rank);

/* Between the files of the machine: verdict and next start. */
void launch_judge(LaunchState *s, const LaunchEvent *audited);
void launch_next(LaunchState *s, double trained, double now);
