/* Examples from the rows of a file (data/records.h): the columns of a task, its labels and scores. */

#include "tasks/glue/custom.h"

enum { INDEX, TEXT_A, TEXT_B, LABEL, N_COLUMNS };

#define BLOCK ((size_t)1 << 20) /* of kept texts */

/* ---- one row ---- */

static Status parse_index(const char *name, const Record *r, int64_t *index)
{
    RecordText s = r->texts[INDEX];
    int64_t v = 0;
    bool good = s.len > 0 && s.len <= 18;
    for (size_t i = 0; good && i < s.len; i++) {
        good = s.p[i] >= '0' && s.p[i] <= '9';
        v = 10 * v + (s.p[i] - '0');
    }
    if (!good)
        return fail(E_FORMAT, "%s:%lld: expected a number as index, found '%s'", name, (long long)r->line,
                    record_shown(s).text);
    *index = v;
    return OK;
}

static Status parse_score(const char *name, const Record *r, const GlueTask *task, float *score)
{
    RecordText s = record_trim(r->texts[LABEL]);
    double v = 0;
    if (!record_number(s, &v))
        return fail(E_FORMAT, "%s:%lld: expected a number as score, found '%s'", name, (long long)r->line,
                    record_shown(s).text);
    if (v < (double)task->low || v > (double)task->high)
        return fail(E_FORMAT, "%s:%lld: expected a score from %g to %g, found %s", name, (long long)r->line,
                    (double)task->low, (double)task->high, record_shown(s).text);
    *score = (float)v;
    return OK;
}

static Status unknown_label(const char *name, const Record *r, const GlueTask *task, RecordText label)
{
    Buf names = {0};
    int show = task->n_labels <= 20 ? task->n_labels : 20;
    for (int i = 0; i < show; i++) buf_printf(&names, "%s'%s'", i ? ", " : "", task->labels[i]);
    if (show < task->n_labels) buf_printf(&names, " or one of %d more", task->n_labels - show);
    Status status = fail(E_FORMAT, "%s:%lld: label '%s' is unknown; expected %s%s", name, (long long)r->line,
                         record_shown(label).text, names.data,
                         glue_task_is_custom(task->name) ? ". Mend the row, or name all labels, as --labels X,Y" : "");
    buf_free(&names);
    return status;
}

/* A label is written as an element of a vector is. */
static bool has_elements(const GlueTask *task)
{
    for (int i = 0; i < task->n_labels; i++)
        if (glue_label_is_element((RecordText){task->labels[i], strlen(task->labels[i])})) return true;
    return false;
}

/* A vector of as many elements as labels is taken as one, unless a label is written like an element. */
static Status take_labels(GlueExamples *x, const Record *r, const GlueTask *task, GlueLabelList *list, float *targets)
{
    TRY(glue_label_list(list, x->path, r, r->texts[LABEL]));
    bool fits = list->vector && list->n == task->n_labels, names = has_elements(task);
    for (int i = 0; i < task->n_labels; i++) targets[i] = fits && !names && glue_label_set(list->labels[i]);
    if (fits && !names) return OK;
    if (list->numbers && (names || !list->vector) && glue_label_twice(list))
        return glue_label_vector(x->path, r->line, r->texts[LABEL]);
    x->whole += list->numbers && list->n == task->n_labels;
    for (int k = 0; k < list->n; k++) {
        int32_t i = glue_label_find(task, list->labels[k].p, list->labels[k].len);
        if (i < 0 && list->vector && !names)
            return fail(E_FORMAT,
                        "%s:%lld: the labels '%s' are a vector of %d elements; expected one for each of %d labels",
                        x->path, (long long)r->line, record_shown(r->texts[LABEL]).text, list->n, task->n_labels);
        if (i < 0) return unknown_label(x->path, r, task, list->labels[k]);
        targets[i] = 1;
    }
    return OK;
}

/* Several labels: a 1 for each that the row has. */
static Status parse_targets(GlueExamples *x, const Record *r, const GlueTask *task, float *targets)
{
    GlueLabelList list = {0};
    Status status = take_labels(x, r, task, &list, targets);
    free(list.labels);
    return status;
}

