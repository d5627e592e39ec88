/* `cairn glue`: fine-tune, evaluate, predict. */
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/labels.h"
#include "tasks/glue/run.h"
#include "train/result.h"
#include "train/signals.h"

static Status check(Run *r)
{
    const Config *c = r->c;
    r->train = c->do_train;
    if (!c->do_train && !c->do_eval && !glue_predicts(c))
        return fail(E_USAGE, "nothing to do: give --do-train, --do-eval or --do-predict");
    if (c->eval_every > 0 && !c->do_eval)
        return fail(E_USAGE, "--eval-every evaluates while training: give --do-eval too");
    return OK;
}

/* ---- reading ---- */

static Status find_task(GlueRun *g, const Config *c)
{
    if (!glue_task_is_custom(c->task)) return glue_task_find(c->task, &g->task);
    if ((c->do_train || c->do_eval) && !*c->label_column)
        return fail(E_USAGE, "--task custom: give the labels' column as --label-column (prediction alone needs none)");
    TRY(glue_custom_init(&g->custom, c->text_columns, c->label_column, c->labels));
    g->task = &g->custom.task;
    return OK;
}

static Head head_of(int width) { return (Head){width > 1 ? HEAD_CLASSIFIER : HEAD_REGRESSION, width}; }

static Status head(const Config *c, Head *h)
{
    int width;
    TRY(glue_width(c, &width));
    *h = head_of(width);
    return OK;
}

static Status open_model(Run *r, const GlueTask *task)
{
    char *path = NULL;
    Status status = start_model(r->c, &r->text, head_of(task->n_labels), r->c->max_seq_length, &r->model, &path);
    if (status == OK && r->model.config.types < 2 && glue_task_has_pairs(task))
        status =
            fail(E_USAGE,
                 "the task %s has pairs of sentences, and %s has token types ('type_vocab_size') for one only; give a "
                 "model that was made for pairs",
                 task->name, path);
    free(path);
    return status;
}

static double mean_length(const Examples *e) { return e->count ? (double)e->offset[e->count] / (double)e->count : 0; }

static Status read_split(const GlueRun *g, const Config *c, const GlueSplit *split, GlueSplitData *d)
{
    d->split = split;
    TRY(glue_read(&d->raw, c->data_dir, g->task, split));
    TRY(glue_tokenize(&d->raw, g->task, g->tokenizer, (int)c->max_seq_length, signals_stop(), &d->examples));
    log_info("%s: %lld examples, %.1f tokens on average", d->raw.path, (long long)d->examples.count,
             mean_length(&d->examples));
    return OK;
}

/* --eval-splits names `split`: it is a list of names, or "all". Every name must be one of the task's. */
static Status split_wanted(const GlueTask *task, const Config *c, const GlueSplit *split, bool *wanted)
{
    Status status = OK;
    *wanted = strcmp(c->eval_splits, "all") == 0 || *c->eval_splits == '\0';
    if (*wanted) return OK;
    char *names = mem_strdup(c->eval_splits), *at = names;
    for (char *name = strsep(&at, ","); name && status == OK; name = strsep(&at, ",")) {
        const GlueSplit *named;
        status = glue_split_find(task, name, &named);
        if (status == OK && named == split) *wanted = true;
    }
    free(names);
    return status;
}

static Status read_data(GlueRun *g, const Config *c)
{
    bool wanted;
    TRY(split_wanted(g->task, c, NULL, &wanted)); /* a wrong name fails before anything is read */
    if (c->do_train) {
        const GlueSplit *split = glue_split_at(g->task, GLUE_TRAIN, 0);
        if (!split)
            return fail(E_USAGE, "the task %s has no training data; use --no-do-train --do-predict", g->task->name);
        TRY(read_split(g, c, split, &g->train));
        if (!g->train.raw.labelled || g->train.examples.count == 0)
            return fail(E_FORMAT, "%s: nothing to train on (%lld labelled examples)", g->train.raw.path,
                        (long long)g->train.examples.count);
    }
    for (int kind = GLUE_DEV; kind <= GLUE_TEST; kind++) {
        if (kind == GLUE_DEV ? !c->do_eval : !glue_predicts(c)) continue;
        const GlueSplit *split;
        for (int i = 0; (split = glue_split_at(g->task, (GlueSplitKind)kind, i)); i++) {
            TRY(split_wanted(g->task, c, split, &wanted));
            if (wanted) TRY(read_split(g, c, split, &g->splits[g->n_splits++]));
        }
    }
    if (!c->do_train && g->n_splits == 0)
        return fail(E_USAGE, "--eval-splits %s leaves nothing of the task %s to do", c->eval_splits, g->task->name);
    return OK;
}

