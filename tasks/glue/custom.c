/* A user's own files: columns by name, labels as given, as in the data, or as the model has them. */
#include <float.h>

#include "config/config.h"
#include "state/models/import.h"
#include "tasks/glue/custom.h"

enum { MOST_LABELS_OF_MODEL = 10000 };

/* ---- labels ---- */

void glue_custom_be_regression(GlueTask *t)
{
    t->regression = true;
    t->n_labels = 1;
    t->low = -FLT_MAX;
    t->high = FLT_MAX;
    t->n_metrics = 3;
    t->metrics[0] = GLUE_PEARSON, t->metrics[1] = GLUE_SPEARMAN, t->metrics[2] = GLUE_COMBINED;
    t->best = GLUE_COMBINED;
}

void glue_custom_be_classes(GlueCustom *c, char **names, int n)
{
    GlueTask *t = &c->task;
    c->label_names = names;
    c->n_label_names = n;
    t->labels = (const char *const *)names;
    t->n_labels = n;
    t->metrics[t->n_metrics++] = GLUE_ACCURACY;
    if (t->multi) t->metrics[t->n_metrics++] = GLUE_F1;
    if (n == 2 && !t->multi) {
        t->metrics[t->n_metrics++] = GLUE_F1;
        t->metrics[t->n_metrics++] = GLUE_MATTHEWS;
    }
    t->best = t->multi ? GLUE_F1 : GLUE_ACCURACY;
}

static Status given_labels(GlueCustom *c, const char *labels)
{
    char *list = mem_strdup(labels), **parts = NULL, **names = NULL;
    Status status = OK;
    int n = record_names(list, &parts);
    if (n < (c->task.multi ? 1 : 2))
        TRY_DONE(
            fail(E_USAGE, "--labels '%s': expected two or more names with commas between them, or regression", labels));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(parts[i], parts[k]))
                TRY_DONE(fail(E_USAGE, "--labels '%s': '%s' occurs twice", labels, parts[i]));
    names = mem_array((size_t)n, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = mem_strdup(parts[i]);
    glue_custom_be_classes(c, names, n);
done:
    MEM_FREE(parts, list);
    return status;
}

/* Names from a model of others: what a column of our tables cannot hold, and more than a table. */
static Status check_names(const char *model, char *const *names, int n)
{
    if (n > MOST_LABELS_OF_MODEL)
        return fail(E_FORMAT, "the config.json of %s names %d labels; expected at most %d", model, n,
                    MOST_LABELS_OF_MODEL);
    for (int i = 0; i < n; i++)
        if (strpbrk(names[i], "\t\r\n"))
            return fail(E_FORMAT, "the config.json of %s: label %d, '%s', holds a tab or a line break", model, i,
                        record_shown((RecordText){names[i], strlen(names[i])}).text);
    return OK;
}

Status glue_custom_labels_of_model(GlueCustom *c, const char *model)
{
    char **names = NULL, *config = NULL;
    int n = 0;
    HeadKind kind;
    Status status = OK;
    TRY(import_problem(model, NULL, &kind));
    if (kind == HEAD_SPAN)
        return fail(E_USAGE, "%s answers questions, and has no labels; use `cairn squad --do-predict`", model);
    if (!(config = import_find_config(model)))
        TRY_DONE(fail(E_USAGE,
                      "%s has no config.json, which names a classifier's labels ('id2label'); expected the "
                      "output folder of `cairn glue` or of Hugging Face",
                      model));
    TRY_DONE(import_labels(model, &names, &n));
    c->task.multi = kind == HEAD_MULTI;
    if (kind == HEAD_REGRESSION) {
        glue_custom_be_regression(&c->task);
        goto done;
    }
    if (kind == HEAD_CLASSIFIER && n < 2)
        TRY_DONE(
            fail(E_USAGE,
                 "%s names no labels ('id2label'): expected a classifier's. Train one with `cairn glue --model %s`, "
                 "or write the labels into the file",
                 config, model));
    TRY_DONE(check_names(model, names, n));
    glue_custom_be_classes(c, names, n);
    names = NULL;
done:
    free(config);
    mem_free_texts(names, n);
    return status;
}

