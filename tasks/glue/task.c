/* `cairn glue`: fine-tune, evaluate, predict. */

#include "tasks/glue/run.h"
#include "train/job/result.h"
#include "train/ranks/signals.h"
#include "train/run/check.h"
#include "train/run/start.h"

/* Whether --eval-splits, a list of names or "all", names `split`. Every name must be one of the task's. */
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

static Status find_task(GlueRun *g, const Config *c)
{
    bool wanted;
    g->task = &g->custom.task;
    if (!glue_task_is_custom(c->task)) {
        TRY(glue_task_find(c->task, &g->task));
    } else {
        if ((c->do_train || c->do_eval) && !*c->label_column)
            return fail(E_USAGE,
                        "--task custom: give the labels' column as --label-column (prediction alone needs none)");
        TRY(glue_custom_init(&g->custom, c->text_columns, c->label_column, c->labels, c->multi_label));
    }
    return split_wanted(g->task, c, NULL, &wanted); /* a wrong name in --eval-splits */
}

/* Own data without --task custom would be read as a task of GLUE. */
static Status check_custom_options(const Config *c)
{
    static const int options[] = {OPTION_text_columns, OPTION_label_column,  OPTION_labels,
                                  OPTION_multi_label,  OPTION_eval_fraction, OPTION_split_seed};
    if (glue_task_is_custom(c->task)) return OK;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!config_is_default(c, options[i]))
            return fail(E_USAGE, "--%s is an option of --task custom, found --task %s; own data need --task custom",
                        config_flag(options[i]), c->task);
    return OK;
}

static Status check(Run *r)
{
    const Config *c = r->c;
    r->train = c->do_train;
    if (!c->do_train && !c->do_eval && !glue_predicts(c))
        return fail(E_USAGE, "nothing to do: give --do-train, --do-eval or --do-predict");
    TRY(check_evaluations(c));
    TRY(check_custom_options(c));
    if (!(c->eval_fraction > 0) && !config_is_default(c, OPTION_split_seed))
        return fail(E_USAGE, "--split-seed %lld: expected --eval-fraction, whose draw it seeds; give both or neither",
                    (long long)c->split_seed);
    if (!r->train)
        TRY(adopt_options(r, glue_task_is_custom(c->task) ? ADOPT_COLUMNS : ADOPT_TEXTS,
                          &((GlueRun *)r->own)->adopted));
    return find_task(r->own, r->c);
}

/* ---- reading ---- */

static Status plan(const Config *c, Head *head, PlanInput *need)
{
    TRY(glue_plan_head(c, head));
    need->evaluation = true;
    return OK;
}

/* Training's labels are targets. */
static bool has_targets(const Config *c) { return c->do_train && (c->label_smoothing > 0 || *c->class_weights); }

static Status open_model(Run *r, const GlueTask *task)
{
    char *path = NULL;
    Status status = start_model(r->c, &r->text, glue_head(task), r->c->max_seq_length, &r->model, &path);
    if (status == OK && r->model.config.types == 1 && glue_task_has_pairs(task))
        status =
            fail(E_USAGE,
                 "the task %s has pairs of sentences, and %s has token types ('type_vocab_size') for one only; give a "
                 "model that was made for pairs",
                 task->name, path);
    r->model.soft_labels = has_targets(r->c);
    free(path);
    return status;
}

static Status read_rows(const Run *r, const GlueSplit *split, GlueSplitData *d)
{
    d->split = split;
    return glue_read(&d->raw, r->c->data_dir, ((const GlueRun *)r->own)->task, split);
}

static Status take_rows(Run *r, GlueSplitData *d)
{
    const GlueRun *g = r->own;
    const Config *c = r->c;
    if (d->split->kind == GLUE_DEV && c->eval_first > 0 && d->raw.count > (size_t)c->eval_first)
        d->raw.count = (size_t)c->eval_first;
    TRY(glue_tokenize(&d->raw, g->task, g->tokenizer, (int)c->max_seq_length, signals_stop(), &d->examples));
    glue_examples_drop_texts(&d->raw);
    run_says(r, "%s%s: %lld examples, %.1f tokens on average, %lld cut at %lld", run_file(r, d->raw.path),
             d->split->kind == GLUE_DEV && c->eval_fraction > 0 ? ", held out" : "", (long long)d->examples.count,
             examples_mean_length(&d->examples), (long long)d->examples.cut, (long long)c->max_seq_length);
    return OK;
}

