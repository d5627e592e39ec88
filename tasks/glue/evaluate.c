/* Exact evaluation: every example once, in file order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/run.h"
#include "train/evaluation.h"

typedef struct {
    Session *session;
    float *values, *losses; // (count, labels), (count)
    float *rows, *loss;     // of a micro-batch: (seqs, labels), (seqs)
} Forward;

static Status run_micro(void *context, const MicroBatch *b, int64_t number)
{
    Forward *f = context;
    int labels = f->session->model->head.labels;
    (void)number;
    TRY(session_evaluate(f->session, b, f->rows, f->loss));
    for (int64_t i = 0; i < b->n_seqs; i++) {
        memcpy(f->values + b->example[i] * labels, f->rows + i * labels, (size_t)labels * sizeof *f->rows);
        f->losses[b->example[i]] = f->loss[i];
    }
    return OK;
}

/* Evaluates the examples index[0..n), in batches. */
static Status run_examples(Forward *f, const Run *r, const Examples *e, const int64_t *index, int64_t n)
{
    Status status = OK;
    int64_t most = r->c->eval_batch_size, seqs = f->session->plan.eval_micro.seqs;
    Evaluation v;
    evaluation_init(&v, r, n);
    f->loss = mem_array((size_t)seqs, sizeof *f->loss);
    f->rows = mem_array((size_t)(seqs * f->session->model->head.labels), sizeof *f->rows);
    for (int64_t first = 0; first < n && status == OK; first += most)
        status = evaluation_batch(&v, e, index + first, n - first < most ? n - first : most, run_micro, f);
    free(f->loss);
    free(f->rows);
    evaluation_free(&v);
    return status;
}

/* Sends each rank's results to all, as records of an example's number, loss and logits. */
static Status gather_results(const Forward *f, Ranks *ranks, const int64_t *index, int64_t n)
{
    size_t row = (size_t)f->session->model->head.labels * sizeof(float), size = sizeof(int64_t) + sizeof(float) + row;
    size_t bytes = (size_t)n * size;
    char *all = mem_alloc(bytes), *at = all;
    for (int64_t i = 0; i < n; i++, at += size) {
        memcpy(at, &index[i], sizeof index[i]);
        memcpy(at + sizeof(int64_t), &f->losses[index[i]], sizeof(float));
        memcpy(at + sizeof(int64_t) + sizeof(float), (char *)f->values + (size_t)index[i] * row, row);
    }
    Status status = ranks_gather(ranks, (void **)&all, &bytes);
    for (at = all; status == OK && at < all + bytes; at += size) {
        int64_t example;
        memcpy(&example, at, sizeof example);
        memcpy(&f->losses[example], at + sizeof(int64_t), sizeof(float));
        memcpy((char *)f->values + (size_t)example * row, at + sizeof(int64_t) + sizeof(float), row);
    }
    free(all);
    return status;
}

Status glue_forward(Run *r, const Examples *e, float *values, double *mean_loss)
{
    Status status = OK;
    Ranks *ranks = r->ranks;
    int64_t *index = mem_array((size_t)e->count, sizeof *index), *mine = index, n = e->count;
    Forward f = {.session = &r->session, .values = values, .losses = mem_array((size_t)e->count, sizeof(float))};
    double sum = 0;
    for (int64_t i = 0; i < e->count; i++) index[i] = i;
    if (ranks) {
        mine = mem_array((size_t)e->count, sizeof *mine);
        int share, shares;
        session_evaluation_share(&r->session, &share, &shares);
        n = rank_share(e, index, e->count, run_padded_length(r), share, shares, mine);
    }
    TRY_DONE(ranks_meet(ranks)); /* before the places of a pipeline wait for each other */
    TRY_DONE(ranks_all(ranks, run_examples(&f, r, e, mine, n)));
    if (ranks) TRY_DONE(gather_results(&f, ranks, mine, session_scores(&r->session) ? n : 0));
    for (int64_t i = 0; i < e->count; i++) sum += (double)f.losses[i]; /* in file order, however they were batched */
    *mean_loss = e->count ? sum / (double)e->count : NAN;
done:
    if (mine != index) free(mine);
    free(index);
    free(f.losses);
    return status;
}
