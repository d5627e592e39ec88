/* The results of `cairn glue`: metrics of its splits, and predictions. */

#include "tasks/glue/run.h"
#include "train/job/evaluation.h"

static Status evaluate_split(Run *r, GlueSplitData *d)
{
    const GlueTask *task = ((const GlueRun *)r->own)->task;
    int labels = r->model.head.labels;
    double start = clock_monotonic();
    GlueScores scores = {0};
    if (!d->values) d->values = mem_array((size_t)d->examples.count * (size_t)labels, sizeof(float));
    TRY(evaluation_logits(r, &d->examples, d->values, &d->result.loss));
    for (int64_t i = 0; i < d->examples.count * labels; i++)
        if (!isfinite(d->values[i]))
            return fail(E_NUMERIC,
                        "%s:%lld: the model's output for this row is %g; its weights are unusable (see `cairn "
                        "inspect`)",
                        d->raw.path, (long long)d->raw.examples[i / labels].line, (double)d->values[i]);
    d->result.seconds = clock_monotonic() - start;
    if (!d->raw.labelled) return OK;
    for (int64_t i = 0; i < d->examples.count; i++)
        glue_scores_add(&scores, task, d->values + i * labels, &d->raw.examples[i]);
    for (int m = 0; m < task->n_metrics; m++) d->result.metrics[m] = glue_scores_value(&scores, task, task->metrics[m]);
    d->result.best = glue_scores_value(&scores, task, task->best);
    glue_scores_undefined(&scores, task, d->result.undefined, sizeof d->result.undefined);
    glue_scores_free(&scores);
    return OK;
}

static void describe_result(const GlueTask *task, const GlueSplitData *d, Buf *text)
{
    buf_printf(text, "%s%s:", text->len ? "; " : "", d->split->name);
    for (int m = 0; m < task->n_metrics; m++)
        buf_printf(text, " %s %.4f", glue_metric_name(task->metrics[m]), d->result.metrics[m]);
    buf_printf(text, " loss %.4f", d->result.loss);
    if (*d->result.undefined) buf_printf(text, " (nan: %s)", d->result.undefined);
}

Status glue_evaluate_during(Run *r, double *metric, Buf *text)
{
    GlueRun *g = r->own;
    bool first = true;
    *metric = NAN;
    for (int i = 0; i < g->n_splits; i++) {
        GlueSplitData *d = &g->splits[i];
        if (d->split->kind != GLUE_DEV) continue;
        TRY(evaluate_split(r, d));
        if (first) *metric = d->result.best;
        first = false;
        describe_result(g->task, d, text);
    }
    return OK;
}

void glue_figures(const Run *r, EvalFigures *f)
{
    const GlueRun *g = r->own;
    for (int i = 0; i < g->n_splits; i++) {
        const GlueResult *x = &g->splits[i].result;
        const GlueSplit *split = g->splits[i].split;
        if (split->kind != GLUE_DEV) continue;
        eval_figure(f, split->name, "loss", split->suffix, x->loss, FIGURE_IN_RESULTS);
        for (int m = 0; m < g->task->n_metrics; m++)
            eval_figure(f, split->name, glue_metric_name(g->task->metrics[m]), split->suffix, x->metrics[m],
                        FIGURE_ANYWHERE);
        eval_count(f, "samples", split->suffix, g->splits[i].examples.count);
    }
}

static Status write_predictions(const Run *r, GlueSplitData *d)
{
    const GlueTask *task = ((const GlueRun *)r->own)->task;
    glue_probabilities(task, d->values, d->examples.count);
    TRY(glue_predictions_write(r->c->output_dir, task, d->split, &d->raw, d->values));
    if (*r->c->submission && d->split->submission)
        TRY(glue_submission_write(r->c->submission, task, d->split, &d->raw, d->values));
    return OK;
}

Status glue_evaluate(Run *r)
{
    GlueRun *g = r->own;
    for (int i = 0; i < g->n_splits; i++) {
        GlueSplitData *d = &g->splits[i];
        Buf text = {0};
        TRY(evaluate_split(r, d));
        if (d->split->kind == GLUE_DEV)
            describe_result(g->task, d, &text);
        else
            buf_printf(&text, "%s: predicted", d->split->name);
        log_info("%s (%lld examples, %.1f seq/s)", text.data, (long long)d->examples.count,
                 (double)d->examples.count / d->result.seconds);
        buf_free(&text);
        TRY(ranks_all(r->ranks, run_first(r) ? write_predictions(r, d) : OK));
    }
    return OK;
}
