/* A run in the lines that other trainers' tools read, beside metrics.jsonl. All functions take NULL, which is
   --log-format plain. A line that cannot be written is warned of once; training goes on.

   mlperf: mlperf.log, ":::MLLOG {…}" as MLPerf Training's logging package writes them and its rules for BERT
   (closed_bert.yaml) want them. dllogger: dllogger.json, "DLLL {…}" as NVIDIA's dllogger writes them. */
#ifndef CAIRN_TASKS_PRETRAIN_RUNLOG_H
#define CAIRN_TASKS_PRETRAIN_RUNLOG_H

#include "config/config.h"
#include "optim/optim.h"

typedef struct RunLog RunLog;

/* The file of --log-format in the output folder, begun anew; or, where training goes on (`resumed`), gone on with.
   *log is NULL for plain. Begins the initialisation, unless the file tells of a run that has not ended: then this is
   still that run, and neither initialisation nor start stand there twice. */
Status runlog_open(RunLog **log, const Config *c, bool resumed);

typedef struct {
    const Optimizer *optimizer;
    const Schedule *schedule;
    int64_t train_samples, eval_samples; /* sequences in all; of an evaluation */
    int64_t predictions, micros;         /* masked positions a sequence may have; micro-batches of a usual step */
    int64_t samples, evaluated;          /* sequences seen before; before the last evaluation */
    int64_t every;                       /* sequences from one evaluation to the next; 0: none is made */
} RunLogStart;
/* The end of initialisation, hyperparameters, and the start of the run. */
void runlog_start(RunLog *log, const RunLogStart *start);
void runlog_evaluation_start(RunLog *log, int64_t samples);
/* `goes_on`: the run is not over with this one. */
void runlog_evaluation_end(RunLog *log, int64_t samples, double mlm_accuracy, bool goes_on);
/* The end: not of a run that stops to go on later. `success`: the target was reached, or there was none. */
void runlog_stop(RunLog *log, int64_t samples, bool success, double seq_per_s);
void runlog_close(RunLog *log);

#endif
