/* The order of a classifier's labels (labels.c). */
#ifndef CAIRN_TASKS_GLUE_LABELS_H
#define CAIRN_TASKS_GLUE_LABELS_H

#include "model/model.h"
#include "state/models/import.h"
#include "tasks/glue/glue.h"

/* from[i] (n_labels): which of the n names is the task's label i, in any case of letters. False where names are missing
   or differ: `from` is then undefined. */
bool glue_label_order(const GlueTask *task, char *const *names, int n, int *from);
/* Puts the classifier's rows of imported weights into the task's order, in the order of id2label in the config.json
   beside `path`. Warns if it does not name the task's labels. E_FORMAT, E_IO: that config.json cannot be read. */
Status glue_order_labels(const GlueTask *task, const char *path, const Model *model, float *weights);
/* For a use without training. E_FORMAT where the weights have no classifier of the task's labels, or the model has a
   head of another kind (import_problem). */
Status glue_check_import(const GlueTask *task, const char *model, const ImportReport *report);

#endif
