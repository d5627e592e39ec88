/* A run's folder read back: run.json, metrics.jsonl, eval.jsonl. */
#pragma once

#include "report/report.h"

/* X(column, key): the figures of a step, as metrics.jsonl names them. */
#define STEP_LIST(X)                                                                                                   \
    X(NUMBER, "step")                                                                                                  \
    X(LOSS, "loss")                                                                                                    \
    X(RATE, "lr")                                                                                                      \
    X(SEQUENCES, "seq_per_s")                                                                                          \
    X(PEAK, "peak_bytes")                                                                                              \
    X(WALL, "wall_s")                                                                                                  \
    X(TRAINED, "trained_s")                                                                                            \
    X(ACCURACY, "mlm_accuracy")                                                                                        \
    X(SKIPPED, "skipped")

typedef enum {
#define X(column, key) STEP_##column,
    STEP_LIST(X)
#undef X
        N_STEP_COLUMNS
} StepColumn;

/* Texts of a step, as they were written. */
typedef enum { STEP_LOSS_TEXT, STEP_GRADS, STEP_WEIGHTS, N_STEP_TEXTS } StepText;

/* A line of eval.jsonl. */
typedef struct {
    double step, value;
    char name[96]; /* "dev_matched accuracy" */
} EvalPoint;

typedef struct {
    bool finished;                  /* there is a run.json; else `s` has what the last step says */
    Json *doc;                      /* run.json; NULL: not finished */
    RunSummary s;                   /* points into doc and the arrays below */
    double *memory;                 /* (s.n_memory) */
    double *column[N_STEP_COLUMNS]; /* (n_steps) each; null and what a line lacks is NaN */
    char **text[N_STEP_TEXTS];      /* (n_steps) each; NULL: the line has no such digest */
    int n_steps;
    EvalPoint *evals; // (n_evals)
    int n_evals;
} RunRecord;

/* Reads a finished run: E_IO without run.json. */
Status run_record_read(const char *dir, RunRecord *r);
/* Reads any run that made a step. E_IO: the folder holds none. */
Status run_record_read_any(const char *dir, RunRecord *r);
void run_record_free(RunRecord *r); /* takes a zeroed one */

/* Model, device, precision, number of ranks and sequence length, as far as all finished ones of (n) runs share them: a
   line below a title. NULL is a run that is not finished. The caller frees. */
char *run_records_about(const RunRecord *const *runs, int n);

/* The exponential mean of 20 values of (n), over those that are numbers. The caller frees. */
double *run_record_smooth(const double *y, int n);

/* Fills s and memory from doc (summary.c). */
void run_record_summary(RunRecord *r);
