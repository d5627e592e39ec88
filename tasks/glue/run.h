/* Inside tasks/glue: a run of `cairn glue` from its files to its results. */
#ifndef CAIRN_TASKS_GLUE_RUN_H
#define CAIRN_TASKS_GLUE_RUN_H

#include <signal.h>

#include "data/data.h"
#include "state/export.h"
#include "state/lock.h"
#include "tasks/glue/glue.h"
#include "text/text.h"
#include "train/setup.h"
#include "train/start.h"
#include "train/train.h"

/* What evaluating a split gave. */
typedef struct {
    int64_t examples;
    double metrics[GLUE_MAX_METRICS]; /* in the task's order; only where labelled */
    double best, loss, seconds;
} GlueResult;

/* Token sequences of a split, cut to max_length; labels and scores along. E_STOPPED if *stop becomes set. */
Status glue_tokenize(const GlueExamples *in, const GlueTask *task, const Tokenizer *tokenizer, int max_length,
                     const volatile sig_atomic_t *stop, Examples *out);

/* Logits (count, labels) of every example in file order, and the mean loss. Collective: each rank runs its share of the
   examples, and gets those of all. */
Status glue_forward(Session *s, const Examples *e, int64_t batch_size, int64_t padded_length,
                    const volatile sig_atomic_t *stop, float *values, double *mean_loss);

/* Rows of logits → probabilities, in place. */
void glue_softmax(float *values, int64_t rows, int labels);

/* ---- a run ---- */

typedef struct {
    const GlueSplit *split;
    GlueExamples raw;
    Examples examples;
    GlueResult result; /* after evaluation */
    float *values;     /* (count, labels) logits, then probabilities */
} GlueSplitData;

/* Everything of one run. Zeroed at its start; command_glue frees what there is. */
typedef struct {
    const Config *c;
    double started;
    Ranks *ranks; /* NULL: one */
    GlueCustom custom;
    const GlueTask *task;
    StartText text;
    Tokenizer *tokenizer;
    Model model;
    GlueSplitData train, splits[2 * GLUE_MAX_SPLITS];
    int n_splits;
    Setup setup;
    Session session;
    Schedule schedule;
    FolderLock lock;
    Buf fingerprint, config_json;
    uint8_t *norm_forms; /* (2·layers + 1), of the weights that the run starts from */
    ExportFile files[EXPORT_MAX_FILES];
    int n_files;
    TrainProgress progress;
} GlueRun;

static inline bool glue_predicts(const Config *c) { return c->do_predict || *c->submission; }
void glue_export_text(const GlueRun *r, ExportText *text);

/* TrainEvaluate and TrainKeepBest; the context is the GlueRun. The first dev split picks the best model. */
Status glue_evaluate_during(void *context, Metrics *metrics, int64_t step, double *metric, Buf *text);
Status glue_keep_best(void *context, int64_t step, double metric);
/* All splits, at the end; writes eval_results.json and .txt, predictions, and the submission where one is asked for. */
Status glue_evaluate_all(GlueRun *r);

#endif
