/* The results of `cairn glue`: metrics of its splits, and predictions. */

#include "tasks/glue/run.h"
#include "train/job/evaluation.h"

static Status evaluate_split(Run *r, GlueSplitData *d)
{
    const GlueTask *task = ((const GlueRun *)r->own)->task;
    int labels = r->model.head.labels;
    double start = clock_monotonic();
    if (!d->values) d->values = mem_array((size_t)d->examples.count * (size_t)labels, sizeof(float));
    TRY(evaluation_logits(r, &d->examples, d->values, &d->loss));
    for (int64_t i = 0; i < d->examples.count * labels; i++)
        if (!isfinite(d->values[i]))
            return fail(E_NUMERIC,
                        "%s:%lld: the model's output for this row is %g; its weights are unusable (see `cairn "
                        "inspect`)",
                        d->raw.path, (long long)d->raw.examples[i / labels].line, (double)d->values[i]);
    d->seconds = clock_monotonic() - start;
    glue_scores_free(&d->scores);
    for (int64_t i = 0; d->raw.labelled && i < d->examples.count; i++)
        glue_scores_add(&d->scores, task, d->values + i * labels, &d->raw.examples[i]);
    return OK;
}

static void describe_result(const GlueTask *task, const GlueSplitData *d, Buf *text)
{
    char undefined[160];
    buf_printf(text, "%s%s:", text->len ? "; " : "", d->split->name);
    for (int m = 0; m < task->n_metrics; m++)
        buf_printf(text, " %s %.4f", glue_metric_name(task->metrics[m]),
                   glue_scores_value(&d->scores, task, task->metrics[m]));
    if (glue_task_is_custom(task->name) && !task->regression)
        buf_printf(text, " macro_f1 %.4f", glue_scores_value(&d->scores, task, GLUE_MACRO_F1));
    buf_printf(text, " loss %.4f", d->loss);
    glue_scores_undefined(&d->scores, task, undefined, sizeof undefined);
    if (*undefined) buf_printf(text, " (nan: %s)", undefined);
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
        if (first) *metric = g->by_loss ? -d->loss : glue_scores_value(&d->scores, g->task, g->best);
        first = false;
        describe_result(g->task, d, text);
    }
    return OK;
}

static void put_metric(const GlueRun *g, const GlueSplitData *d, GlueMetric metric, int places, EvalFigures *f)
{
    eval_figure(f, d->split->name, glue_metric_name(metric), d->split->suffix,
                glue_scores_value(&d->scores, g->task, metric), places);
}

void glue_figures(const Run *r, EvalFigures *f)
{
    const GlueRun *g = r->own;
    for (int i = 0; i < g->n_splits; i++) {
        const GlueSplitData *d = &g->splits[i];
        if (d->split->kind != GLUE_DEV) continue;
        eval_figure(f, d->split->name, "loss", d->split->suffix, d->loss, FIGURE_IN_RESULTS | FIGURE_IN_LINES);
        for (int m = 0; m < g->task->n_metrics; m++) put_metric(g, d, g->task->metrics[m], FIGURE_ANYWHERE, f);
        if (!g->task->regression) {
            put_metric(g, d, GLUE_MACRO_F1, FIGURE_ANYWHERE, f);
            put_metric(g, d, GLUE_WEIGHTED_F1, FIGURE_IN_RESULTS, f);
        }
        eval_count(f, "samples", d->split->suffix, d->examples.count);
        eval_count(f, "samples_cut", d->split->suffix, d->examples.cut);
    }
}

/* The scores of each label, by split. */
void glue_members(const Run *r, Buf *json)
{
    const GlueRun *g = r->own;
    int n = 0;
    for (int i = 0; i < g->n_splits && !g->task->regression; i++) {
        const GlueSplitData *d = &g->splits[i];
        if (d->split->kind != GLUE_DEV || d->scores.n == 0) continue;
        buf_printf(json, "%s\n    \"%s\": ", n++ ? "," : ",\n  \"eval_labels\": {", d->split->name);
        glue_label_scores_put(&d->scores, g->task, json);
    }
    if (n) buf_puts(json, "\n  }");
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
                 (double)d->examples.count / d->seconds);
        buf_free(&text);
        TRY(ranks_all(r->ranks, run_first(r) ? write_predictions(r, d) : OK));
    }
    return OK;
}
