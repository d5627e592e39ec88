#include "train/ranks/signals.h"

#include <sys/eventfd.h>
#include <unistd.h>

static const int all[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};

static volatile sig_atomic_t stop, save, interrupts;
static bool grid_engine;
static int waker = -1;

static void on_signal(int signal)
{
    const uint64_t one = 1;
    int error = errno;
    if (signal == SIGINT && ++interrupts > 1) _exit(130); /* the last good checkpoint is whole */
    if (signal == SIGUSR1 && grid_engine)
        save = 1;
    else
        stop = signal;
    if (write(waker, &one, sizeof one) < 0) errno = error;
}

void signals_install(void)
{
    struct sigaction action, before;
    if (waker < 0) waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    grid_engine = signals_under_grid_engine();
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool ignored = sigaction(all[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (all[i] != SIGHUP || !ignored) sigaction(all[i], &action, NULL); /* nohup ignores SIGHUP */
    }
    action.sa_handler = SIG_IGN; /* a closed pipe is an error of write, not the end */
    sigaction(SIGPIPE, &action, NULL);
}

const volatile sig_atomic_t *signals_stop(void) { return &stop; }

int signals_wake(void) { return waker; }

void signals_heard(void)
{
    uint64_t word;
    if (read(waker, &word, sizeof word) < 0) return; /* there was none */
}

bool signals_take_save(void)
{
    bool asked = save;
    save = 0;
    return asked;
}
