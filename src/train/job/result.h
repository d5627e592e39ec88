/* The files at the end of a run, and the check for those of a finished one. */
#ifndef CAIRN_TRAIN_JOB_RESULT_H
#define CAIRN_TRAIN_JOB_RESULT_H

#include "report/report.h"
#include "train/job/job.h"

/* Writes run.json and report.html. A run that had finished before keeps the rates of its run.json. */
Status result_write(const Run *run);

/* eval_results.json and .txt, with keys as Hugging Face and Google name them: "eval_" NAME SUFFIX. Zeroed at first. */
typedef struct {
    Buf json, text;
} EvalResults;
void eval_results_value(EvalResults *e, const char *name, const char *suffix, double value);
void eval_results_count(EvalResults *e, const char *name, const char *suffix, int64_t count);
/* Writes both durably, if there is anything, and frees them. The .json has the digest of the evaluation data, too. */
Status eval_results_write(EvalResults *e, const Run *run);

/* The folder holds a model, a run.json of the run's last step with figures of these names and, where there are names,
   an eval_results.json of the same evaluation data: nothing is left to do. */
bool result_there(const Run *run, char *const *names, int n_names);
/* Says so, with eval_results.txt on stdout. */
void result_show(const char *output_dir, int64_t step);

/* Collective. The model as it is now into a folder, in Hugging Face's form (export_model). */
Status result_export(const Run *run, const char *dir);
/* Collective. The same into OUT/best, with best.json: step and metric. */
Status result_keep_best(const Run *run, double metric);

#endif