Status glue_custom_labels(GlueCustom *c, const Config *config)
{
    if (config->multi_label && c->task.regression)
        return fail(E_USAGE, "--multi-label and --labels regression: a row has several labels, or a score");
    if (c->task.n_labels > 0) return OK;
    if (config->do_train) return glue_custom_labels_of_data(c, config->data_dir, config->model);
    if (*config->model) return glue_custom_labels_of_model(c, config->model);
    return fail(E_USAGE, "--task custom: without training, the labels are those of --model; give one");
}

/* ---- the task ---- */

Status glue_custom_init(GlueCustom *c, const char *text_columns, const char *label_column, const char *labels,
                        bool multi)
{
    Status status = OK;
    char **texts = NULL;
    *c = (GlueCustom){.task = {.name = "custom", .multi = multi}};
    if (!text_columns || !*text_columns)
        TRY_DONE(fail(E_USAGE, "--task custom needs --text-columns a[,b]: the names of the columns with the texts"));
    c->text_columns = mem_strdup(text_columns);
    int n = record_names(c->text_columns, &texts);
    if (n != 1 && n != 2)
        TRY_DONE(
            fail(E_USAGE, "--text-columns '%s': expected one column, or two with a comma between them", text_columns));
    if (label_column && !*label_column) label_column = NULL; /* prediction works without */
    if (label_column && strpbrk(label_column, "\t\r\n"))
        TRY_DONE(fail(E_USAGE, "--label-column '%s': expected the name of one column", label_column));
    c->label_column = label_column ? mem_strdup(label_column) : NULL;
    if (labels && strcmp(labels, "regression") == 0)
        glue_custom_be_regression(&c->task);
    else if (labels && *labels)
        TRY_DONE(given_labels(c, labels));

    bool positions = record_positions(texts, n) && (!label_column || record_positions(&c->label_column, 1));
    c->unlabelled = (GlueLayout){.a = texts[0], .b = n == 2 ? texts[1] : NULL};
    c->unlabelled.columns = positions ? GLUE_COLUMNS_AS_FIRST : 0;
    c->labelled = c->unlabelled;
    c->labelled.label = c->label_column;
    c->task.splits[0] = (GlueSplit){GLUE_TRAIN, "train", "train", "", NULL, &c->labelled};
    c->task.splits[1] = (GlueSplit){GLUE_DEV, "dev", "dev", "", NULL, &c->labelled};
    c->task.splits[2] = (GlueSplit){GLUE_TEST, "test", "test", "", NULL, &c->unlabelled};
    c->task.n_splits = 3;
done:
    free(texts);
    if (status != OK) glue_custom_free(c);
    return status;
}

Head glue_head(const GlueTask *t)
{
    return (Head){t->regression ? HEAD_REGRESSION : t->multi ? HEAD_MULTI : HEAD_CLASSIFIER, t->n_labels};
}

Status glue_plan_head(const Config *c, Head *head)
{
    GlueCustom custom = {.task = {.n_labels = 2, .multi = c->multi_label}};
    const GlueTask *task = &custom.task;
    Status status = OK;
    if (!glue_task_is_custom(c->task))
        status = glue_task_find(c->task, &task);
    else if (strcmp(c->labels, "regression") == 0)
        glue_custom_be_regression(&custom.task);
    else if (*c->labels)
        status = given_labels(&custom, c->labels);
    if (status == OK) *head = glue_head(task);
    glue_custom_free(&custom);
    return status;
}

void glue_custom_free(GlueCustom *c)
{
    MEM_FREE(c->text_columns, c->label_column);
    mem_free_texts(c->label_names, c->n_label_names);
    *c = (GlueCustom){0};
}
