/* An event loop: one thread waits for file descriptors, for a time, and for other threads that wake it. It lists them
   before each turn, so a closed descriptor needs no removal:

     events_begin(&e); events_add(&e, …); events_until(&e, …); events_wait(&e); events_react(&e); */
#pragma once

#include <poll.h>

#include "base/status.h"

/* `happened`: POLLIN, POLLOUT, POLLHUP … An earlier reaction of the turn may have closed `fd`. */
typedef void (*EventReaction)(void *arg, int fd, short happened);

typedef struct {
    struct pollfd *polls;       // (n); the first is the wake-up
    struct EventSource *source; // (n)
    int n, cap, wake;
    double until; /* clock_monotonic */
} Events;

Status events_init(Events *e);
void events_begin(Events *e);
/* A `react` of NULL only ends the wait. A negative `fd` is left out. */
void events_add(Events *e, int fd, short wanted, EventReaction react, void *arg);
void events_until(Events *e, double when); /* the wait ends then at the latest */
void events_wait(Events *e);               /* for the first event; meanwhile other threads may only call events_wake */
void events_react(Events *e);              /* calls the reactions, in the order of events_add */
void events_wake(Events *e);               /* from any thread: ends the wait, or the next one */
void events_free(Events *e);               /* takes a zeroed one */

/* Blocks these signals and returns a descriptor that is readable while one is pending. Negative, with errno, on
   failure. */
int signals_open(const int *numbers, int n);
/* Takes the next pending signal; 0: none. */
int signals_take(int fd);
const char *signals_name(int number); /* "SIGTERM"; of those that end no rank "a signal" */
bool signals_under_grid_engine(void); /* this process is of a job of Grid Engine */
