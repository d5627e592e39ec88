/* Inside tasks/pretrain: a run of `cairn pretrain` from its shards to its results. */
#ifndef CAIRN_TASKS_PRETRAIN_RUN_H
#define CAIRN_TASKS_PRETRAIN_RUN_H

#include "data/shards.h"
#include "state/export.h"
#include "state/lock.h"
#include "tasks/pretrain/runlog.h"
#include "train/setup.h"
#include "train/start.h"
#include "train/train.h"

/* Over all sequences of the evaluation's shards. */
typedef struct {
    int64_t sequences, masked; /* masked words */
    double mlm_loss, mlm_accuracy, perplexity;
    double nsp_loss, nsp_accuracy; /* NaN without next-sentence prediction */
    double seconds;
} PretrainResult;

/* Everything of one run. Zeroed at its start; command_pretrain frees what there is. */
typedef struct {
    const Config *c;
    double started;
    Ranks *ranks; /* NULL: one */
    bool train, evaluate;
    int64_t predictions; /* masked positions a sequence may have */
    StartText text;
    Model model;
    Shards *shards, *eval_shards;
    double mean_length; /* tokens of a sequence */
    int64_t eval_samples;
    Setup setup;
    Session session;
    Schedule schedule;
    FolderLock lock;
    Buf fingerprint, config_json;
    uint8_t *norm_forms; /* (2·layers + 1) */
    ExportFile files[EXPORT_MAX_FILES];
    int n_files;
    TrainProgress progress;
    PretrainResult result; /* of the last evaluation */
    bool reached;          /* --target-mlm-accuracy */
    char *carried;         /* --moments carried: the checkpoint they are of */
    RunLog *log;           /* NULL: --log-format plain */
} PretrainRun;

/* All of eval_shards, without dropout. E_STOPPED if a signal came. Collective: each rank runs its share, and gets the
   figures of all. */
Status pretrain_evaluate(PretrainRun *r);
/* Sequences in so many batches of training. */
int64_t pretrain_samples(const PretrainRun *r, int64_t batches);
/* TrainEvaluate and TrainKeepBest; the context is the PretrainRun. */
Status pretrain_evaluate_during(void *context, Metrics *metrics, int64_t step, double *metric, Buf *text);
Status pretrain_keep_best(void *context, int64_t step, double metric);
void pretrain_export_text(const PretrainRun *r, ExportText *text);
/* eval_results.json and .txt. */
Status pretrain_write_results(const PretrainRun *r);
/* eval_results.json is there, and of these very shards. */
bool pretrain_results_there(const PretrainRun *r);
/* One line for people. */
void pretrain_describe(const PretrainResult *result, Buf *text);

/* What --eval-samples says: sequences between evaluations; 0: none. */
Status pretrain_eval_samples(const Config *c, int64_t *samples);

#endif
