/* Evaluation on held-out shards: exact sums over every masked word and every pair. */

#include "tasks/pretrain/run.h"
#include "train/job/evaluation.h"

/* The sums of one micro-batch. All ranks add them in the same order, because sums of doubles depend on it. */
typedef struct {
    int64_t number; /* ascending over all batches */
    double loss[2];
    int64_t correct[2];
    int64_t pairs; /* with a next-sentence label */
    int64_t masked;
} MicroSums;

typedef struct {
    Session *session;
    int64_t first; /* number of the batch's first part */
    MicroSums *parts;
    int n, cap;
} EvaluationSums;

static Status run_micro(void *context, const MicroBatch *b, int64_t number)
{
    EvaluationSums *parts = context;
    Stats sums;
    TRY(session_evaluate_sums(parts->session, b, &sums));
    if (!session_scores(parts->session)) return OK;
    MicroSums part = {.number = parts->first + number, .masked = b->n_masked};
    memcpy(part.loss, sums.loss, sizeof part.loss);
    memcpy(part.correct, sums.correct, sizeof part.correct);
    for (int32_t s = 0; s < b->n_seqs; s++) part.pairs += b->labels[s] >= 0;
    MEM_PUSH(parts->parts, parts->n, parts->cap, part);
    return OK;
}

/* Batch i is share i mod shares. */
static Status run_share(Run *r, EvaluationSums *parts)
{
    Shards *shards = ((PretrainRun *)r->own)->eval_shards;
    int64_t count = shards_count(shards), most = r->c->eval_batch_size;
    int64_t *index = mem_array((size_t)most, sizeof *index);
    Status status = OK;
    Evaluation v;
    int share, shares;
    session_group(&r->session, &share, &shares);
    evaluation_init(&v, r, (count + shares - 1) / shares);
    for (int64_t i = 0; i < most; i++) index[i] = i;
    for (int64_t first = share * most; first < count; first += shares * most) {
        const Examples *e;
        parts->first = first;
        TRY_DONE(shards_range(shards, first, count - first < most ? count - first : most, &e));
        TRY_DONE(evaluation_batch(&v, e, index, e->count, run_micro, parts));
    }
done:
    evaluation_free(&v);
    free(index);
    return status;
}

