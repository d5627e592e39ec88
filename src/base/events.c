#include "base/events.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

struct EventSource {
    EventReaction react;
    void *arg;
};

Status events_init(Events *e)
{
    *e = (Events){.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (e->wake < 0) return fail(E_IO, "eventfd: %m");
    events_add(e, e->wake, POLLIN, NULL, NULL);
    return OK;
}

void events_begin(Events *e)
{
    e->n = 1;
    e->until = INFINITY;
}

void events_add(Events *e, int fd, short wanted, EventReaction react, void *arg)
{
    if (fd < 0) return;
    if (e->n == e->cap) {
        e->cap = e->cap ? 2 * e->cap : 16;
        e->polls = mem_resize(e->polls, (size_t)e->cap, sizeof *e->polls);
        e->source = mem_resize(e->source, (size_t)e->cap, sizeof *e->source);
    }
    e->polls[e->n] = (struct pollfd){.fd = fd, .events = wanted};
    e->source[e->n++] = (struct EventSource){react, arg};
}

void events_until(Events *e, double when)
{
    if (when < e->until) e->until = when;
}

void events_wait(Events *e)
{
    double left = e->until - clock_monotonic();
    uint64_t word;
    if (poll(e->polls, (nfds_t)e->n, left > 3600 ? 3600000 : left > 0 ? (int)(left * 1e3) + 1 : 0) < 0)
        for (int i = 0; i < e->n; i++) e->polls[i].revents = 0;
    if (e->polls[0].revents && read(e->wake, &word, sizeof word) < 0) log_debug("eventfd: %m");
}

void events_react(Events *e)
{
    for (int i = 1; i < e->n; i++)
        if (e->polls[i].revents && e->source[i].react)
            e->source[i].react(e->source[i].arg, e->polls[i].fd, e->polls[i].revents);
}

void events_wake(Events *e)
{
    uint64_t one = 1;
    if (write(e->wake, &one, sizeof one) != (ssize_t)sizeof one) log_debug("eventfd: %m");
}

void events_free(Events *e)
{
    if (e->polls) close(e->wake);
    MEM_FREE(e->polls, e->source);
    *e = (Events){0};
}

int signals_open(const int *numbers, int n)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < n; i++) sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int signals_take(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

const char *signals_name(int number)
{
    static const char *const names[NSIG] = {
        [SIGKILL] = "SIGKILL", [SIGTERM] = "SIGTERM", [SIGINT] = "SIGINT",   [SIGABRT] = "SIGABRT",
        [SIGSEGV] = "SIGSEGV", [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",   [SIGILL] = "SIGILL",
        [SIGHUP] = "SIGHUP",   [SIGUSR1] = "SIGUSR1", [SIGUSR2] = "SIGUSR2", [SIGXCPU] = "SIGXCPU"};
    return number > 0 && number < NSIG && names[number] ? names[number] : "a signal";
}

bool signals_under_grid_engine(void)
{
    const char *root = getenv("SGE_ROOT"), *job = getenv("JOB_ID");
    return root && *root && job && *job;
}
