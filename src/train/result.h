/* What the runs of all tasks leave at their end, and whether it is there already. */
#ifndef CAIRN_TRAIN_RESULT_H
#define CAIRN_TRAIN_RESULT_H

#include "state/export.h"
#include "train/observe.h"
#include "train/session.h"
#include "train/train.h"

/* Fills what every task's run.json says; wall_s, config_json and figures of evaluations are the task's. `series` gets
   the memory curve, which the caller frees after the summary is written. */
void result_summary(RunSummary *s, const char *task, const Session *session, const TrainProgress *progress,
                    double **series);

/* Of a run that was finished before and is only evaluated again: what run.json says of its training stays. */
void result_keep_rates(const char *output_dir, RunSummary *s);

/* The folder holds a model, and a run.json of that many steps with figures of these names: nothing is left to do. */
bool result_there(const char *output_dir, int64_t step, char *const *names, int n_names);
/* Says so, with eval_results.txt on stdout. */
void result_show(const char *output_dir, int64_t step);

/* The model as it is now into a folder, in Hugging Face's form (export_model). */
Status result_export(const char *dir, const Model *model, const Session *session, const ExportText *text);
/* The same into OUT/best, with best.json: step and metric. */
Status result_keep_best(const char *output_dir, const Model *model, const Session *session, const ExportText *text,
                        int64_t step, double metric);

#endif
