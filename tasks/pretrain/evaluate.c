/* Evaluation on held-out shards: exact sums over every masked word and every pair, so the figures are the same for any
   batch size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/pretrain/run.h"
#include "train/signals.h"

/* What one micro-batch gave. They are added in order, whichever rank ran them: sums of doubles depend on it. */
typedef struct {
    int64_t number; /* ascending over all batches */
    double loss[2];
    int64_t correct[2];
    int64_t pairs; /* with a next-sentence label */
    int64_t masked;
} Part;

typedef struct {
    Part *parts;
    int n, cap;
} Parts;

static Status run_micro(PretrainRun *r, const MicroBatch *b, int64_t number, Parts *parts)
{
    Stats sums;
    TRY(session_evaluate_sums(&r->session, b, &sums));
    MEM_GROW(parts->parts, parts->n, parts->cap);
    Part *part = &parts->parts[parts->n++];
    *part = (Part){.number = number, .masked = b->n_masked};
    memcpy(part->loss, sums.loss, sizeof part->loss);
    memcpy(part->correct, sums.correct, sizeof part->correct);
    for (int32_t s = 0; s < b->n_seqs; s++) part->pairs += b->label[s] >= 0;
    return OK;
}

static Status evaluate_batch(PretrainRun *r, const Examples *e, MicroBatch *b, int64_t *scratch, MicroRange *ranges,
                             int64_t number, Parts *parts)
{
    int64_t n = e->count, *index = scratch, *order = scratch + n;
    int64_t padded = r->c->padded ? r->c->max_seq_length : 0;
    for (int64_t i = 0; i < n; i++) index[i] = i;
    int64_t micros = micro_split(e, index, n, &r->session.plan.eval_micro, padded, order, ranges);
    for (int64_t m = 0; m < micros; m++) {
        if (*signals_stop() || ranks_hurry(r->ranks)) return fail(E_STOPPED, "stopped in evaluation");
        micro_fill(b, e, index, order + ranges[m].first, ranges[m].count, padded, r->model.config.pad_token_id);
        TRY(run_micro(r, b, number + m, parts));
    }
    return OK;
}

/* Every so many-th batch is this rank's. */
static Status run_share(PretrainRun *r, Parts *parts)
{
    Status status = OK;
    MicroBatch b;
    int64_t count = shards_count(r->eval_shards), most = r->c->eval_batch_size, ranks = ranks_size(r->ranks);
    int64_t *scratch = mem_array((size_t)most, 2 * sizeof *scratch);
    MicroRange *ranges = mem_array((size_t)most, sizeof *ranges);
    micro_batch_init(&b, r->session.plan.eval_micro);
    for (int64_t first = ranks_rank(r->ranks) * most; first < count; first += ranks * most) {
        const Examples *e;
        TRY_DONE(shards_range(r->eval_shards, first, count - first < most ? count - first : most, &e));
        TRY_DONE(evaluate_batch(r, e, &b, scratch, ranges, first, parts));
    }
done:
    micro_batch_free(&b);
    free(scratch);
    free(ranges);
    return status;
}

