/* Runs side by side: a table with a column per run, and their curves. */
#pragma once

#include "faults/fault_record.h"
#include "report/record.h"
#include "report/table.h"

#define COMPARE_MOST 50 /* runs */

typedef struct {
    char *name; /* of its column */
    RunRecord r;
    const Json *config; /* its options, of run.json or of a checkpoint's state.json; NULL: unknown */
    Json *state;        /* owns `config` where run.json does not */
    FaultRecord faults;
} ComparedRun;

/* The last parts of the paths that tell them apart. The caller frees names[0] … */
void compare_names(char *const *paths, int n, char **names);
/* `absent`: its value in a run that lacks it, as those of older versions. */
bool compare_option_differs(const ComparedRun *a, const ComparedRun *b, const char *flag, const char *absent);
/* Rows of what the runs were, and of what they gave: steps, loss, evaluations, speed, memory. A zeroed table begins
   with a row of names. */
void compare_setup(const ComparedRun *runs, int n, Table *t);
void compare_figures(const ComparedRun *runs, int n, Table *t);
/* What all runs share, below titles. The caller frees. */
char *compare_about(const ComparedRun *runs, int n);

/* Draws each chart by `draw`; `file` is a name for it, "loss.svg". `equal`: all losses are the same bits. */
typedef Status (*CompareDraw)(void *context, const char *file, const Chart *chart);
Status compare_charts(const ComparedRun *runs, int n, bool equal, CompareDraw draw, void *context);