static int by_number(const void *a, const void *b)
{
    const MicroSums *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static Status gather_parts(Ranks *ranks, EvaluationSums *parts)
{
    size_t bytes = (size_t)parts->n * sizeof(MicroSums);
    TRY(ranks_gather(ranks, (void **)&parts->parts, &bytes));
    parts->n = (int)(bytes / sizeof(MicroSums));
    if (parts->n > 0) qsort(parts->parts, (size_t)parts->n, sizeof(MicroSums), by_number);
    return OK;
}

static Status add_up(const Run *r, const EvaluationSums *parts, PretrainResult *out)
{
    const char *folder = pretrain_folder(r->c, true);
    MicroSums all = {0};
    for (int i = 0; i < parts->n; i++) {
        const MicroSums *part = &parts->parts[i];
        for (int slot = 0; slot < 2; slot++) {
            all.loss[slot] += part->loss[slot];
            all.correct[slot] += part->correct[slot];
        }
        all.pairs += part->pairs;
        all.masked += part->masked;
    }
    out->masked = all.masked;
    if (out->masked == 0)
        return fail(E_FORMAT, "%s: no word of its %lld sequences is masked: there is nothing to evaluate", folder,
                    (long long)out->sequences);
    out->mlm_loss = all.loss[0] / (double)out->masked;
    out->mlm_accuracy = (double)all.correct[0] / (double)out->masked;
    out->perplexity = exp(out->mlm_loss);
    if (r->model.head.labels && all.pairs) {
        out->nsp_loss = all.loss[1] / (double)all.pairs;
        out->nsp_accuracy = (double)all.correct[1] / (double)all.pairs;
    }
    if (isfinite(all.loss[0])) return OK;
    return fail(E_NUMERIC, "the model's loss on %s is %g; its weights are unusable (see `cairn inspect`)", folder,
                all.loss[0]);
}

Status pretrain_evaluate_all(Run *r)
{
    PretrainRun *p = r->own;
    Status status = OK;
    EvaluationSums parts = {.session = &r->session};
    double start = clock_monotonic();
    p->result = (PretrainResult){.sequences = shards_count(p->eval_shards), .nsp_loss = NAN, .nsp_accuracy = NAN};
    TRY_DONE(ranks_meet(r->ranks)); /* before the places of a pipeline wait for each other */
    TRY_DONE(ranks_all(r->ranks, run_share(r, &parts)));
    TRY_DONE(gather_parts(r->ranks, &parts));
    p->result.seconds = clock_monotonic() - start;
    TRY_DONE(add_up(r, &parts, &p->result));
done:
    free(parts.parts);
    return status;
}

/* ---- its metrics ---- */

/* One line for the log. */
static void describe(const PretrainResult *x, Buf *text)
{
    buf_printf(text, "mlm_accuracy %.4f mlm_loss %.4f perplexity %.2f", x->mlm_accuracy, x->mlm_loss, x->perplexity);
    if (!isnan(x->nsp_loss)) buf_printf(text, " nsp_accuracy %.4f nsp_loss %.4f", x->nsp_accuracy, x->nsp_loss);
}

int64_t pretrain_samples(const Run *r)
{
    return batches_examples(r->source.count, r->c->batch_size, r->progress.batch);
}

bool pretrain_reached(const Run *r, double metric)
{
    return r->c->target_mlm_accuracy > 0 && metric >= r->c->target_mlm_accuracy;
}

Status pretrain_evaluate_during(Run *r, double *metric, Buf *text)
{
    PretrainRun *p = r->own;
    int64_t samples = pretrain_samples(r), step = r->progress.step;
    runlog_evaluation_start(p->log, samples);
    TRY(pretrain_evaluate_all(r));
    describe(&p->result, text);
    *metric = p->result.mlm_accuracy;
    bool reached = pretrain_reached(r, *metric);
    runlog_evaluation_end(p->log, samples, *metric, !reached && step < r->schedule.total_steps);
    if (reached) buf_printf(text, "; that is the target of %g", r->c->target_mlm_accuracy);
    return OK;
}

void pretrain_figures(const Run *r, EvalFigures *f)
{
    const PretrainResult *x = &((const PretrainRun *)r->own)->result;
    const EvalFigure all[] = {{"eval", "mlm_accuracy", "", x->mlm_accuracy, FIGURE_ANYWHERE},
                              {"eval", "mlm_loss", "", x->mlm_loss, FIGURE_ANYWHERE},
                              {"eval", "perplexity", "", x->perplexity, FIGURE_IN_LINES | FIGURE_IN_RESULTS},
                              {"eval", "nsp_accuracy", "", x->nsp_accuracy, FIGURE_ANYWHERE},
                              {"eval", "nsp_loss", "", x->nsp_loss, FIGURE_IN_LINES | FIGURE_IN_RESULTS}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].value)) MEM_PUSH(f->items, f->n, f->cap, all[i]);
    eval_count(f, "samples", "", x->sequences);
    eval_count(f, "masked_words", "", x->masked);
}

Status pretrain_evaluate(Run *r)
{
    const PretrainResult *x = &((PretrainRun *)r->own)->result;
    double target = r->c->target_mlm_accuracy;
    Buf text = {0};
    TRY(pretrain_evaluate_all(r));
    describe(x, &text);
    if (!r->train && target > 0)
        buf_printf(&text, "; %s the target of %g", x->mlm_accuracy >= target ? "that reaches" : "below", target);
    log_info("evaluation: %s (%lld sequences, %.1f seq/s)", text.data, (long long)x->sequences,
             (double)x->sequences / x->seconds);
    buf_free(&text);
    if (r->c->command != COMMAND_ADAPT) return OK;
    return ranks_all(r->ranks, run_first(r) ? adapt_write(r) : OK);
}

/* ---- how often ---- */

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
