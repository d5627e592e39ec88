/* A run as lines for the tools of other trainers, beside metrics.jsonl. All functions take NULL, which is --log-format
   plain. A line that cannot be written gives one warning; training continues.

   mlperf: mlperf.log, ":::MLLOG {…}" as MLPerf Training's logging package writes them and its rules for BERT
   (closed_bert.yaml) want them. dllogger: dllogger.json, "DLLL {…}" as NVIDIA's dllogger writes them. */
#pragma once

#include "config/config.h"
#include "optim/optim.h"

typedef struct RunLog RunLog;

/* Opens the file of --log-format in the output folder: a new one, or with `resumed`, to append. *log is NULL for plain.
   Begins the initialisation, unless the file has a run without an end: a resumed run has initialisation and start only
   once. */
Status runlog_open(RunLog **log, const Config *c, bool resumed);

typedef struct {
    const Optimizer *optimizer;
    const RateSchedule *schedule;
    int64_t train_samples, eval_samples; /* sequences of training; of an evaluation */
    int64_t predictions, micros;         /* masked positions a sequence may have; micro-batches of a usual step */
    int64_t step;                        /* steps made so far */
    int64_t samples, evaluated;          /* sequences seen so far; at the last evaluation, negative: unknown */
    int64_t every;                       /* sequences between evaluations; 0: no evaluations */
} RunLogStart;
/* The end of initialisation, hyperparameters, and the start of the run. A run that the file has already continues after
   its evaluation at `evaluated`: lines behind that are cut off, because the run writes them again. */
void runlog_start(RunLog *log, const RunLogStart *start);
void runlog_evaluation_start(RunLog *log, int64_t samples);
/* `more`: training continues after this evaluation. */
void runlog_evaluation_end(RunLog *log, int64_t samples, double mlm_accuracy, bool more);
/* A line of dllogger.json, with the keys of NVIDIA's run_pretraining.py: --log-every 1 of it, so the mean since the
   last line is the step's own loss. `epoch` counts from 0. */
void runlog_step(RunLog *log, int64_t epoch, int64_t step, double loss, double rate);
/* The end of training, but not a stop that can resume. `success`: the target was reached, or there was none. `seconds`:
   of all steps. `loss`: of the last one. */
void runlog_stop(RunLog *log, int64_t samples, bool success, double seq_per_s, double seconds, double loss);
void runlog_close(RunLog *log);