/* The dev split from rows of the training file. */
static Status hold_out(Run *r)
{
    GlueRun *g = r->own;
    const Config *c = r->c;
    const GlueSplit *dev = glue_split_at(g->task, GLUE_DEV, 0);
    GlueSplitData *d = &g->splits[g->n_splits];
    char *path = NULL;
    bool wanted = false;
    Status status = OK;
    if (glue_split_path(c->data_dir, g->task, dev, &path) != E_IO)
        status = fail(E_USAGE,
                      "--eval-fraction %g holds out rows of %s, and %s is a dev split, too; move that file elsewhere, "
                      "or drop --eval-fraction",
                      c->eval_fraction, g->train.raw.path, path ? path : "a file beside it");
    free(path);
    TRY(status);
    d->split = dev;
    TRY(glue_hold_out(&g->train.raw, g->task, c->eval_fraction, (uint64_t)c->split_seed, &d->raw));
    if (c->do_eval) TRY(split_wanted(g->task, c, dev, &wanted));
    g->n_splits += wanted;
    if (wanted) return take_rows(r, d);
    glue_examples_free(&d->raw);
    return OK;
}

static Status read_train(Run *r)
{
    GlueRun *g = r->own;
    const Config *c = r->c;
    const GlueSplit *split = glue_split_at(g->task, GLUE_TRAIN, 0);
    if (!split) return fail(E_USAGE, "the task %s has no training data; use --no-do-train --do-predict", g->task->name);
    TRY(read_rows(r, split, &g->train));
    if (c->eval_fraction > 0) TRY(hold_out(r));
    if (!c->do_train) {
        glue_examples_drop_texts(&g->train.raw);
        return OK;
    }
    TRY(take_rows(r, &g->train));
    if (g->train.raw.labelled && g->train.examples.count > 0) return OK;
    return fail(E_FORMAT, "%s: nothing to train on (%lld labelled examples)", g->train.raw.path,
                (long long)g->train.examples.count);
}

static Status read_data(Run *r)
{
    GlueRun *g = r->own;
    const Config *c = r->c;
    bool wanted, held_out = c->eval_fraction > 0;
    if (c->do_train || (held_out && c->do_eval)) TRY(read_train(r));
    for (int kind = GLUE_DEV; kind <= GLUE_TEST; kind++) {
        if (kind == GLUE_DEV ? !c->do_eval || held_out : !glue_predicts(c)) continue;
        const GlueSplit *split;
        for (int i = 0; (split = glue_split_at(g->task, (GlueSplitKind)kind, i)); i++) {
            TRY(split_wanted(g->task, c, split, &wanted));
            if (!wanted) continue;
            GlueSplitData *d = &g->splits[g->n_splits++];
            TRY(read_rows(r, split, d));
            TRY(take_rows(r, d));
        }
    }
    if (!c->do_train && g->n_splits == 0)
        return fail(E_USAGE, "--eval-splits %s leaves nothing of the task %s to do", c->eval_splits, g->task->name);
    return OK;
}

