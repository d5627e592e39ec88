/* Preloaded into a rank: SIGRTMIN makes it end with exit code 1 at once, as after an error of its own. */
#include <signal.h>
#include <unistd.h>

static void leave(int number)
{
    (void)number;
    _exit(1);
}

__attribute__((constructor)) static void begin(void) { (void)signal(SIGRTMIN, leave); }
