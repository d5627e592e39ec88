/* Inside commands: the parts of `cairn sweep`. A grid is made of axes, each a flag and its values; every combination is
   a run of its own folder, OUT/flag=value_flag=value, which the same sweep finds again. */
#pragma once

#include "config/config.h"
#include "report/compare.h"

#define SWEEP_MOST 10000 /* runs */

typedef struct {
    char *flag; /* "batch-size" */
    char **values;
    int n, cap;
    bool of_launch; /* a flag of `cairn launch`, before its "--" */
} SweepAxis;

typedef enum {
    SWEEP_NEW,     /* or stopped: it runs, or runs on */
    SWEEP_DONE,    /* there is a run.json of these flags */
    SWEEP_TOO_BIG, /* 76 */
    SWEEP_FAILED,
    SWEEP_STOPPED
} SweepState;

typedef struct {
    char *name, *dir, *log; /* of its folder; the last two with --output-dir */
    int *at;                // (n_axes) index of the value on each axis
    Config c;               /* of its task */
    SweepState state;
    int group;         /* the number of the runs that differ by their seed alone */
    Buf kept;          /* flags with former defaults (config_keep_former) */
    char *message;     /* of a failure; NULL: none */
    int code;          /* exit code of a failure; 0: none */
    int64_t ranks;     /* of its launcher; without one, or where the launcher chooses, 1 */
    double planned;    /* bytes of the plan's peak; NaN: unknown */
    double host;       /* the same where `planned` is a device's: of the host; else NaN */
    RunRecord *record; /* of a done run; NULL: none */
} SweepRun;

typedef struct {
    const Config *c;
    char *const *words; // (n_words) the command and its flags
    int n_words;
    char *logs;  /* the folder that holds logs/: --output-dir, with --dry-run a temporary one */
    int task_at; /* the task's command among them: behind the "--" of `cairn launch` */
    Command command;
    SweepAxis *axes;
    int n_axes, axes_cap, seeds; /* `seeds`: the axis of --seed, −1: none */
    SweepRun *runs;
    int n_runs, n_groups;
} Sweep;

/* ---- sweep_grid.c ---- */
/* Axes from --vary; runs, and their configurations, which must be valid (E_USAGE). */
Status sweep_grid(Sweep *s);
void sweep_free(Sweep *s);
/* The words of a run's command line, from the program's name on. */
typedef struct {
    char **words; // (n)
    int n, cap;
} SweepWords;
SweepWords sweep_command(const Sweep *s, const SweepRun *r);
void sweep_add_word(SweepWords *w, char *word); /* takes it over */
void sweep_words_free(SweepWords *w);
/* Where a finished or begun run has a former default, all runs keep it, and it is logged. */
void sweep_keep_former(Sweep *s);
/* Whether its folder holds it, finished. E_USAGE: it holds a run with other flags. */
Status sweep_find_done(SweepRun *r);

/* ---- sweep_run.c ---- */
/* Plans every group of which a run is left: SWEEP_TOO_BIG where nothing fits. Any other failure is returned. */
Status sweep_plan(Sweep *s);
/* Makes the runs that are left, or run `only` (from 0) alone if that is not negative. E_STOPPED: a signal or --max-time
   came, or a run stopped by itself. */
Status sweep_run_all(Sweep *s, int only);

/* ---- sweep_result.c ---- */
/* Prints the table of groups, and writes sweep.csv, means.csv, charts and report.html into --output-dir, but with
   --dry-run. */
Status sweep_results(const Sweep *s);