/* --best-by: what the task has, and of a classification what every one has. */
static Status choose_best_by(Run *r)
{
    GlueRun *g = r->own;
    const GlueTask *t = g->task;
    const char *by = r->c->best_by;
    GlueMetric has[GLUE_MAX_METRICS + 2];
    int n = t->n_metrics;
    Buf names = {0};
    memcpy(has, t->metrics, (size_t)n * sizeof *has);
    if (!t->regression) has[n++] = GLUE_MACRO_F1, has[n++] = GLUE_WEIGHTED_F1;
    g->by_loss = strcmp(by, "loss") == 0;
    g->best = t->best;
    r->metric = g->by_loss ? "-loss" : glue_metric_name(t->best);
    if (!*by || g->by_loss) return OK;
    for (int i = 0; i < n; i++) {
        const char *name = glue_metric_name(has[i]);
        buf_printf(&names, "%s, ", name);
        if (strcmp(by, name) != 0) continue;
        g->best = has[i];
        r->metric = name;
        buf_free(&names);
        return OK;
    }
    Status status = fail(E_USAGE, "--best-by is '%s'; expected one of %sloss", by, names.data);
    buf_free(&names);
    return status;
}

static Status open_task(Run *r)
{
    GlueRun *g = r->own;
    adopt_log(&g->adopted);
    r->use.max_length = r->c->max_seq_length;
    if (glue_task_is_custom(r->c->task)) {
        r->use.text_columns = r->c->text_columns;
        r->use.label_column = r->c->label_column;
    } else if (g->task->splits[0].layout->b) {
        r->use.text_columns = g->pair = mem_printf("%s,%s", g->task->splits[0].layout->a, g->task->splits[0].layout->b);
    }
    if (glue_task_is_custom(r->c->task)) TRY(glue_custom_labels(&g->custom, r->c));
    if (has_targets(r->c) && (g->task->regression || g->task->multi))
        return fail(E_USAGE, "--%s is for tasks of one label in several, and %s",
                    *r->c->class_weights ? "class-weights" : "label-smoothing",
                    g->task->multi ? "here a row has any number of labels" : "here labels are scores");
    r->name = g->task->name;
    TRY(choose_best_by(r));
    r->labels = g->task->labels;
    r->n_labels = g->task->n_labels;
    TRY(start_text(r->c, NULL, &r->text));
    g->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    TRY(open_model(r, g->task));
    TRY(read_data(r));
    if (has_targets(r->c)) TRY(glue_weigh_classes(r));
    r->evaluate = g->n_splits > 0;
    g->loaded = (LoadedExamples){&g->train.examples, (uint64_t)r->c->seed, r->c->batch_size};
    r->source = loaded_source(&g->loaded);
    return OK;
}

static void need(Run *r, PlanInput *n)
{
    const GlueRun *g = r->own;
    const Examples *e = r->train ? &g->train.examples : &g->splits[0].examples;
    n->mean_length = e->count ? examples_mean_length(e) : (double)r->c->max_seq_length;
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

/* Training can begin with a new head; evaluation cannot use one. */
static Status take_import(Run *r, const ImportReport *report, float *weights)
{
    const GlueTask *task = ((const GlueRun *)r->own)->task;
    if (!r->train) TRY(glue_check_import(task, r->c->model, report));
    if (task->regression || !import_report_loaded(report, "classifier.weight")) return OK;
    return glue_order_labels(task, r->c->model, &r->model, weights);
}

/* ---- the end ---- */

static bool results_there(const Run *r) { return !glue_predicts(r->c) && result_there(r); }

static void split_free(GlueSplitData *d)
{
    glue_examples_free(&d->raw);
    examples_free(&d->examples);
    glue_scores_free(&d->scores);
    free(d->values);
}

static void close_task(Run *r)
{
    GlueRun *g = r->own;
    split_free(&g->train);
    for (int i = 0; i < g->n_splits; i++) split_free(&g->splits[i]);
    tokenizer_free(g->tokenizer);
    glue_custom_free(&g->custom);
    adopt_free(&g->adopted);
    free(g->pair);
}

const Task task_glue = {.size = sizeof(GlueRun),
                        .folder = true,
                        .plan = plan,
                        .check = check,
                        .open = open_task,
                        .need = need,
                        .train_digest = train_digest,
                        .eval_digest = eval_digest,
                        .results_there = results_there,
                        .take_import = take_import,
                        .evaluate_during = glue_evaluate_during,
                        .reached = check_patience,
                        .evaluate = glue_evaluate,
                        .figures = glue_figures,
                        .members = glue_members,
                        .close = close_task};
