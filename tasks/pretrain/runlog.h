/* A run in the lines that other trainers' tools read, beside metrics.jsonl. All functions take NULL, which is
   --log-format plain. A line that cannot be written is warned of once; training goes on.

   mlperf: mlperf.log, ":::MLLOG {…}" as MLPerf Training's logging package writes them and its rules for BERT
   (closed_bert.yaml) want them. dllogger: dllogger.json, "DLLL {…}" as NVIDIA's dllogger writes them. */
#ifndef CAIRN_TASKS_PRETRAIN_RUNLOG_H
#define CAIRN_TASKS_PRETRAIN_RUNLOG_H

#include "config/config.h"
#include "optim/optim.h"

typedef struct RunLog RunLog;

/* Appends to the file of --log-format in the output folder. *log is NULL for plain. Begins the initialisation. */
Status runlog_open(RunLog **log, const Config *c);
/* The end of initialisation, hyperparameters, and the start of the run. */
void runlog_start(RunLog *log, const Optimizer *o, const Schedule *s, int64_t train_samples, int64_t eval_samples);
void runlog_evaluation_start(RunLog *log, int64_t samples);
void runlog_evaluation_end(RunLog *log, int64_t samples, double mlm_accuracy);
/* `success`: the target was reached, or there was none. */
void runlog_stop(RunLog *log, int64_t samples, bool success, double seq_per_s);
void runlog_close(RunLog *log);

#endif
