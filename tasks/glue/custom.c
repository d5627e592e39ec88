/* A user's own files: columns by name, labels as given, as in the data, or as the model has them. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "data/records.h"
#include "state/import.h"
#include "tasks/glue/glue.h"

#define MOST_LABELS          1000 /* of data */
#define MOST_LABELS_OF_MODEL 10000

/* ---- columns ---- */

/* Cuts `list` at its commas in place; returns the number of parts, or −1 if one is empty or holds a line break or tab.
 */
static int cut_list(char *list, char ***parts)
{
    int count = 0, cap = 0;
    for (char *p = list; p;) {
        char *comma = strchr(p, ',');
        if (comma) *comma = 0;
        if (!*p || strpbrk(p, "\t\r\n")) return -1;
        MEM_PUSH(*parts, count, cap, p);
        p = comma ? comma + 1 : NULL;
    }
    return count;
}

static bool is_position(const char *s) { return *s && strlen(s) <= 4 && strspn(s, "0123456789") == strlen(s); }

/* ---- labels ---- */

static void be_regression(GlueTask *t)
{
    t->regression = true;
    t->n_labels = 1;
    t->low = -FLT_MAX;
    t->high = FLT_MAX;
    t->n_metrics = 3;
    t->metrics[0] = GLUE_PEARSON, t->metrics[1] = GLUE_SPEARMAN, t->metrics[2] = GLUE_COMBINED;
    t->best = GLUE_COMBINED;
}

/* Takes the names over. */
static void be_classes(GlueCustom *c, char **names, int n)
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
    int n = cut_list(list, &parts);
    if (n < (c->task.multi ? 1 : 2))
        TRY_DONE(
            fail(E_USAGE, "--labels '%s': expected two or more names with commas between them, or regression", labels));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(parts[i], parts[k]))
                TRY_DONE(fail(E_USAGE, "--labels '%s': '%s' occurs twice", labels, parts[i]));
    names = mem_array((size_t)n, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = mem_strdup(parts[i]);
    be_classes(c, names, n);
done:
    MEM_FREE(parts, list);
    return status;
}

/* Different texts of a column, in the order of their bytes. */
typedef struct {
    char **names; // (n)
    int n, cap;
    bool whole;   /* all are whole numbers */
    bool numbers; /* all are numbers */
    bool parts;   /* some number has a fraction */
    bool multi;   /* a row has several */
} Seen;

static bool is_whole(const char *s)
{
    size_t sign = *s == '-';
    return s[sign] && strlen(s) <= 18 && strspn(s + sign, "0123456789") == strlen(s + sign);
}

/* Notes a label's text. E_FORMAT: too many. */
static Status see(Seen *seen, const char *path, const Record *row, RecordText s)
{
    int low = 0, high = seen->n;
    double value = 0;
    if (s.len == 0) return fail(E_FORMAT, "%s:%lld: the label is empty", path, (long long)row->line);
    if (memchr(s.p, 0, s.len) || memchr(s.p, '\n', s.len) || memchr(s.p, '\t', s.len))
        return fail(E_FORMAT, "%s:%lld: the label '%s' holds a tab, a line break or a NUL", path, (long long)row->line,
                    record_shown(s).text);
    while (low < high) {
        int middle = (low + high) / 2;
        size_t n = strlen(seen->names[middle]);
        int order = memcmp(seen->names[middle], s.p, n < s.len ? n : s.len);
        if (order == 0 && n == s.len) return OK;
        if (order < 0 || (order == 0 && n < s.len))
            low = middle + 1;
        else
            high = middle;
    }
    bool number = glue_number(s, &value);
    seen->numbers = seen->numbers && number;
    seen->parts = seen->parts || (number && value != floor(value));
    if (seen->parts && !seen->numbers && !seen->multi)
        return fail(E_FORMAT,
                    "%s:%lld: the label '%s': some labels are numbers with a fraction, others are no numbers; expected "
                    "scores or classes. Correct them, or give the classes as --labels",
                    path, (long long)row->line, record_shown(s).text);
    if (seen->numbers && seen->parts && seen->n >= MOST_LABELS) return OK; /* scores; a later text fails when read */
    if (seen->n >= MOST_LABELS && !seen->numbers)
        return fail(E_FORMAT,
                    "%s:%lld: more than %d different labels; expected a column of classes. Give the classes as "
                    "--labels, or another --label-column",
                    path, (long long)row->line, MOST_LABELS);
    MEM_GROW(seen->names, seen->n, seen->cap);
    memmove(seen->names + low + 1, seen->names + low, (size_t)(seen->n - low) * sizeof *seen->names);
    char *name = mem_alloc(s.len + 1);
    memcpy(name, s.p, s.len);
    seen->names[low] = name;
    seen->n++;
    seen->whole = seen->whole && is_whole(name);
    return OK;
}

static int by_number(const void *a, const void *b)
{
    long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
    return x < y ? -1 : x > y;
}

