/* Inside tasks/squad: the own state of a run of `cairn squad`. */
#ifndef CAIRN_TASKS_SQUAD_RUN_H
#define CAIRN_TASKS_SQUAD_RUN_H

#include "tasks/squad/squad.h"
#include "train/job/task.h"
#include "train/run/adopt.h"

/* A file to evaluate. */
typedef struct {
    const char *name;   /* "dev" */
    const char *prefix; /* of its predictions' files: "", "test_" */
    bool labelled;
    SquadFile file;
    SquadWindows windows;
    float *logits; // (tokens, 2)
    double figures[N_SQUAD_METRICS], seconds;
} SquadSplit;

/* run->own. */
typedef struct {
    Adopted adopted; /* without training */
    Tokenizer *tokenizer;
    SquadWindows train;
    LoadedExamples loaded; /* train's, for the source */
    SquadSplit splits[2];  /* dev, test */
    int n_splits;
} SquadRun;

Status squad_evaluate_during(Run *r, Metrics *metrics, double *metric, Buf *text);
/* Evaluates all splits; writes eval_results.json and .txt, and the predictions. */
Status squad_evaluate(Run *r);

#endif
