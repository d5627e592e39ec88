/* A run: from its configuration to its results, whatever the task (train/task.h). The steps of its life, and which of
   them are collective, are in run.c alone. */
#ifndef CAIRN_TRAIN_RUN_H
#define CAIRN_TRAIN_RUN_H

#include "base/lock.h"
#include "config/config.h"
#include "state/export.h"
#include "train/ranks/ranks.h"
#include "train/start.h"
#include "train/task.h"
#include "train/train.h"

struct Run {
    const Task *task;
    void *own;           /* the task's */
    const Config *c;     /* as given, or as the task replaced it */
    double started;      /* clock_monotonic at the start, for --max-time */
    const Config *given; /* as the user gave it */
    char started_at[32]; /* UTC */
    Buf hosts;           /* of all ranks: "node1 (4 ranks), node2 (4 ranks)" */
    Buf waited_for;      /* rank 0, after training: the rank that the others waited for; "" for none */
    Ranks *ranks;        /* NULL: one */

    /* The task sets these. */
    const char *name;          /* in run.json: "MNLI" */
    bool train, evaluate;      /* evaluates at the end, and with --eval-every or eval_samples while training, too */
    int64_t eval_samples;      /* evaluates after so many more sequences; 0: --eval-every alone */
    TokenizerFiles text;       /* start_text */
    Model model;               /* start_model */
    const char *const *labels; // (n_labels) names of classes for the exported config.json; NULL: none
    int n_labels;
    ModelUse use;         /* what the exported model says of its texts */
    ExampleSource source; /* only with `train` */

    char *carried;       /* --moments carried: the checkpoint whose weights and moments the run starts from */
    Config replaced;     /* then run->c, with that checkpoint as --model; also with defaults that the resumed run has */
    TrainResume resume;  /* the state in the output folder, if there is one */
    uint8_t *norm_forms; // (2·layers + 1), of the weights that the run starts from
    Setup setup;
    RateSchedule schedule;
    Session session;
    FolderLock lock;
    Buf fingerprint, config_json; /* in state.json. Rank 0's, and during training on all ranks */
    ModelFile files[EXPORT_MAX_FILES];
    int n_files;
    TrainProgress progress;
    struct Verify *verify; /* train/verify.h; NULL: a run of its own */
    bool reached;          /* task->reached: training ends before its last step */
};

/* The whole life of a run, with every message. */
Status run_task(const Config *c, const Task *task);
/* The same, or with `verify` not NULL: computes steps of another run again, whose options are `c`, and compares. Writes
   nothing. */
Status run_verify(const Config *c, const Task *task, struct Verify *verify);

/* Collective. Opens it, unless it is open. A task may need it earlier than the run. */
Status run_open_backend(Run *r);
/* Collective. Backend, schedule and plan of a task that is open: a step of run_task. */
Status run_make_plan(Run *r);
/* Rows that each sequence takes with --padded; 0: packed. */
int64_t run_padded_length(const Run *r);
bool run_first(const Run *r); /* this is rank 0 */
uint64_t run_checkpoint_bytes(const Run *r);
/* The tokenizer and the classes, for the export. */
ExportText run_export_text(const Run *r);

#endif