static int by_number(const void *a, const void *b)
{
    const Part *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static Status gather(PretrainRun *r, Parts *parts)
{
    Comm *comm = ranks_comm(r->ranks);
    size_t mine = (size_t)parts->n * sizeof(Part), before = 0, total = 0;
    size_t *bytes = mem_array((size_t)comm->size, sizeof *bytes);
    Status status = comm_allgather(comm, &mine, sizeof mine, bytes);
    for (int i = 0; i < comm->size && status == OK; i++) {
        before += i < comm->rank ? bytes[i] : 0;
        total += bytes[i];
    }
    Part *all = mem_alloc(total);
    if (status == OK && mine > 0) memcpy((char *)all + before, parts->parts, mine);
    if (status == OK) status = comm_allgatherv(comm, all, bytes);
    free(bytes);
    free(parts->parts);
    *parts = (Parts){all, (int)(total / sizeof *all), 0};
    qsort(all, (size_t)parts->n, sizeof *all, by_number);
    return status;
}

static Status add_up(PretrainRun *r, const Parts *parts)
{
    PretrainResult *out = &r->result;
    Part all = {0};
    for (int i = 0; i < parts->n; i++) {
        const Part *part = &parts->parts[i];
        for (int slot = 0; slot < 2; slot++) {
            all.loss[slot] += part->loss[slot];
            all.correct[slot] += part->correct[slot];
        }
        all.pairs += part->pairs;
        all.masked += part->masked;
    }
    out->masked = all.masked;
    if (out->masked == 0)
        return fail(E_FORMAT, "%s: no word of its %lld sequences is masked: there is nothing to evaluate",
                    *r->c->eval_dir ? r->c->eval_dir : r->c->data_dir, (long long)out->sequences);
    out->mlm_loss = all.loss[0] / (double)out->masked;
    out->mlm_accuracy = (double)all.correct[0] / (double)out->masked;
    out->perplexity = exp(out->mlm_loss);
    if (r->model.head.labels && all.pairs) {
        out->nsp_loss = all.loss[1] / (double)all.pairs;
        out->nsp_accuracy = (double)all.correct[1] / (double)all.pairs;
    }
    if (isfinite(all.loss[0])) return OK;
    return fail(E_NUMERIC, "the model's loss on %s is %g; its weights are not of use (see `cairn inspect`)",
                *r->c->eval_dir ? r->c->eval_dir : r->c->data_dir, all.loss[0]);
}

Status pretrain_evaluate(PretrainRun *r)
{
    Status status = OK;
    Parts parts = {0};
    double start = clock_monotonic();
    r->result = (PretrainResult){.sequences = shards_count(r->eval_shards), .nsp_loss = NAN, .nsp_accuracy = NAN};
    TRY_DONE(ranks_all(r->ranks, run_share(r, &parts)));
    if (r->ranks) TRY_DONE(gather(r, &parts));
    r->result.seconds = clock_monotonic() - start;
    TRY_DONE(add_up(r, &parts));
done:
    free(parts.parts);
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
    runlog_evaluation_end(r->log, samples, r->result.mlm_accuracy, !r->reached && step < r->schedule.total_steps);
    if (r->reached) buf_printf(text, "; that is the target of %g", target);
    return OK;
}

Status pretrain_write_results(const PretrainRun *r)
{
    Figure figures[] = FIGURES(&r->result);
    Buf json = {0}, text = {0};
    Status status = OK;
    char digest[33];
    digest_format(shards_digest(r->eval_shards), digest);
    char *json_path = file_join(r->c->output_dir, "eval_results.json"),
         *text_path = file_join(r->c->output_dir, "eval_results.txt");
    buf_puts(&json, "{");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (isnan(figures[i].value)) continue;
        buf_printf(&json, "%s\n  \"eval_%s\": ", json.len > 1 ? "," : "", figures[i].name);
        buf_double(&json, figures[i].value);
        buf_printf(&text, "eval_%s = %.17g\n", figures[i].name, figures[i].value);
    }
    buf_printf(&json, ",\n  \"eval_samples\": %lld,\n  \"eval_masked_words\": %lld,\n  \"eval_data\": \"%s\"\n}\n",
               (long long)r->result.sequences, (long long)r->result.masked, digest);
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

bool pretrain_results_there(const PretrainRun *r)
{
    Json *doc = NULL;
    char digest[33], *path = file_join(r->c->output_dir, "eval_results.json");
    digest_format(shards_digest(r->eval_shards), digest);
    bool same =
        file_exists(path) && js_read(path, &doc) == OK && strcmp(js_string(js_get(doc, "eval_data"), ""), digest) == 0;
    js_free(doc);
    free(path);
    return same;
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
