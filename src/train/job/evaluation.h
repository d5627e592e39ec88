/* Evaluation without dropout, in micro-batches. Each example's result is independent of its neighbours, so figures are
   the same for any batch size. */
#pragma once

#include "report/stage_progress.h"
#include "train/job/job.h"

typedef struct {
    const Run *run;
    MicroBatch batch;
    int64_t *order; // (--eval-batch-size)
    MicroRange *ranges;
    StageProgress progress; /* rank 0's */
    int64_t done, count;    /* examples of this rank */
} Evaluation;

/* `count` examples of this rank follow; the progress line names them. */
void evaluation_init(Evaluation *v, const Run *run, int64_t count);
void evaluation_free(Evaluation *v);

/* Runs one micro-batch (session_evaluate…) and keeps its results. */
typedef Status (*EvaluationMicro)(void *context, const MicroBatch *batch, int64_t number);

/* Examples index[0..n), at most --eval-batch-size of them, in micro-batches numbered from 0. E_STOPPED after a signal
   on any rank. */
Status evaluation_batch(Evaluation *v, const Examples *e, const int64_t *index, int64_t n, EvaluationMicro micro,
                        void *context);

/* Collective: each rank evaluates its share of the examples, and gets the results of all. `values` are the logits of
   every example in order, (count, labels); of a span head (tokens, 2), those of example i from row offset[i] on. The
   mean loss is of all examples. */
Status evaluation_logits(Run *run, const Examples *e, float *values, double *mean_loss);
