/* Signals from users and schedulers (docs/contracts.md 10). SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGHUP request a
   save and a stop; under Grid Engine SIGUSR1 requests a save alone. A SIGHUP that is ignored (nohup) stays so. A
   second SIGINT ends the process at once. */
#pragma once

#include <signal.h>

#include "base/events.h"

void signals_install(void);
/* The number of the signal that requested a stop; 0: none. For ExecOptions.stop and loops. */
const volatile sig_atomic_t *signals_stop(void);
bool signals_take_save(void); /* true once after each request to save alone */
/* A descriptor that is readable after a signal, until signals_heard; -1: there is none. It stays open. */
int signals_wake(void);
void signals_heard(void);