/* A copy of a text that lives as long as `x`. */
static RecordText keep(GlueExamples *x, RecordText s)
{
    if (x->n_blocks == 0 || x->block_left < s.len) {
        MEM_GROW(x->blocks, x->n_blocks, x->cap_blocks);
        x->block_left = s.len > BLOCK ? s.len : BLOCK;
        x->block_at = x->blocks[x->n_blocks++] = mem_resize(NULL, x->block_left, 1);
    }
    RecordText copy = {x->block_at, s.len};
    if (s.len) memcpy(x->block_at, s.p, s.len);
    x->block_at += s.len;
    x->block_left -= s.len;
    return copy;
}

typedef enum { ROW_TAKEN, ROW_UNLABELLED, ROW_SHORT } TakenKind;

static Status parse_row(GlueExamples *x, const Records *rows, const Record *r, const GlueTask *task,
                        const GlueLayout *layout, GlueExample *e, TakenKind *kind)
{
    *kind = ROW_TAKEN;
    if (r->count < records_columns(rows)) {
        *kind = ROW_SHORT;
        return OK;
    }
    *e = (GlueExample){.index = r->number, .line = r->line, .label = -1};
    if (layout->index && r->texts[INDEX].p) TRY(parse_index(x->path, r, &e->index));
    if (layout->label && task->skip_label && record_text_is(r->texts[LABEL], task->skip_label)) {
        *kind = ROW_UNLABELLED;
        return OK;
    }
    if (layout->label && task->regression) {
        TRY(parse_score(x->path, r, task, &e->score));
    } else if (layout->label && task->multi) {
        TRY(parse_targets(x, r, task, x->targets + x->count * (size_t)task->n_labels));
    } else if (layout->label) {
        e->label = glue_label_find(task, r->texts[LABEL].p, r->texts[LABEL].len);
        if (e->label < 0) return unknown_label(x->path, r, task, r->texts[LABEL]);
    }
    e->a = keep(x, r->texts[TEXT_A]);
    if (layout->b) e->b = keep(x, r->texts[TEXT_B]);
    return OK;
}

/* ---- all rows ---- */

static RecordsOptions rows_options(const GlueTask *task, const GlueSplit *split)
{
    const GlueLayout *l = split->layout;
    return (RecordsOptions){.form = glue_task_is_custom(task->name) ? RECORDS_BY_NAME : RECORDS_TSV,
                            .columns = {[INDEX] = l->index, [TEXT_A] = l->a, [TEXT_B] = l->b, [LABEL] = l->label},
                            .optional = {[INDEX] = true},
                            .values = {[LABEL] = task->multi ? RECORD_LIST : RECORD_TEXT},
                            .n = N_COLUMNS,
                            .without_header = l->columns,
                            .short_rows = task->skip_short_rows && split->kind != GLUE_TEST};
}

static bool is_blank(RecordText s) { return record_trim(s).len == 0; }

/* Counts the rows with a text that `is` finds. */
static void warn_texts(const GlueExamples *x, bool (*is)(RecordText), const char *what)
{
    int64_t n = 0, first = 0;
    for (size_t i = 0; i < x->count; i++) {
        const GlueExample *e = &x->examples[i];
        if (!is(e->a) && !(e->b.p && is(e->b))) continue;
        if (n++ == 0) first = e->line;
    }
    if (n)
        log_warn("%s: %lld row%s %s; the first is line %lld", x->path, (long long)n, n == 1 ? " has" : "s have", what,
                 (long long)first);
}

