/* Inside tasks/squad: the own state of a run of `cairn squad`. */
#pragma once

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

/* Rows of the task's table. */
Status squad_evaluate_during(Run *r, double *metric, Buf *text);
Status squad_evaluate(Run *r); /* all splits; writes the predictions */
void squad_figures_of(const Run *r, EvalFigures *f);