static Status open_task(Run *r)
{
    GlueRun *g = r->own;
    TRY(find_task(g, r->c));
    r->name = g->task->name;
    r->labels = g->task->labels;
    r->n_labels = g->task->n_labels;
    TRY(start_text(r->c, NULL, &r->text));
    g->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    TRY(open_model(r, g->task));
    TRY(read_data(g, r->c));
    r->evaluate = g->n_splits > 0;
    g->loaded = (LoadedExamples){&g->train.examples, (uint64_t)r->c->seed, r->c->batch_size};
    r->source = loaded_source(&g->loaded);
    return OK;
}

static void need(Run *r, PlanInput *n)
{
    const GlueRun *g = r->own;
    const Examples *e = r->train ? &g->train.examples : &g->splits[0].examples;
    n->mean_length = e->count ? mean_length(e) : (double)r->c->max_seq_length;
}

/* ---- digests and weights ---- */

static Digest train_digest(const Run *r) { return ((const GlueRun *)r->own)->train.examples.digest; }

static Digest eval_digest(const Run *r)
{
    const GlueRun *g = r->own;
    Digest parts[2 * GLUE_MAX_SPLITS];
    for (int i = 0; i < g->n_splits; i++) parts[i] = g->splits[i].examples.digest;
    return digest_of(parts, (size_t)g->n_splits * sizeof *parts);
}

/* A new head is fine for training, but worthless for evaluation. */
static Status take_import(Run *r, const ImportReport *report, float *weights)
{
    const GlueTask *task = ((const GlueRun *)r->own)->task;
    if (!r->train && report->n[IMPORT_NEW])
        return fail(E_FORMAT, "%s has no trained head for %s; train first", report->path, task->name);
    if (task->regression || !import_report_loaded(report, "classifier.weight")) return OK;
    return glue_order_labels(task, r->c->model, &r->model, weights);
}

/* ---- results ---- */

/* run.json, which is written last, has a figure of every split that is asked for. */
static bool results_there(const Run *r)
{
    const GlueRun *g = r->own;
    char *names[2 * GLUE_MAX_SPLITS];
    for (int i = 0; i < g->n_splits; i++)
        names[i] = mem_printf("%s %s", g->splits[i].split->name, glue_metric_name(g->task->metrics[0]));
    bool there = !glue_predicts(r->c) && result_there(r->c->output_dir, r->resume.progress.step, names, g->n_splits);
    for (int i = 0; i < g->n_splits; i++) free(names[i]);
    return there;
}

static void figures(const Run *r, RunSummary *s)
{
    const GlueRun *g = r->own;
    for (int i = 0; i < g->n_splits; i++)
        for (int m = 0; m < glue_dev_metrics(g, i); m++)
            summary_add_eval(s, g->splits[i].split->name, glue_metric_name(g->task->metrics[m]),
                             g->splits[i].result.metrics[m]);
}

static void split_free(GlueSplitData *d)
{
    glue_examples_free(&d->raw);
    examples_free(&d->examples);
    free(d->values);
}

static void close_task(Run *r)
{
    GlueRun *g = r->own;
    split_free(&g->train);
    for (int i = 0; i < g->n_splits; i++) split_free(&g->splits[i]);
    tokenizer_free(g->tokenizer);
    glue_custom_free(&g->custom);
}

const Task task_glue = {.size = sizeof(GlueRun),
                        .head = head,
                        .check = check,
                        .open = open_task,
                        .need = need,
                        .train_digest = train_digest,
                        .eval_digest = eval_digest,
                        .results_there = results_there,
                        .take_import = take_import,
                        .evaluate_during = glue_evaluate_during,
                        .evaluate = glue_evaluate,
                        .figures = figures,
                        .close = close_task};
