#include "train/job/evaluation.h"

#include "train/ranks/signals.h"

void evaluation_init(Evaluation *v, const Run *r, int64_t count)
{
    size_t n = (size_t)r->c->eval_batch_size;
    *v = (Evaluation){.run = r, .count = count};
    if (run_first(r) && !r->stage) stage_progress_open(&v->progress);
    v->order = mem_array(n, sizeof *v->order);
    v->ranges = mem_array(n, sizeof *v->ranges);
    micro_batch_init(&v->batch, r->session.plan.eval_micro);
}

void evaluation_free(Evaluation *v)
{
    stage_progress_close(&v->progress);
    micro_batch_free(&v->batch);
    MEM_FREE(v->order, v->ranges);
}

static void show(Evaluation *v)
{
    RunStage *s = v->run->stage;
    StageProgress *p = s ? &s->progress : &v->progress;
    double share = (double)v->done / (double)v->count;
    if (!run_first(v->run) || !stage_progress_due(p)) return;
    const char *what = s ? SHORT_TEXT("predicting: %.0f texts", (double)s->done + share * (double)s->count)
                         : SHORT_TEXT("evaluating: %lld of %lld examples", (long long)v->done, (long long)v->count);
    stage_progress_show(p, s ? s->share + share * s->part : share, what);
}

static Status stopped(void) { return fail(E_STOPPED, "stopped in evaluation"); }

Status evaluation_batch(Evaluation *v, const Examples *e, const int64_t *index, int64_t n, EvaluationMicro micro,
                        void *context)
{
    const Run *r = v->run;
    int64_t padded = run_padded_length(r);
    bool stop = *signals_stop() || ranks_hurry(r->ranks);
    TRY(session_evaluation_stop(&r->session, &stop)); /* the places of a pipeline end together */
    if (stop) return stopped();
    int64_t micros = micro_split(e, index, NULL, n, &r->session.plan.eval_micro, padded, v->order, v->ranges);
    for (int64_t m = 0; m < micros; m++) {
        if (!r->session.pipeline_comm && (*signals_stop() || ranks_hurry(r->ranks))) return stopped();
        micro_fill(&v->batch, e, index, v->order + v->ranges[m].first, v->ranges[m].count, padded,
                   r->model.config.pad_token_id);
        TRY(micro(context, &v->batch, m));
        v->done += v->ranges[m].count;
        show(v);
    }
    return OK;
}

/* ---- every example once, in file order ---- */

typedef struct {
    Session *session;
    const Examples *examples;
    bool by_token;          /* a row of logits per token, else per example */
    int labels;             /* columns of the logits */
    float *values, *losses; // (rows, labels), (count)
    float *rows, *loss;     // of a micro-batch: (rows, labels), (seqs)
} Forward;

/* An example's first row among all logits, and its number of rows. */
static int64_t first_row(const Forward *f, int64_t example)
{
    return f->by_token ? f->examples->offset[example] : example;
}

static int64_t n_rows(const Forward *f, int64_t example)
{
    return f->by_token ? example_length(f->examples, example) : 1;
}

static float *values_of(const Forward *f, int64_t example) { return f->values + first_row(f, example) * f->labels; }

static size_t values_bytes(const Forward *f, int64_t example)
{
    return (size_t)(n_rows(f, example) * f->labels) * sizeof *f->values;
}

static Status run_micro(void *context, const MicroBatch *b, int64_t number)
{
    Forward *f = context;
    (void)number;
    TRY(session_evaluate(f->session, b, f->rows, f->loss));
    for (int64_t i = 0; i < b->n_seqs; i++) {
        int64_t row = f->by_token ? b->spans[2 * i] : i;
        memcpy(values_of(f, b->example[i]), f->rows + row * f->labels, values_bytes(f, b->example[i]));
        f->losses[b->example[i]] = f->loss[i];
    }
    return OK;
}

/* Evaluates the examples index[0..n), in batches. */
static Status run_examples(Forward *f, const Run *r, const int64_t *index, int64_t n)
{
    Status status = OK;
    const MicroCapacity *most_rows = &f->session->plan.eval_micro;
    int64_t most = r->c->eval_batch_size;
    Evaluation v;
    evaluation_init(&v, r, n);
    f->loss = mem_array((size_t)most_rows->seqs, sizeof *f->loss);
    f->rows = mem_array((size_t)((f->by_token ? most_rows->tokens : most_rows->seqs) * f->labels), sizeof *f->rows);
    for (int64_t first = 0; first < n && status == OK; first += most)
        status = evaluation_batch(&v, f->examples, index + first, n - first < most ? n - first : most, run_micro, f);
    MEM_FREE(f->loss, f->rows);
    evaluation_free(&v);
    return status;
}

/* Sends each rank's results to all, as records of an example's number, loss and logits. */
static Status gather_results(const Forward *f, Ranks *ranks, const int64_t *index, int64_t n)
{
    size_t bytes = 0, head = sizeof(int64_t) + sizeof(float);
    for (int64_t i = 0; i < n; i++) bytes += head + values_bytes(f, index[i]);
    char *all = mem_alloc(bytes), *at = all;
    for (int64_t i = 0; i < n; i++) {
        memcpy(at, &index[i], sizeof index[i]);
        memcpy(at + sizeof(int64_t), &f->losses[index[i]], sizeof(float));
        memcpy(at + head, values_of(f, index[i]), values_bytes(f, index[i]));
        at += head + values_bytes(f, index[i]);
    }
    Status status = ranks_gather(ranks, (void **)&all, &bytes);
    for (at = all; status == OK && at < all + bytes;) {
        int64_t example;
        memcpy(&example, at, sizeof example);
        memcpy(&f->losses[example], at + sizeof(int64_t), sizeof(float));
        memcpy(values_of(f, example), at + head, values_bytes(f, example));
        at += head + values_bytes(f, example);
    }
    free(all);
    return status;
}

Status evaluation_logits(Run *r, const Examples *e, float *values, double *mean_loss)
{
    Status status = OK;
    Ranks *ranks = r->ranks;
    int64_t *index = mem_array((size_t)e->count, sizeof *index), *mine = index, n = e->count;
    Forward f = {.session = &r->session,
                 .examples = e,
                 .by_token = r->model.head.kind == HEAD_SPAN,
                 .labels = r->model.head.labels,
                 .values = values,
                 .losses = mem_array((size_t)e->count, sizeof(float))};
    double sum = 0;
    for (int64_t i = 0; i < e->count; i++) index[i] = i;
    if (ranks) {
        mine = mem_array((size_t)e->count, sizeof *mine);
        int share, shares;
        session_group(&r->session, &share, &shares);
        n = rank_share(e, index, e->count, run_padded_length(r), share, shares, mine);
    }
    TRY_DONE(ranks_meet(ranks)); /* before the places of a pipeline wait for each other */
    TRY_DONE(ranks_all(ranks, run_examples(&f, r, mine, n)));
    if (ranks) TRY_DONE(gather_results(&f, ranks, mine, session_scores(&r->session) ? n : 0));
    for (int64_t i = 0; i < e->count; i++) sum += (double)f.losses[i]; /* in file order, however they were batched */
    *mean_loss = e->count ? sum / (double)e->count : NAN;
done:
    if (mine != index) free(mine);
    MEM_FREE(index, f.losses);
    return status;
}
