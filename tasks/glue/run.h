/* Inside tasks/glue: a run of `cairn glue` from its files to its results. */
#ifndef CAIRN_TASKS_GLUE_RUN_H
#define CAIRN_TASKS_GLUE_RUN_H

#include <signal.h>

#include "data/data.h"
#include "tasks/glue/glue.h"
#include "text/text.h"
#include "train/session.h"

/* What evaluating a split gave. */
typedef struct {
    int64_t examples;
    double metrics[GLUE_MAX_METRICS]; /* in the task's order; only where labelled */
    double best, loss, seconds;
} GlueResult;

/* Token sequences of a split, cut to max_length; labels and scores along. E_STOPPED if *stop becomes set. */
Status glue_tokenize(const GlueExamples *in, const GlueTask *task, const Tokenizer *tokenizer, int max_length,
                     const volatile sig_atomic_t *stop, Examples *out);

/* Logits (count, labels) of every example in file order, and the mean loss. */
Status glue_forward(Session *s, const Examples *e, int64_t batch_size, int64_t padded_length,
                    const volatile sig_atomic_t *stop, float *values, double *mean_loss);

/* Rows of logits → probabilities, in place. */
void glue_softmax(float *values, int64_t rows, int labels);

#endif
