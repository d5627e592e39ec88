/* Inside tasks/glue: the own state of a run of `cairn glue`. */
#pragma once

#include <signal.h>

#include "data/data.h"
#include "tasks/glue/glue.h"
#include "text/text.h"
#include "train/job/task.h"
#include "train/run/adopt.h"

typedef struct {
    const GlueSplit *split;
    GlueExamples raw;
    Examples examples;
    float *values;        // (count, labels) logits, then probabilities
    GlueScores scores;    /* the last evaluation's, only where labelled */
    double loss, seconds; /* likewise */
} GlueSplitData;

/* run->own. */
typedef struct {
    Adopted adopted; /* without training */
    GlueCustom custom;
    const GlueTask *task;
    GlueMetric best; /* chooses the best model, of the first dev split; with by_loss its loss does */
    bool by_loss;
    char *pair; /* columns of a GLUE task's pairs, as --text-columns has them; else NULL */
    Tokenizer *tokenizer;
    GlueSplitData train, splits[2 * GLUE_MAX_SPLITS];
    int n_splits;
    LoadedExamples loaded; /* train's, for the source */
} GlueRun;

/* Token sequences of a split, cut to max_length, with labels and scores. E_STOPPED if *stop becomes set. */
Status glue_tokenize(const GlueExamples *in, const GlueTask *task, Tokenizer *tokenizer, int max_length,
                     const volatile sig_atomic_t *stop, Examples *out);

/* --class-weights and --label-smoothing for train's examples. E_USAGE, E_FORMAT: a label has no weight. */
Status glue_weigh_classes(Run *r);

static inline bool glue_predicts(const Config *c) { return c->do_predict || *c->submission; }
/* ---- the order of a classifier's labels (labels.c) ---- */

/* from[i] (n_labels): which of the n names is the task's label i, in any case of letters. False where names are missing
   or differ: `from` is then undefined. */
bool glue_label_order(const GlueTask *task, char *const *names, int n, int *from);
/* Puts the classifier's rows of imported weights into the task's order, in the order of id2label in the config.json
   beside `path`. Warns if it does not name the task's labels. E_FORMAT, E_IO: that config.json cannot be read. */
Status glue_order_labels(const GlueTask *task, const char *path, const Model *model, float *weights);
/* For a use without training. E_FORMAT where the weights have no classifier of the task's labels, or the model has a
   head of another kind (import_problem). */
Status glue_check_import(const GlueTask *task, const char *model, const ImportReport *report);

/* ---- results (outcome.c) ---- */

/* Rows of the task's table. The first dev split picks the best model. */
Status glue_evaluate_during(Run *r, double *metric, Buf *text);
Status glue_evaluate(Run *r); /* all splits; writes predictions, and the submission if requested */
void glue_figures(const Run *r, EvalFigures *f);
void glue_members(const Run *r, Buf *json);
