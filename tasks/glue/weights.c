/* --class-weights: the weight of each label in the loss of training. */
#include "tasks/glue/custom.h"
#include "tasks/glue/run.h"

/* n / (k·rows of the label), as scikit-learn's "balanced". */
static Status balance(const GlueTask *task, const Examples *e, const char *path)
{
    Status status = OK;
    int64_t *rows = mem_array((size_t)task->n_labels, sizeof *rows);
    for (int64_t i = 0; i < e->count; i++) rows[e->label[i]]++;
    for (int i = 0; i < task->n_labels && status == OK; i++) {
        if (rows[i] == 0)
            status = fail(E_FORMAT,
                          "%s: --class-weights auto: expected rows of each label to train on, found none of '%s'; give "
                          "the weights, or --labels without it",
                          path, task->labels[i]);
        e->weights[i] = (float)((double)e->count / ((double)task->n_labels * (double)rows[i]));
    }
    free(rows);
    return status;
}

static Status take_weights(const GlueTask *task, const char *text, float *weights) // (n_labels)
{
    char *list = mem_strdup(text), **parts = NULL;
    int n = record_names(list, &parts);
    Status status = OK;
    if (n != task->n_labels)
        status = fail(E_USAGE,
                      "--class-weights '%s': expected auto, or %d weights with commas between them, for '%s' to '%s'; "
                      "found %d",
                      text, task->n_labels, task->labels[0], task->labels[task->n_labels - 1], n);
    for (int i = 0; i < task->n_labels && status == OK; i++) {
        double value = 0;
        if (!record_number((RecordText){parts[i], strlen(parts[i])}, &value) || !((float)value > 0))
            status = fail(E_USAGE, "--class-weights '%s': expected a number above 0 for '%s', found '%s'", text,
                          task->labels[i], parts[i]);
        weights[i] = (float)value;
    }
    MEM_FREE(parts, list);
    return status;
}

static void say_weights(Run *r, const GlueTask *task, const char *given, const float *weights) // (n_labels)
{
    enum { SHOWN = 20 };
    Buf text = {0};
    for (int i = 0; i < task->n_labels && i < SHOWN; i++)
        buf_printf(&text, "%s'%s' %.6g", i ? ", " : "", task->labels[i], (double)weights[i]);
    run_says(r, "--class-weights %s: weights in the loss: %s%s", given, text.data, task->n_labels > SHOWN ? ", …" : "");
    buf_free(&text);
}

Status glue_weigh_classes(Run *r)
{
    GlueRun *g = r->own;
    const Config *c = r->c;
    const GlueTask *task = g->task;
    Examples *e = &g->train.examples;
    const char *given = c->class_weights;
    e->weights = mem_array((size_t)task->n_labels, sizeof *e->weights);
    e->n_weights = task->n_labels;
    e->smoothing = c->label_smoothing;
    for (int i = 0; i < task->n_labels; i++) e->weights[i] = 1;
    if (!*given) return OK;
    TRY(strcmp(given, "auto") == 0 ? balance(task, e, g->train.raw.path) : take_weights(task, given, e->weights));
    say_weights(r, task, given, e->weights);
    return OK;
}
