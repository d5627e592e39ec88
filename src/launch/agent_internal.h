/* Between the files of the agent. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "launch/agent.h"
#include "launch/agent_state.h"
#include "launch/machine.h"
#include "launch/wire.h"

/* The pipes from a rank. */
enum { CHILD_STDOUT, CHILD_STDERR, CHILD_REPORTS, N_CHILD_PIPES };

typedef struct {
    int rank, local_rank;
    pid_t pid;
    bool alive;
    int code, signal;                /* of its end; signal 0: it ended with code */
    WireReader pipes[N_CHILD_PIPES]; /* fd −1: closed */
} Child;

typedef struct {
    AgentState state;
    WireReader orders;
    Buf outgoing;
    bool deaf;   /* our messages are not read */
    bool direct; /* AGENT_STDOUT and AGENT_STDERR are open */
    char *directory;
    char **arguments; // (n_arguments) of the program; arguments[0] is its name
    char **settings;  // (n_settings) "NAME=VALUE"
    Child *children;  // (n_children)
    int n_arguments, arguments_capacity, n_settings, settings_capacity, n_children, children_capacity;
    Cores cores;
    Events events;
} Agent;

/* Tells the machine, and performs its actions. */
void agent_tell(Agent *a, const AgentEvent *e);
/* Starts a->children. */
Status agent_start_ranks(Agent *a);
