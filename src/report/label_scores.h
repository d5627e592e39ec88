/* Scores of each label of a classification, from a run's eval_results.json ("eval_labels", docs/files.md): a table, a
   picture of the confusion matrix, and both in report.html. Without them the functions do nothing. */
#pragma once

#include "base/base.h"

/* Logs a table for each split, appends it to `text`, and writes confusion_SPLIT.svg. */
Status label_scores_write(const char *output_dir, Buf *text);
void label_scores_html(const char *output_dir, Buf *out);
