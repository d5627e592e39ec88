/* Decides for an agent: when its ranks get SIGTERM and SIGKILL, whether its launcher is lost, and whether the kernel
   killed a rank for memory. A pure machine: the driver (agent.c) tells it events, and performs its actions. Times are
   seconds of clock_monotonic. */
#pragma once

#include "base/std.h"

typedef enum {
    AGENT_STARTED, /* a rank */
    AGENT_AGAIN,   /* another start begins, for which this agent goes on (launch_state.h) */
    AGENT_ENDED,   /* rank `child`; `killed`, `kills` and `limit` */
    AGENT_HEARD,   /* the launcher: there are new bytes */
    AGENT_GONE,    /* the launcher has ended, or reads nothing any more */
    AGENT_SIGNAL,  /* `number` is for all ranks: an order, or a scheduler's SIGTERM for every process of the job */
    AGENT_KILL,    /* an order */
    AGENT_TIME     /* everything that was there has been told */
} AgentEventKind;

typedef struct {
    AgentEventKind kind;
    int child, number;
    bool killed;    /* the rank by SIGKILL */
    uint64_t kills; /* the kernel's count of kills for memory then */
    size_t limit;   /* bytes that the host allows; 1: not known */
} AgentEvent;

typedef enum {
    AGENT_DO_SIGNAL, /* all ranks get `number` */
    AGENT_DO_KILL,   /* all ranks, and what they have started, are killed */
    AGENT_DO_TELL,   /* the launcher is told the end of rank `number`, with `limit` */
    AGENT_DO_BEAT    /* the launcher gets a sign of life */
} AgentActionKind;

typedef struct {
    AgentActionKind kind;
    int number;
    size_t limit; /* where the kernel killed the rank for memory: as that of the event; else 0 */
} AgentAction;

typedef struct {
    double silence; /* a launcher that is silent for so long is lost; 0: only its end counts */
    double grace;   /* from the loss of the launcher to SIGKILL */
    int alive;      /* ranks */
    bool lost;      /* the launcher */
    double lost_at; /* since then */
    bool asked;     /* SIGTERM went to the ranks */
    bool killing;   /* SIGKILL too */
    bool asleep;    /* the launcher is suspended, and the ranks with it */
    uint64_t kills; /* for memory, when last told */
    double heard, turned, beat_at;
    AgentAction *actions; // (n_actions)
    int n_actions, cap_actions;
    double wake; /* AGENT_TIME is due then at the latest */
} AgentState;

/* Begins zeroed, but for `silence`, `grace`, `kills` and `heard`. */
void agent_on(AgentState *s, const AgentEvent *e, double now);
/* The launcher is lost, and no rank is left. */
bool agent_is_done(const AgentState *s);
