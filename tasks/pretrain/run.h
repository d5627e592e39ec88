/* Inside tasks/pretrain: the own state of a run of `cairn pretrain`. */
#pragma once

#include "data/shards.h"
#include "tasks/pretrain/runlog.h"
#include "tasks/pretrain/stages.h"
#include "train/job/task.h"

/* Over all sequences of the evaluation's shards. */
typedef struct {
    int64_t sequences, masked; /* masked words */
    double mlm_loss, mlm_accuracy, perplexity;
    double nsp_loss, nsp_accuracy; /* NaN without next-sentence prediction */
    double seconds;
} PretrainResult;

/* `cairn adapt`: the held-out part before training. */
typedef struct {
    double mlm_loss, mlm_accuracy;
    int64_t pieces, words, unknown; /* of the text: [UNK] is a piece and a word */
} PretrainBefore;

/* run->own. */
typedef struct {
    Stages stages;       /* --input */
    Config sized;        /* --max-seq-length as the shards have it */
    int64_t predictions; /* masked positions a sequence may have */
    Shards *shards, *eval_shards;
    double mean_length;    /* tokens of a sequence */
    PretrainResult result; /* of the last evaluation */
    RunLog *log;           /* NULL: --log-format plain */
    PretrainBefore before; /* `cairn adapt` */
} PretrainRun;

/* The folder of training's or of evaluation's shards. */
static inline const char *pretrain_folder(const Config *c, bool evaluation)
{
    return evaluation && *c->eval_dir ? c->eval_dir : c->data_dir;
}
/* Sequences that training has seen. */
int64_t pretrain_samples(const Run *r);

/* Rows of the task's table. */
Status pretrain_evaluate_during(Run *r, double *metric, Buf *text);
bool pretrain_reached(const Run *r, double metric); /* by --target-mlm-accuracy */
Status pretrain_evaluate(Run *r);
void pretrain_figures(const Run *r, EvalFigures *f);

/* ---- `cairn adapt` (adapt.c) ---- */

/* What it needs beyond `cairn pretrain`. May replace run->c: --max-seq-length by default is at most the model's. */
Status adapt_check(Run *r);
/* Rank 0, after the stages. E_FORMAT: nothing is left to train on. */
Status adapt_check_held_out(const Config *c);
/* Collective. Evaluates before the first step, and counts words; a run that resumes reads what it found then. */
Status adapt_begin(Run *r);
Status adapt_write(const Run *r); /* rank 0: adapt.json, and a line for people */

/* Evaluates all of the held-out part into p->result. Collective. */
Status pretrain_evaluate_all(Run *r);

/* --eval-samples: sequences between evaluations; 0: none. */
Status pretrain_eval_samples(const Config *c, int64_t *samples);
