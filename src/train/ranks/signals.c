#include "train/ranks/signals.h"

#include <string.h>
#include <unistd.h>

static const int all[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};

static volatile sig_atomic_t stop, save, interrupts;
static bool grid_engine;

static void on_signal(int signal)
{
    if (signal == SIGINT && ++interrupts > 1) _exit(130); /* the last good checkpoint is whole */
    if (signal == SIGUSR1 && grid_engine)
        save = 1;
    else
        stop = signal;
}

void signals_install(void)
{
    struct sigaction action, before;
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

bool signals_take_save(void)
{
    bool asked = save;
    save = 0;
    return asked;
}