static Status see_file(Seen *seen, const char *path, const GlueLayout *layout)
{
    RecordsOptions o = {.columns = {layout->label}, .n = 1, .without_header = layout->columns};
    Records *rows;
    const Record *row;
    Status status = records_open(&rows, path, &o);
    while (status == OK) {
        status = records_next(rows, &row);
        if (status != OK || !row) break;
        RecordText rest = row->texts[0], label = rest;
        if (!seen->multi) status = see(seen, path, row, label);
        while (seen->multi && status == OK && glue_label_next(&rest, &label)) status = see(seen, path, row, label);
    }
    records_close(rows);
    return status;
}

static void log_labels(const GlueTask *t, const char *path)
{
    Buf list = {0};
    for (int i = 0; i < t->n_labels && i < 20; i++) buf_printf(&list, "%s%s", i ? ", " : "", t->labels[i]);
    log_info("%s: %d labels, %s%s", path, t->n_labels, list.data, t->n_labels > 20 ? ", …" : "");
    buf_free(&list);
}

/* Numbers with a fraction are scores, all else are classes: whole numbers in their order, others by their bytes. */
static Status labels_of_data(GlueCustom *c, const char *dir)
{
    Seen seen = {.whole = true, .numbers = !c->task.multi, .multi = c->task.multi};
    char *path = NULL;
    Status status = OK;
    TRY_DONE(glue_split_path(dir, &c->task, &c->task.splits[0], &path));
    TRY_DONE(see_file(&seen, path, &c->labelled));
    if (seen.numbers && seen.parts) {
        log_info("%s: the labels are numbers with fractions, so they are scores (--labels regression)", path);
        be_regression(&c->task);
        goto done;
    }
    if (seen.n > MOST_LABELS)
        TRY_DONE(fail(E_FORMAT,
                      "%s: %d different labels, all whole numbers; give --labels regression if they are scores, else "
                      "the classes as --labels",
                      path, seen.n));
    if (seen.n == 0) TRY_DONE(fail(E_FORMAT, "%s: expected at least one row with a label, found none", path));
    if (seen.n < (c->task.multi ? 1 : 2))
        TRY_DONE(fail(E_FORMAT, "%s: all labels are '%s'; expected two different ones at least", path, seen.names[0]));
    if (seen.whole) qsort(seen.names, (size_t)seen.n, sizeof *seen.names, by_number);
    be_classes(c, seen.names, seen.n);
    seen = (Seen){0};
    log_labels(&c->task, path);
done:
    mem_free_texts(seen.names, seen.n);
    free(path);
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
    TRY(import_problem(model, &kind));
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
        be_regression(&c->task);
        goto done;
    }
    if (kind == HEAD_CLASSIFIER && n < 2)
        TRY_DONE(
            fail(E_USAGE,
                 "%s names no labels ('id2label'): expected a classifier's. Train one with `cairn glue --model %s`, "
                 "or write the labels into the file",
                 config, model));
    TRY_DONE(check_names(model, names, n));
    be_classes(c, names, n);
    names = NULL;
done:
    free(config);
    if (names) import_labels_free(names, n);
    return status;
}

Status glue_custom_labels(GlueCustom *c, const Config *config)
{
    if (config->multi_label && c->task.regression)
        return fail(E_USAGE, "--multi-label and --labels regression: a row has several labels, or a score");
    if (c->task.n_labels > 0) return OK;
    if (config->do_train) return labels_of_data(c, config->data_dir);
    if (*config->model) return glue_custom_labels_of_model(c, config->model);
    return fail(E_USAGE, "--task custom: without training, the labels are those of --model; give one");
}

/* ---- the task ---- */

Status glue_custom_init(GlueCustom *c, const char *text_columns, const char *label_column, const char *labels,
                        bool multi)
{
    Status status = OK;
    char **texts = NULL;
    *c = (GlueCustom){.task = {.name = "custom", .folders = {"custom"}, .multi = multi}};
    if (!text_columns || !*text_columns)
        TRY_DONE(fail(E_USAGE, "--task custom needs --text-columns a[,b]: the names of the columns with the texts"));
    c->text_columns = mem_strdup(text_columns);
    int n = cut_list(c->text_columns, &texts);
    if (n != 1 && n != 2)
        TRY_DONE(
            fail(E_USAGE, "--text-columns '%s': expected one column, or two with a comma between them", text_columns));
    if (label_column && !*label_column) label_column = NULL; /* prediction works without */
    if (label_column && strpbrk(label_column, "\t\r\n"))
        TRY_DONE(fail(E_USAGE, "--label-column '%s': expected the name of one column", label_column));
    c->label_column = label_column ? mem_strdup(label_column) : NULL;
    if (labels && strcmp(labels, "regression") == 0)
        be_regression(&c->task);
    else if (labels && *labels)
        TRY_DONE(given_labels(c, labels));

    bool positions =
        is_position(texts[0]) && (n == 1 || is_position(texts[1])) && (!label_column || is_position(label_column));
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
        be_regression(&custom.task);
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
