/* Between the files of the agent. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "launch/machine.h"
#include "launch/wire.h"

/* The pipes from a rank. */
enum { CHILD_STDOUT, CHILD_STDERR, CHILD_REPORTS, N_CHILD_PIPES };

typedef struct {
    int rank, local_rank;
    pid_t pid;
    bool alive;
    WireReader pipes[N_CHILD_PIPES]; /* fd −1: closed */
} Child;

typedef struct {
    WireReader orders;
    Buf outgoing;
    bool deaf;        /* our messages are not read */
    bool ended;       /* the launcher is gone */
    double lost_at;   /* since then */
    bool asked;       /* SIGTERM went to the ranks */
    bool killing;     /* SIGKILL too */
    uint64_t killed;  /* the kernel's count of kills for memory, when last read */
    bool asleep;      /* the launcher is suspended, and the ranks with it */
    double turned;    /* when this process last waited */
    double silence_s; /* a launcher that is silent for so long is lost; 0: only its end counts */
    bool direct;      /* AGENT_STDOUT and AGENT_STDERR are open */
    char *directory;
    char **arguments; // (n_arguments) of the program; arguments[0] is its name
    char **settings;  // (n_settings) "NAME=VALUE"
    Child *children;  // (n_children)
    int n_arguments, arguments_capacity, n_settings, settings_capacity, n_children, children_capacity, alive;
    Cores cores;
    Events events;
} Agent;

/* Starts a->children. */
Status agent_start_ranks(Agent *a);
