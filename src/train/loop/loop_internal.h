/* Inside the training loop: one step (loop_step.c), then saves, evaluations and stops between steps (loop_between.c).
 */
#ifndef CAIRN_TRAIN_LOOP_LOOP_INTERNAL_H
#define CAIRN_TRAIN_LOOP_LOOP_INTERNAL_H

#include "report/report.h"
#include "train/job/job.h"
#include "train/keep/saving.h"
#include "train/keep/snapshots.h"
#include "train/measure/pace.h"
#include "train/measure/profile.h"
#include "train/ranks/ranks.h"

typedef struct {
    Run *run;
    TrainProgress *progress; /* the run's */
    Ranks *ranks;            /* NULL: one */
    Snapshots *snapshots;    /* NULL: none */
    bool behind;             /* resumed from memory; the disk has an older state, or none, until the first save */
    struct Audit *audit;     /* NULL: none */
    bool excluded;           /* the audit excluded a rank: all ranks are here, and the run ends */
    bool persisted;          /* a rank was lost, and this one saved its state */
    Saving *saving;          /* this and the next two: of rank 0, else NULL */
    Metrics *metrics;
    Progress *display;
    Pace *pace;
    Sampling *sampling;  /* of this rank's GPU; NULL: none */
    Profile *profile;    /* NULL: none */
    StepRecord record;   /* of the last step here */
    StepDigests digests; /* of the step that runs */
    MicroBatch micro;
    /* the step's sequences: index into examples, order in micro-batches; (batch_size) each */
    const Examples *examples;
    int64_t *index, *order;
    MicroRange *ranges;
    int64_t n_seqs, n_tokens, n_masked;                 /* of the step, on all ranks */
    int64_t n_labelled;                                 /* its sequences with a label: the loss is their mean */
    int64_t *share;                                     /* with ranks: places of the share's sequences, (n_share) */
    int64_t n_share, n_micros;                          /* of the share that runs; may be 0 */
    struct LoopPipeline *pipeline;                      /* has the shares instead; NULL: no pipeline */
    LossScaling before;                                 /* fp16: before the step */
    int64_t first_step;                                 /* of this process */
    int64_t saved_step;                                 /* of the newest save that this process began */
    double last_save, slowest_step, slowest_evaluation; /* seconds */
    double save_again;                                  /* time of the retry after a failed save; 0: none failed */
    double step_s;                                      /* of a step: a moving mean */
    double trained_s, began;                            /* in training before this process; clock when it began */
    double last_look;                                   /* for --persist-file */
    bool persist_refused;                               /* its name is another file's, which was said */
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
Status loop_begin(Loop *l);         /* clears the gradients for the batch that loop_gradients took */
int64_t loop_shares(const Loop *l); /* virtual ranks that this rank computes; 1 without --virtual-ranks */
/* The micro-batches of number `k` of a rank's shares. */
void loop_take_share(Loop *l, int rank, int64_t k);
/* The micro-batches of a share, whose sequences are those at `places` (n): micro_split, or micro_split_grains. */
int64_t loop_split(const Loop *l, const int64_t *places, int64_t n, int64_t *order, MicroRange *ranges);
void loop_fill(Loop *l, int64_t m); /* l->micro, as that micro-batch */

/* ---- in a pipeline (loop_pipeline.c) ---- */
struct LoopPipeline *loop_pipeline_open(Loop *l); /* NULL: there is none */
void loop_pipeline_close(struct LoopPipeline *p); /* takes NULL */
/* Collective. In place of micro-batch after micro-batch. */
Status loop_pipeline_compute(Loop *l);
/* Collective. The step again: see session_find_bad_pipeline. */
Status loop_pipeline_find_bad(Loop *l);

/* ---- one step ---- */
/* In fp16 stats->finite may be 0: the update was skipped, and training continues with a smaller loss scale. E_STOPPED:
   the step is lost, the state before it is whole. */
Status loop_step(Loop *l, Stats *stats);
/* Counts and records the step. A skipped one (fp16) consumes its batch, but `step` counts updates (contracts.md 3). */
Status loop_record(Loop *l, const Stats *stats, double seconds);

/* ---- between steps ---- */
/* This rank's votes for the end of the step that runs. Rank 0 alone reads the clock. */
void loop_vote(Loop *l);
/* Seconds in training, all processes of the run; of rank 0. */
double loop_trained(const Loop *l);
/* Saves, and returns when the checkpoint is durable. Collective. */
Status loop_save(Loop *l);
/* The same on one rank alone, without the wait. */
Status loop_save_alone(Loop *l);
/* E_STOPPED after a durable save, where a signal, --max-time or --persist-file asks for it. */
Status loop_stop_if_asked(Loop *l);
Status loop_evaluate_if_due(Loop *l);
/* Collective. Each 1000 steps: LayerNorms may need other forms, and so another plan. */
Status loop_check_forms(Loop *l);
/* Forms, evaluation, snapshot and save, each if it is due. */
Status loop_between_steps(Loop *l);

#endif
