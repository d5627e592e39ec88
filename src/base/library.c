#include "base/library.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/status.h"

static _Thread_local const char *volatile inside;
static struct sigaction segv_before, abort_before;

/* Nothing here allocates or locks: the library may hold the allocator's lock. */
static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void end(const char *how)
{
    say("error: the system refused memory to the library ");
    say(inside);
    say(how);
    say("; " LIBRARY_ADVICE "\n");
    _exit(status_exit_code(E_MEMORY));
}

/* errno was cleared by library_enter, so that ENOMEM is of the library's own calls. */
static void take_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (inside && errno == ENOMEM && info->si_code != SI_USER) end(", which crashed");
    sigaction(number, number == SIGSEGV ? &segv_before : &abort_before, NULL);
    if (info->si_code <= 0) raise(number); /* else the access is repeated */
}

/* OpenMP exits where it cannot start a thread. */
static void take_exit(void)
{
    if (inside && (errno == ENOMEM || errno == EAGAIN)) end(", which exited");
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = take_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &segv_before);
    sigaction(SIGABRT, &action, &abort_before);
    atexit(take_exit);
}

void library_enter(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    inside = name;
    errno = 0;
}

bool library_leave(void)
{
    inside = NULL;
    return errno == ENOMEM;
}
