/* Puts the rows of a classifier into the task's order of labels. id2label of config.json has the order of the weights.
 */
#include "tasks/glue/run.h"

#include <strings.h>

bool glue_label_order(const GlueTask *task, char *const *names, int n, int *from)
{
    if (n != task->n_labels) return false;
    for (int i = 0; i < n; i++) {
        from[i] = -1;
        for (int k = 0; k < n; k++)
            if (strcasecmp(names[k], task->labels[i]) == 0) from[i] = k;
        if (from[i] < 0) return false;
    }
    return true;
}

static void warn_unnamed(const GlueTask *task, const char *path)
{
    Buf list = {0};
    for (int i = 0; i < task->n_labels; i++) buf_printf(&list, "%s%s", i ? ", " : "", task->labels[i]);
    log_warn("the config.json of %s does not name the labels of %s ('id2label'); assuming that its outputs are in this "
             "order: %s",
             path, task->name, list.data);
    buf_free(&list);
}

Status glue_order_labels(const GlueTask *task, const char *path, const Model *model, float *weights)
{
    const ParamTable *t = &model->params;
    int n = 0, *from = mem_array((size_t)task->n_labels, sizeof *from);
    bool differs = false;
    char **names = NULL;
    Status status = import_labels(path, &names, &n);
    if (status == OK && !glue_label_order(task, names, n, from)) {
        warn_unnamed(task, path);
    } else if (status == OK) {
        for (int i = 0; i < n; i++) differs |= from[i] != i;
    }
    if (differs) {
        log_debug("the model has its labels in another order ('id2label'); the classifier's rows are reordered");
        params_permute_rows(t, params_find(t, "classifier.weight"), from, weights);
        params_permute_rows(t, params_find(t, "classifier.bias"), from, weights);
    }
    mem_free_texts(names, n);
    free(from);
    return status;
}

Status glue_check_import(const GlueTask *task, const char *model, const ImportReport *report)
{
    HeadKind wanted = glue_head(task).kind, kind;
    TRY(import_problem(model, &wanted, &kind));
    if (!report->n[IMPORT_NEW]) return OK;
    if (report->labels)
        return fail(
            E_FORMAT,
            "%s: classifier.weight has %lld rows, and %s %d; give the model's own config.json with as many labels "
            "('id2label' or 'num_labels'), or train another classifier with `cairn glue --do-train`",
            report->path, (long long)report->labels,
            glue_task_is_custom(task->name) ? "the labels are" : "the task's labels are", task->n_labels);
    return fail(E_FORMAT,
                "%s has no trained classifier of %d labels; train it with `cairn glue --do-train`, or give `cairn "
                "predict` --embed for vectors",
                report->path, task->n_labels);
}
