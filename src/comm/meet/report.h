/* Reports of a rank to the agent that started it, which forwards them to the launcher. */
#pragma once

#include <stdbool.h>

/* X(name, word) */
#define REPORT_LIST(X)                                                                                                 \
    X(REPORT_MET, "met")       /* all ranks have met: from then on each notices a lost rank by itself */               \
    X(REPORT_TRAINS, "trains") /* rank 0 begins to train, and so holds the lock of the run's folder */                 \
    X(REPORT_LOST, "lost")     /* the first loss that this rank knows of, perhaps by another one */                    \
    X(REPORT_SILENT, "silent") /* this rank itself did not hear, or reach, that one */                                 \
    X(REPORT_FROZEN, "frozen") /* the rank led the save, and was silent: it is killed after the others' end */         \
    X(REPORT_SAVED, "saved")   /* survivors have saved the state: the launcher need not wait for others */

typedef enum {
#define X(name, word) name,
    REPORT_LIST(X) N_REPORTS
#undef X
} Report;

/* Tells the agent, by an inherited pipe whose number is in CAIRN_REPORTS. Without one nobody is told, and a full pipe
   drops the report. Never waits. From any thread. `rank`: the one that the report is about (REPORT_MET,
   REPORT_TRAINS, REPORT_SAVED: -1); `silent`: REPORT_LOST's, false where the rank's process has ended. */
void report_to_agent(Report what, int rank, bool silent);

/* Reads a line of that pipe, without its newline. False: it is none. */
bool report_parse(const char *line, Report *what, int *rank, bool *silent);