static Status parse_rows(GlueExamples *x, Records *rows, const GlueTask *task, const GlueLayout *layout)
{
    size_t cap = 0;
    const Record *r;
    for (;;) {
        TakenKind kind;
        TRY(records_next(rows, &r));
        if (!r) break;
        size_t before = cap;
        MEM_GROW(x->examples, x->count, cap);
        if (task->multi && layout->label && cap > before)
            x->targets = mem_resize(x->targets, cap * (size_t)task->n_labels, sizeof *x->targets);
        TRY(parse_row(x, rows, r, task, layout, &x->examples[x->count], &kind));
        x->count += kind == ROW_TAKEN;
        x->skipped_unlabelled += kind == ROW_UNLABELLED;
        x->skipped_short += kind == ROW_SHORT;
    }
    for (size_t i = 0; x->targets && i < x->count; i++) /* it moves no more */
        x->examples[i].targets = x->targets + i * (size_t)task->n_labels;
    if (x->whole && x->whole == x->count)
        return fail(E_FORMAT,
                    "%s: each row has all labels: they look like vectors of 0 and 1, but labels are called so. "
                    "Name the elements otherwise, as --labels A,B",
                    x->path);
    warn_texts(x, is_blank, "an empty text");
    if (glue_task_is_custom(task->name))
        warn_texts(x, glue_label_missing, "a table's word for a missing value (nan, NA, None …) as text");
    records_warn_quotes(rows);
    if (x->skipped_unlabelled)
        log_warn("%s: left out %zu rows whose label is '%s' (no majority)", x->path, x->skipped_unlabelled,
                 task->skip_label);
    if (x->skipped_short)
        log_warn("%s: left out %zu rows with fewer than %lld columns", x->path, x->skipped_short,
                 (long long)records_columns(rows));
    if (x->count) return OK;
    return fail(E_FORMAT, "%s: expected at least one row%s, found %s", x->path, layout->label ? " with a label" : "",
                x->skipped_unlabelled || x->skipped_short ? "only rows that are left out" : "none after the header");
}

Status glue_parse(GlueExamples *x, const char *name, const void *data, size_t size, const GlueTask *task,
                  const GlueSplit *split)
{
    RecordsOptions o = rows_options(task, split);
    Records *rows = NULL;
    Status status = OK;
    *x = (GlueExamples){.labelled = split->layout->label != NULL, .path = mem_strdup(name)};
    if (split->kind != GLUE_TEST && !split->layout->label)
        TRY_DONE(fail(E_USAGE, "%s: training and evaluation need labels: give --label-column", name));
    TRY_DONE(data ? records_open_memory(&rows, name, data, size, &o) : records_open(&rows, name, &o));
    TRY_DONE(parse_rows(x, rows, task, split->layout));
done:
    records_close(rows);
    if (status != OK) glue_examples_free(x);
    return status;
}

/* ---- files ---- */

static Status path_in(const char *dir, const GlueSplit *split, char **path)
{
    if (records_form_of_name(split->file) == RECORDS_BY_NAME) return records_find(dir, split->file, path);
    *path = file_join(dir, split->file);
    return OK;
}

Status glue_split_path(const char *dir, const GlueTask *task, const GlueSplit *split, char **path)
{
    const char *names[] = {task->name, task->folder};
    char *folder = mem_strdup(dir);
    bool any = records_form_of_name(split->file) == RECORDS_BY_NAME;
    for (int i = 0; i < 2 && names[i]; i++) {
        char *own = file_join(dir, names[i]);
        bool there = file_is_directory(own);
        free(there ? folder : own);
        if (!there) continue;
        folder = own;
        break;
    }
    Status status = path_in(folder, split, path);
    if (status == OK && !(*path && file_exists(*path)))
        status = fail(E_IO,
                      "task %s needs %s%s%s%s for its split '%s', and there is no such file; --data-dir is the folder "
                      "that holds %s/ or the files themselves%s",
                      task->name, *path ? *path : folder, *path ? "" : "/", *path ? "" : split->file,
                      any ? ".tsv, .csv or .jsonl" : "", split->name, task->name,
                      split->kind == GLUE_TRAIN        ? ""
                      : any && split->kind == GLUE_DEV ? ", and --eval-fraction 0.1 holds out rows of the training file"
                                                       : ", and --eval-splits can leave a split out");
    if (status != OK) {
        free(*path);
        *path = NULL;
    }
    free(folder);
    return status;
}

Status glue_read(GlueExamples *x, const char *dir, const GlueTask *task, const GlueSplit *split)
{
    char *path = NULL;
    *x = (GlueExamples){0};
    Status status = glue_split_path(dir, task, split, &path);
    if (status == OK) status = glue_parse(x, path, NULL, 0, task, split);
    free(path);
    return status;
}

void glue_examples_drop_texts(GlueExamples *x)
{
    mem_free_texts(x->blocks, x->n_blocks);
    x->blocks = NULL;
    x->n_blocks = x->cap_blocks = 0;
    for (size_t i = 0; i < x->count; i++) x->examples[i].a.p = x->examples[i].b.p = NULL;
}

void glue_examples_free(GlueExamples *x)
{
    glue_examples_drop_texts(x);
    MEM_FREE(x->examples, x->targets, x->path);
    *x = (GlueExamples){0};
}
