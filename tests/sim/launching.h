/* Between the files of launcher and agents. */
#pragma once

#include "launch/sites.h"
#include "launch/wire.h"
#include "sim.h"

#define GRACE_S 30.0 /* from an agent's loss of its launcher to its ranks' SIGKILL */

struct Agent {
    AgentState state;
    int first, n;                            /* ranks */
    bool ended[SIM_RANKS], asked[SIM_RANKS]; // (n) asked: it got SIGTERM
    Proc *ranks[SIM_RANKS];                  // (n)
    Proc *idle[SIM_RANKS + SIM_STANDBYS];    // (n_idle) that wait without a rank; some have ended
    int n_idle;
    bool acting;               /* its actions are being performed */
    bool deaf;                 /* the launcher reads nothing of it any more */
    bool closed;               /* it was told so, and not only lost the launcher by its silence */
    bool ordered;              /* the launcher has ordered to kill the ranks */
    double hello_at;           /* when it is ready; INFINITY: it has said so */
    double lost_at, killed_at; /* INFINITY: not yet */
    bool starting;             /* ranks: each gets what the others got before */
    int terms;                 /* SIGTERM to all ranks, but for that */
};

/* How an agent is started, and what of it the launcher has. */
typedef struct {
    bool orders;                    /* its input is open */
    bool runs;                      /* the local agent, or ssh, has yet to be reaped */
    double connect_at;              /* the next try; INFINITY: none */
    double pause;                   /* from a try to the next one */
    Proc *agent;                    /* NULL: not begun */
    Letter *waiting, **waiting_end; /* orders for an agent that has not begun */
    int reached;                    /* the answer of SAY_REACH; −1: none yet */
} Remote;

typedef enum {
    STAGE_AGENTS, /* they begin, and answer */
    STAGE_REACH,  /* an address for the rendezvous is tried */
    STAGE_RUNS,
    STAGE_ENDING, /* agents are ended */
    STAGE_PAUSE,
    STAGE_OVER
} Stage;

struct Launcher {
    LaunchState s;
    Proc *p;
    Sites sites;
    Site list[SIM_HOSTS];
    Remote remotes[SIM_HOSTS];
    Stage stage;
    bool acting;    /* actions of the machine are being performed */
    bool keepalive; /* agents are started by ssh, which notices a lost connection by itself */
    bool paused;    /* by SIGTSTP */
    int64_t wanted; /* --ranks */
    Status status;  /* of the start */
    bool impatient; /* the user has sent SIGINT twice, because nothing happens any more */
    int spins;      /* turns at the same time */
    double spun;
    int addresses;             /* to be tried for the rendezvous */
    bool judged;               /* of STAGE_ENDING: the machine knows, and has released those that do not go on */
    int code;                  /* then: the job's exit code; −1: another start follows */
    double until;              /* of STAGE_REACH, and of STAGE_ENDING */
    double poll;               /* of STAGE_ENDING: until the next look */
    int signals[8], n_signals; /* that came in STAGE_ENDING */
    /* the rendezvous */
    Proc *came[SIM_RANKS]; // (s.n_ranks)
    int n_came;
    double round_until;
    bool round_over, round_failed;
    /* for the checks, of a start */
    double first_loss, first_stop, first_saved, met_at; /* as the launcher knows */
    int interrupts;
    bool asked; /* ranks were sent SIGTERM */
};

static inline int host_of_launcher(void) { return w.schedule.here ? 0 : w.schedule.hosts; }

/* ---- launcher.c ---- */

void launcher_tell(Launcher *l, LaunchEvent e);
void launcher_close_orders(Launcher *l, int h);
void launcher_close_rendezvous(Launcher *l);

/* ---- launcher_end.c ---- */

void launcher_find_outcome(Launcher *l);
/* Some hosts did not answer, or do not reach this one. */
void launcher_give_up_start(Launcher *l);
/* A signal came before the ranks began. */
void launcher_stop_start(Launcher *l);
void launcher_look_at_ending(Launcher *l);
void launcher_look_at_pause(Launcher *l);
/* Whether the local process that stands for an agent has ended by itself. */
bool launcher_agent_ended(const Launcher *l, int h);

/* ---- standby.c ---- */

int standby_of(int host); /* processes without a rank that begin there */
void standby_begin(Proc *agent);
/* One for a rank: first those that had one. NULL: none is left. */
Proc *standby_take(Agent *a);
/* All ranks of a later start have met: nobody waits where a process was begun, and it was soon. */
void standby_check_met(const Launcher *l);

/* ---- launcher_check.c ---- */

/* Where the invariants of the launcher are checked: before an event, before an action, behind each look at the time,
   when the verdict is there, and at the end. */
void launcher_notes(Launcher *l, const LaunchEvent *e);
void launcher_check_action(Launcher *l, const LaunchAction *a);
void launcher_check_time(const Launcher *l);
void launcher_check_verdict(const Launcher *l);
void launcher_check_code(const Launcher *l, int code);
/* True: nobody who could end this start is alive and able to. */
bool launcher_is_stuck(const Launcher *l);
