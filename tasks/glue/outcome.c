/* What a run of `cairn glue` says in the end: figures of its splits, predictions, the best model on the way. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/run.h"
#include "train/result.h"
#include "train/signals.h"

void glue_export_text(const GlueRun *r, ExportText *text)
{
    *text = (ExportText){.vocab = r->text.file.data,
                         .vocab_len = r->text.file.len,
                         .lower_case = r->text.options.lower_case,
                         .strip_accents = r->text.options.strip_accents};
    if (r->task->regression) return;
    text->labels = r->task->labels;
    text->n_labels = r->task->n_labels;
}

static Status evaluate_split(GlueRun *r, GlueSplitData *d)
{
    int labels = r->model.head.labels;
    double start = clock_monotonic();
    GlueScores scores = {0};
    if (!d->values) d->values = mem_array((size_t)d->examples.count * (size_t)labels, sizeof(float));
    TRY(glue_forward(&r->session, &d->examples, r->c->eval_batch_size, r->c->padded ? r->c->max_seq_length : 0,
                     signals_stop(), d->values, &d->result.loss));
    for (int64_t i = 0; i < d->examples.count * labels; i++)
        if (!isfinite(d->values[i]))
            return fail(E_NUMERIC,
                        "%s:%lld: the model's output for this row is %g; its weights are not of use (see `cairn "
                        "inspect`)",
                        d->raw.path, (long long)d->raw.examples[i / labels].line, (double)d->values[i]);
    d->result.seconds = clock_monotonic() - start;
    d->result.examples = d->examples.count;
    if (!d->raw.labelled) return OK;
    for (int64_t i = 0; i < d->examples.count; i++)
        glue_scores_add(&scores, r->task, d->values + i * labels, &d->raw.examples[i]);
    for (int m = 0; m < r->task->n_metrics; m++)
        d->result.metrics[m] = glue_scores_value(&scores, r->task, r->task->metrics[m]);
    d->result.best = glue_scores_value(&scores, r->task, r->task->best);
    glue_scores_free(&scores);
    return OK;
}

static void describe_result(const GlueRun *r, const GlueSplitData *d, Buf *text)
{
    buf_printf(text, "%s%s:", text->len ? "; " : "", d->split->name);
    for (int m = 0; m < r->task->n_metrics; m++)
        buf_printf(text, " %s %.4f", glue_metric_name(r->task->metrics[m]), d->result.metrics[m]);
    buf_printf(text, " loss %.4f", d->result.loss);
}

/* In the middle of training: the first dev split picks the best. */
Status glue_evaluate_during(void *context, Metrics *metrics, int64_t step, double *metric, Buf *text)
{
    GlueRun *r = context;
    *metric = NAN;
    for (int i = 0; i < r->n_splits; i++) {
        GlueSplitData *d = &r->splits[i];
        if (d->split->kind != GLUE_DEV) continue;
        TRY(evaluate_split(r, d));
        if (isnan(*metric)) *metric = d->result.best;
        describe_result(r, d, text);
    }
    for (int i = 0; i < r->n_splits; i++) /* once none of them can be stopped any more */
        for (int m = 0; r->splits[i].split->kind == GLUE_DEV && m < r->task->n_metrics; m++)
            TRY(metrics_eval(metrics, step, r->splits[i].split->name, glue_metric_name(r->task->metrics[m]),
                             r->splits[i].result.metrics[m]));
    return OK;
}

Status glue_keep_best(void *context, int64_t step, double metric)
{
    GlueRun *r = context;
    ExportText text;
    glue_export_text(r, &text);
    return result_keep_best(r->c->output_dir, &r->model, &r->session, &text, step, metric);
}

/* eval_results.json and .txt: eval_accuracy, eval_accuracy_mm, eval_loss …, as Hugging Face and Google name them. */
static Status write_results(const GlueRun *r)
{
    Buf json = {0}, text = {0};
    Status status = OK;
    char *json_path = file_join(r->c->output_dir, "eval_results.json"),
         *text_path = file_join(r->c->output_dir, "eval_results.txt");
    int n = 0;
    buf_puts(&json, "{");
    for (int i = 0; i < r->n_splits; i++) {
        const GlueSplitData *d = &r->splits[i];
        if (d->split->kind != GLUE_DEV) continue;
        for (int m = -1; m < r->task->n_metrics; m++) {
            const char *name = m < 0 ? "loss" : glue_metric_name(r->task->metrics[m]);
            double value = m < 0 ? d->result.loss : d->result.metrics[m];
            buf_printf(&json, "%s\n  \"eval_%s%s\": ", n++ ? "," : "", name, d->split->suffix);
            buf_double(&json, value);
            buf_printf(&text, "eval_%s%s = %.17g\n", name, d->split->suffix, value);
        }
        buf_printf(&json, ",\n  \"eval_samples%s\": %lld", d->split->suffix, (long long)d->examples.count);
        buf_printf(&text, "eval_samples%s = %lld\n", d->split->suffix, (long long)d->examples.count);
    }
    buf_puts(&json, "\n}\n");
    if (n) {
        TRY_DONE(file_write_durable(json_path, json.data, json.len));
        TRY_DONE(file_write_durable(text_path, text.data, text.len));
    }
done:
    buf_free(&json);
    buf_free(&text);
    free(json_path);
    free(text_path);
    return status;
}

static Status write_predictions(GlueRun *r, GlueSplitData *d)
{
    if (!r->task->regression) glue_softmax(d->values, d->examples.count, r->model.head.labels);
    TRY(glue_predictions_write(r->c->output_dir, r->task, d->split, &d->raw, d->values));
    if (*r->c->submission && d->split->submission)
        TRY(glue_submission_write(r->c->submission, r->task, d->split, &d->raw, d->values));
    return OK;
}

Status glue_evaluate_all(GlueRun *r)
{
    for (int i = 0; i < r->n_splits; i++) {
        GlueSplitData *d = &r->splits[i];
        Buf text = {0};
        TRY(evaluate_split(r, d));
        if (d->split->kind == GLUE_DEV)
            describe_result(r, d, &text);
        else
            buf_printf(&text, "%s: predicted", d->split->name);
        log_info("%s (%lld examples, %.1f seq/s)", text.data, (long long)d->examples.count,
                 (double)d->examples.count / d->result.seconds);
        buf_free(&text);
        TRY(ranks_follow(r->ranks, ranks_first(r->ranks) ? write_predictions(r, d) : OK));
    }
    return ranks_follow(r->ranks, ranks_first(r->ranks) ? write_results(r) : OK);
}
