/* Evaluation on held-out shards: exact sums over every masked word and every pair, so the figures are the same for any
   batch size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/pretrain/run.h"
#include "train/signals.h"

typedef struct {
    Stats sums;
    int64_t pairs; /* with a next-sentence label */
} Sums;

static Status add_micro(PretrainRun *r, const MicroBatch *b, Sums *all)
{
    Stats sums;
    TRY(session_evaluate_sums(&r->session, b, &sums));
    for (int slot = 0; slot < 2; slot++) {
        all->sums.loss[slot] += sums.loss[slot];
        all->sums.correct[slot] += sums.correct[slot];
    }
    for (int32_t s = 0; s < b->n_seqs; s++) all->pairs += b->label[s] >= 0;
    return OK;
}

static Status evaluate_batch(PretrainRun *r, const Examples *e, MicroBatch *b, int64_t *scratch, MicroRange *ranges,
                             Sums *all)
{
    int64_t n = e->count, *index = scratch, *order = scratch + n;
    int64_t padded = r->c->padded ? r->c->max_seq_length : 0;
    for (int64_t i = 0; i < n; i++) index[i] = i;
    int64_t micros = micro_split(e, index, n, &r->session.options.eval, padded, order, ranges);
    for (int64_t m = 0; m < micros; m++) {
        if (*signals_stop()) return fail(E_STOPPED, "stopped in evaluation");
        micro_fill(b, e, index, order + ranges[m].first, ranges[m].count, padded, r->model.config.pad_token_id);
        TRY(add_micro(r, b, all));
    }
    r->result.masked += e->masked_offset ? e->masked_offset[n] : 0;
    return OK;
}

Status pretrain_evaluate(PretrainRun *r)
{
    Status status = OK;
    Sums all = {0};
    MicroBatch b;
    PretrainResult *out = &r->result;
    int64_t count = shards_count(r->eval_shards), most = r->c->eval_batch_size;
    int64_t *scratch = mem_array((size_t)most, 2 * sizeof *scratch);
    MicroRange *ranges = mem_array((size_t)most, sizeof *ranges);
    double start = clock_monotonic();
    *out = (PretrainResult){.sequences = count, .nsp_loss = NAN, .nsp_accuracy = NAN};
    micro_batch_init(&b, r->session.options.eval);
    for (int64_t first = 0; first < count; first += most) {
        const Examples *e;
        TRY_DONE(shards_range(r->eval_shards, first, count - first < most ? count - first : most, &e));
        TRY_DONE(evaluate_batch(r, e, &b, scratch, ranges, &all));
    }
    out->seconds = clock_monotonic() - start;
    out->mlm_loss = all.sums.loss[0] / (double)out->masked;
    out->mlm_accuracy = (double)all.sums.correct[0] / (double)out->masked;
    out->perplexity = exp(out->mlm_loss);
    if (r->model.head.labels && all.pairs) {
        out->nsp_loss = all.sums.loss[1] / (double)all.pairs;
        out->nsp_accuracy = (double)all.sums.correct[1] / (double)all.pairs;
    }
    if (!isfinite(all.sums.loss[0]))
        status = fail(E_NUMERIC, "the model's loss on %s is %g; its weights are not of use (see `cairn inspect`)",
                      *r->c->eval_dir ? r->c->eval_dir : r->c->data_dir, all.sums.loss[0]);
done:
    micro_batch_free(&b);
    free(scratch);
    free(ranges);
    return status;
}

void pretrain_describe(const PretrainResult *x, Buf *text)
{
    buf_printf(text, "mlm_accuracy %.4f mlm_loss %.4f perplexity %.2f", x->mlm_accuracy, x->mlm_loss, x->perplexity);
    if (!isnan(x->nsp_loss)) buf_printf(text, " nsp_accuracy %.4f nsp_loss %.4f", x->nsp_accuracy, x->nsp_loss);
}

/* Name and value of each figure; the table of eval.jsonl and eval_results. */
#define FIGURES(x)                                                                                                     \
    {                                                                                                                  \
        {"mlm_accuracy", (x)->mlm_accuracy}, {"mlm_loss", (x)->mlm_loss}, {"perplexity", (x)->perplexity},             \
            {"nsp_accuracy", (x)->nsp_accuracy}, {"nsp_loss", (x)->nsp_loss},                                          \
    }
typedef struct {
    const char *name;
    double value;
} Figure;

int64_t pretrain_samples(const PretrainRun *r, int64_t batches)
{
    return batches_examples(shards_count(r->shards), r->c->batch_size, batches);
}

Status pretrain_evaluate_during(void *context, Metrics *metrics, int64_t step, double *metric, Buf *text)
{
    PretrainRun *r = context;
    double target = r->c->target_mlm_accuracy;
    int64_t samples = pretrain_samples(r, r->progress.batch);
    runlog_evaluation_start(r->log, samples);
    TRY(pretrain_evaluate(r));
    Figure figures[] = FIGURES(&r->result);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (!isnan(figures[i].value)) TRY(metrics_eval(metrics, step, "eval", figures[i].name, figures[i].value));
    pretrain_describe(&r->result, text);
    *metric = r->result.mlm_accuracy;
    r->reached = target > 0 && r->result.mlm_accuracy >= target;
    runlog_evaluation_end(r->log, samples, r->result.mlm_accuracy);
    if (r->reached) buf_printf(text, "; that is the target of %g", target);
    return OK;
}

Status pretrain_write_results(const PretrainRun *r)
{
    Figure figures[] = FIGURES(&r->result);
    Buf json = {0}, text = {0};
    Status status = OK;
    char *json_path = file_join(r->c->output_dir, "eval_results.json"),
         *text_path = file_join(r->c->output_dir, "eval_results.txt");
    buf_puts(&json, "{");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (isnan(figures[i].value)) continue;
        buf_printf(&json, "%s\n  \"eval_%s\": ", json.len > 1 ? "," : "", figures[i].name);
        buf_double(&json, figures[i].value);
        buf_printf(&text, "eval_%s = %.17g\n", figures[i].name, figures[i].value);
    }
    buf_printf(&json, ",\n  \"eval_samples\": %lld,\n  \"eval_masked_words\": %lld\n}\n",
               (long long)r->result.sequences, (long long)r->result.masked);
    buf_printf(&text, "eval_samples = %lld\neval_masked_words = %lld\n", (long long)r->result.sequences,
               (long long)r->result.masked);
    TRY_DONE(file_write_durable(json_path, json.data, json.len));
    TRY_DONE(file_write_durable(text_path, text.data, text.len));
done:
    buf_free(&json);
    buf_free(&text);
    free(json_path);
    free(text_path);
    return status;
}

/* MLPerf Training's rule for BERT: every 0.05 · (230.23 · batch + 3000000) sequences, down to a multiple of 25000. */
Status pretrain_eval_samples(const Config *c, int64_t *samples)
{
    char *end;
    *samples = 0;
    if (!*c->eval_samples) return OK;
    if (strcmp(c->eval_samples, "mlperf") == 0) {
        double exact = 0.05 * (230.23 * (double)c->batch_size + 3e6);
        *samples = (int64_t)floor(exact / 25000) * 25000;
        return OK;
    }
    long long n = strtoll(c->eval_samples, &end, 10);
    if (end == c->eval_samples || *end != '\0' || n < 1)
        return fail(E_USAGE, "--eval-samples '%s': expected a count of sequences, or mlperf", c->eval_samples);
    *samples = n;
    return OK;
}
