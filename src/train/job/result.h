/* The files at the end of a run, and the check for those of a finished one. */
#pragma once

#include "report/report.h"
#include "train/job/job.h"

/* Writes run.json and report.html. A run that had finished before keeps the rates of its run.json. */
Status result_write(const Run *run);

/* The figures of an evaluation during training (task->figures) to eval.jsonl; without `m` (NULL) nothing. */
Status result_write_lines(const Run *run, Metrics *m);
/* Rank 0, after the evaluation. Writes eval_results.json and .txt durably, if there is anything. The .json has the
   digest of the evaluation data, too. */
Status result_write_evaluation(Run *run);

/* The folder holds a model, a run.json of the run's last step with the figures of each split and, where there are
   figures, an eval_results.json of the same evaluation data: nothing is left to do. */
bool result_there(const Run *run);
/* Says so, with eval_results.txt on stdout. */
void result_show(const char *output_dir, int64_t step);

/* Collective. The model as it is now into OUT/best, in Hugging Face's form (export_model), with best.json: step and
   metric. */
Status result_keep_best(const Run *run, double metric);
/* The step whose model a run that has come so far publishes: the best of its evaluations by --final best, else the
   last. */
int64_t result_step(const Run *run, const TrainProgress *p);
/* Rank 0, where a run resumes: warns if OUT/best is missing and may be wanted. */
void result_expect_best(const Run *run);
/* Collective, after training. That model into OUT; the session has its weights from then on. E_CORRUPT: OUT/best is not
   the best model. */
Status result_publish(Run *run);
