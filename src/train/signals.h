/* Signals of people and schedulers (docs/contracts.md 10). SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask to save and stop;
   under Grid Engine SIGUSR1 asks to save and go on. A second SIGINT ends the process at once. */
#ifndef CAIRN_TRAIN_SIGNALS_H
#define CAIRN_TRAIN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

void signals_install(void);
/* Not 0 once a stop was asked for: the signal's number. For ExecOptions.stop and loops. */
const volatile sig_atomic_t *signals_stop(void);
bool signals_take_save(void); /* true once after each request to save and go on */
const char *signals_name(int signal);
bool signals_under_grid_engine(void);

#endif
