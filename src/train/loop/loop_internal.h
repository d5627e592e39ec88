/* Inside the training loop: one step (loop_step.c), then saves, evaluations and stops between steps (loop_between.c).
 */
#pragma once

#include "report/report.h"
#include "train/job/job.h"
#include "train/keep/saving.h"
#include "train/keep/snapshots.h"
#include "train/measure/pace.h"
#include "train/measure/profile.h"
#include "train/ranks/ranks.h"

/* The shares of a step's sequences that a group of ranks (session_group) computes, in micro-batches (loop_shares.c). */
typedef struct {
    int group;          /* this rank's */
    int n, all;         /* shares of a group, and of all groups */
    int64_t most;       /* sequences of a share */
    SessionShare *each; // (n)
    int64_t *places;    // (batch_size) of the share that is divided
    int64_t *order;     // (n, most) places, micro-batch by micro-batch
    MicroRange *ranges; // (n, most) of a share's `order`
    RowCounts *rows;    // (n, most)
    float *scores;      // (batch_size) of a coupled step's rows of data; NULL: it has none
} LoopShares;

typedef struct {
    Run *run;
    TrainProgress *progress; /* the run's */
    Ranks *ranks;            /* NULL: one */
    Snapshots *snapshots;    /* NULL: none */
    bool behind;             /* resumed from memory; the disk has an older state, or none, until the first save */
    struct Audit *audit;     /* NULL: none */
    bool excluded;           /* the audit excluded a rank: all ranks are here, and the run ends */
    bool persisted;          /* a rank was lost, and this one saved its state */
    Saving *saving;
    Metrics *metrics; /* this and the next: of rank 0, else NULL */
    Progress *display;
    Pace *pace;
    Sampling *sampling;  /* of this rank's GPU; NULL: none */
    Profile *profile;    /* NULL: none */
    StepRecord record;   /* of the last step here */
    StepDigests digests; /* of the step that runs */
    MicroBatch micro;
    /* the step's sequences: index into examples, (batch_size) */
    const Examples *examples;
    int64_t *index;
    LoopShares shares;
    int64_t n_seqs, n_tokens, n_masked; /* of the step, on all ranks */
    double weight; /* of its sequences with a label, 1 each without --class-weights: the loss is their weighted mean */
    LossScaling before;                                 /* fp16: before the step */
    int64_t first_step;                                 /* of this process */
    int64_t saved_step;                                 /* of the newest save that this process began */
    double last_save, slowest_step, slowest_evaluation; /* seconds */
    double save_again;                                  /* time of the retry after a failed save; 0: none failed */
    double step_s;                                      /* of a step: a moving mean */
    double trained_s, began;                            /* in training before this process; clock when it began */
    double last_look;                                   /* for --persist-file */
    bool persist_refused; /* it names a file that is no empty request; the warning was logged */
} Loop;

/* A loop that begins after the run's progress, without files. */
void loop_open(Loop *l, Run *run);
void loop_free(Loop *l);
/* Sequences that training has seen before this batch. */
int64_t loop_samples_before(const Run *r, int64_t batch);

/* ---- the gradients of a step ---- */
/* Gradients of the next batch, summed over all ranks. Under --audit they are computed again after a difference; E_PEER
   with l->excluded: a rank is excluded. */
Status loop_gradients(Loop *l);
/* Collective. The batch that loop_gradients took again: see session_find_bad. */
Status loop_find_bad(Loop *l);
void loop_open_shares(Loop *l);
void loop_close_shares(LoopShares *s);
/* A group's shares of the batch. */
SessionStep loop_take_shares(Loop *l, int group);

/* ---- one step ---- */
/* In fp16 stats->finite may be 0: the update was skipped, and training continues with a smaller loss scale. E_STOPPED:
   the step is lost, the state before it is whole. */
Status loop_step(Loop *l, Stats *stats);
/* Collective. Counts and records the step, and compares digests. A skipped one (fp16) consumes its batch, but `step`
   counts updates (contracts.md 3). */
Status loop_record(Loop *l, const Stats *stats, double seconds);

/* ---- between steps ---- */
/* This rank's votes for the end of the step that runs. Rank 0 alone reads the clock. */
void loop_vote(Loop *l);
/* Seconds in training, all processes of the run; of rank 0. */
double loop_trained(const Loop *l);
/* Saves, and returns when the checkpoint is durable. Collective. */
Status loop_save(Loop *l);
/* On one rank alone: see saving_open_alone. It takes the place of l->saving. */
Status loop_save_alone(Loop *l, const char *folder, CheckpointFill *fill, void *context);
/* E_STOPPED after a durable save, where a signal, --max-time or --persist-file asks for it. */
Status loop_stop_if_asked(Loop *l);
Status loop_evaluate_if_due(Loop *l);
/* Collective. Each 1000 steps: LayerNorms may need other forms, and so another plan. */
Status loop_check_forms(Loop *l);
/* Forms, evaluation, snapshot and save, each if it is due. */
Status loop_between_steps(Loop *l);
