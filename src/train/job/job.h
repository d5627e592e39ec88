/* A run, for all that happens between its start (train/run/run.h) and its end: its options and task, the plan, the
   session, where it resumes, how far it has come. */
#pragma once

#include "base/lock.h"
#include "config/config.h"
#include "data/data.h"
#include "optim/optim.h"
#include "report/stage_progress.h"
#include "state/checkpoint/checkpoint.h"
#include "state/models/export.h"
#include "state/snapshot/persist.h"
#include "text/tokenizer_files.h"
#include "train/job/setup.h"
#include "train/parts/place.h"
#include "train/ranks/ranks.h"
#include "train/session/session.h"

typedef struct Task Task; /* train/job/task.h */

/* Cost of the snapshots in memory (train/keep/snapshots.h), in this process. */
typedef struct {
    int64_t taken, every;              /* committed; steps between the last ones */
    double stalled_s, longest_stall_s; /* wait of training: in all, and for one */
    double processor_s, seconds;       /* of the thread, in all */
    uint64_t bytes;                    /* of the file */
} SnapshotStats;

/* Progress of the training: the part of a checkpoint beside the tensors. */
typedef struct {
    int64_t step, batch; /* updates made; global batches consumed */
    double loss_sum;     /* Σ of step losses since the start */
    double last_loss;
    double best_metric;            /* NaN: no evaluation gave a number yet, and best_step is 0 */
    int64_t best_step, since_best; /* since_best: evaluations behind it */
    int64_t evaluated;             /* the step of the last evaluation during training; 0: none yet */
    int64_t evaluated_samples;     /* sequences seen before that evaluation; negative: unknown, in an old state */
    bool finished;                 /* trained to the end */
    /* of this process, not saved */
    int64_t sequences, tokens;
    double seconds;      /* inside steps */
    double earlier_s;    /* rank 0: wall time of earlier processes of the run */
    size_t peak_bytes;   /* largest session_memory_used seen */
    double save_stall_s; /* longest wait of training for a save */
    SnapshotStats snapshots;
    Digest run; /* of the output folder, with ranks or snapshots (state/snapshot/snapshot.h) */
    int64_t snapshot_newest,
        snapshot_kept; /* generations: the newest seen; the one that this run resumed from, 0: none */
} TrainProgress;

/* What a run resumes from (train/keep/resume.h). */
typedef struct {
    char *dir;  /* the checkpoint's folder; NULL: nothing was found, or a snapshot */
    char *name; /* in messages: the folder, or "the snapshot of step 7 in /dev/shm" */
    TrainProgress progress;
    CheckpointSeen seen; /* its text and step, also of a snapshot; the rest is rank 0's */
    Json *state;         /* state.json; NULL: nothing was found */
    RunSnapshots memory; /* of this rank, with the snapshot's set, which is the same on all ranks; generation 0: none */
} Resume;
static inline bool resume_found(const Resume *r) { return r->state != NULL; }

/* Evaluations that are parts of one longer work, which has a progress line. */
typedef struct {
    StageProgress progress;
    int64_t done, count; /* texts before this part, and in it */
    double share, part;  /* of the input likewise; NaN: unknown */
} RunStage;

typedef struct Run {
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
    const char *metric;        /* that chooses the best model; NULL: without a name */
    bool train, evaluate;      /* evaluates at the end, and with --eval-every or eval_samples while training, too */
    int64_t eval_samples;      /* evaluates after so many more sequences; 0: --eval-every alone */
    TokenizerFiles text;       /* start_text */
    Model model;               /* start_model */
    const char *const *labels; // (n_labels) names of classes for the exported config.json; NULL: none
    int n_labels;
    ModelUse use;         /* what the exported model says of its texts */
    Buf data;             /* for the start's message: the data that were read (run_says) */
    ExampleSource source; /* only with `train` */

    char *carried;       /* --moments carried: the checkpoint whose weights and moments the run starts from */
    CheckpointSeen seen; /* rank 0's, of that checkpoint */
    Config replaced;     /* then run->c, with that checkpoint as --model; also with defaults that the resumed run has */
    Resume resume;       /* the state in the output folder, if there is one */
    uint8_t *norm_forms; // (2·layers + 1), of the weights that the run starts from
    Setup setup;
    RateSchedule schedule;
    Session session;
    FolderLock lock;
    Buf fingerprint, config_json; /* in state.json. Rank 0's, and during training on all ranks */
    ModelFile files[EXPORT_MAX_FILES];
    int n_files;
    TrainProgress progress;
    struct Verify *verify; /* train/loop/verify.h; NULL: a run of its own */
    RunStage *stage;       /* rank 0's; NULL: each evaluation has a line of its own */
    bool reached;          /* task->reached: training ends before its last step */
    int64_t tried;         /* steps that --fit-schedule made in this process and took back */
} Run;

/* Rows that each sequence takes with --padded; 0: packed. */
static inline int64_t run_padded_length(const Run *r) { return r->c->padded ? r->c->max_seq_length : 0; }
static inline uint64_t run_checkpoint_bytes(const Run *r)
{
    return checkpoint_bytes(&r->model.params, &r->setup.place->whole_kfac->saved);
}
/* Appends to the start's message; the first file of it has its path, further ones their name (run_file). */
#define run_says(r, ...) (buf_puts(&(r)->data, (r)->data.len ? "; " : ""), buf_printf(&(r)->data, __VA_ARGS__))
static inline const char *run_file(const Run *r, const char *path) { return r->data.len ? file_basename(path) : path; }
static inline bool run_first(const Run *r) { return ranks_first(r->ranks); } /* this is rank 0 */
/* Sequences of a row of data, which the user's --batch-size counts. */
static inline int64_t run_row_texts(const Run *r) { return r->c->batch_size / r->given->batch_size; }
static inline const char *run_rows(const Run *r) { return run_row_texts(r) > 1 ? "rows" : "sequences"; }
/* By --eval-every or eval_samples, which then choose a best model. */
static inline bool run_evaluates_while_training(const Run *r)
{
    return r->train && r->evaluate && (r->c->eval_every != 0 || r->eval_samples > 0);
}
/* The tokenizer and the classes, for the export. */
static inline ExportText run_export_text(const Run *r)
{
    return (ExportText){.vocab = r->text.vocab,
                        .tokenizer = r->text.options,
                        .labels = r->labels,
                        .n_labels = r->n_labels,
                        .use = r->use,
                        .embedding = r->model.head.kind == HEAD_EMBEDDING,
                        .files = r->files,
                        .n_files = r->n_files};
}
