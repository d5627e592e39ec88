/* Exact evaluation: every example once, in file order, each row's result independent of its neighbours; so the figures
   are the same for any batch size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/run.h"
#include "train/ranks.h"

typedef struct {
    Session *session;
    const Examples *e;
    int64_t batch_size, padded_length;
    const volatile sig_atomic_t *stop;
    float *values, *losses; // (count, labels), (count)
} Forward;

/* The examples index[0..n), in batches. */
static Status run_examples(const Forward *f, const int64_t *index, int64_t n)
{
    Status status = OK;
    Session *s = f->session;
    int labels = s->model->head.labels;
    const MicroCapacity *cap = &s->plan.eval_micro;
    int64_t *order = mem_array((size_t)f->batch_size, sizeof *order);
    MicroRange *ranges = mem_array((size_t)f->batch_size, sizeof *ranges);
    float *loss = mem_array((size_t)cap->seqs, sizeof *loss),
          *rows = mem_array((size_t)(cap->seqs * labels), sizeof *rows);
    MicroBatch b;
    micro_batch_init(&b, *cap);
    for (int64_t first = 0; first < n; first += f->batch_size) {
        int64_t some = n - first < f->batch_size ? n - first : f->batch_size;
        int64_t micros = micro_split(f->e, index + first, some, cap, f->padded_length, order, ranges);
        for (int64_t m = 0; m < micros; m++) {
            if ((f->stop && *f->stop) || ranks_hurry(s->options.ranks)) {
                status = fail(E_STOPPED, "stopped in evaluation");
                goto done;
            }
            micro_fill(&b, f->e, index + first, order + ranges[m].first, ranges[m].count, f->padded_length,
                       s->model->config.pad_token_id);
            TRY_DONE(session_evaluate(s, &b, rows, loss));
            for (int64_t i = 0; i < ranges[m].count; i++) {
                memcpy(f->values + b.example[i] * labels, rows + i * labels, (size_t)labels * sizeof *rows);
                f->losses[b.example[i]] = loss[i];
            }
        }
    }
done:
    micro_batch_free(&b);
    free(ranges);
    free(loss);
    free(order);
    free(rows);
    return status;
}

/* With ranks: what each ran goes to all, as records of an example's number, loss and logits. */
static Status gather(const Forward *f, const int64_t *index, int64_t n)
{
    Comm *comm = ranks_comm(f->session->options.ranks);
    size_t row = (size_t)f->session->model->head.labels * sizeof(float), size = sizeof(int64_t) + sizeof(float) + row;
    size_t mine = (size_t)n * size, *bytes = mem_array((size_t)comm->size, sizeof *bytes), before = 0, total = 0;
    char *all = NULL;
    Status status = OK;
    TRY_DONE(comm_allgather(comm, &mine, sizeof mine, bytes));
    for (int r = 0; r < comm->size; r++) {
        before += r < comm->rank ? bytes[r] : 0;
        total += bytes[r];
    }
    all = mem_alloc(total);
    for (int64_t i = 0; i < n; i++) {
        char *at = all + before + (size_t)i * size;
        memcpy(at, &index[i], sizeof index[i]);
        memcpy(at + sizeof(int64_t), &f->losses[index[i]], sizeof(float));
        memcpy(at + sizeof(int64_t) + sizeof(float), (char *)f->values + (size_t)index[i] * row, row);
    }
    TRY_DONE(comm_allgatherv(comm, all, bytes));
    for (char *at = all; at < all + total; at += size) {
        int64_t example;
        memcpy(&example, at, sizeof example);
        memcpy(&f->losses[example], at + sizeof(int64_t), sizeof(float));
        memcpy((char *)f->values + (size_t)example * row, at + sizeof(int64_t) + sizeof(float), row);
    }
done:
    free(bytes);
    free(all);
    return status;
}

Status glue_forward(Session *s, const Examples *e, int64_t batch_size, int64_t padded_length,
                    const volatile sig_atomic_t *stop, float *values, double *mean_loss)
{
    Status status = OK;
    Ranks *ranks = s->options.ranks;
    int64_t *index = mem_array((size_t)e->count, sizeof *index), *mine = index, n = e->count;
    Forward f = {s, e, batch_size, padded_length, stop, values, mem_array((size_t)e->count, sizeof(float))};
    double sum = 0;
    for (int64_t i = 0; i < e->count; i++) index[i] = i;
    if (ranks) {
        mine = mem_array((size_t)e->count, sizeof *mine);
        n = rank_share(e, index, e->count, padded_length, ranks_rank(ranks), ranks_size(ranks), mine);
    }
    TRY_DONE(ranks_all(ranks, run_examples(&f, mine, n)));
    if (ranks) TRY_DONE(gather(&f, mine, n));
    for (int64_t i = 0; i < e->count; i++) sum += (double)f.losses[i]; /* in file order, however they were batched */
    *mean_loss = e->count ? sum / (double)e->count : NAN;
done:
    if (mine != index) free(mine);
    free(index);
    free(f.losses);
    return status;
}

void glue_softmax(float *values, int64_t rows, int labels)
{
    for (int64_t r = 0; r < rows; r++) {
        float *x = values + r * labels;
        double largest = (double)x[0], sum = 0;
        for (int i = 1; i < labels; i++)
            if ((double)x[i] > largest) largest = (double)x[i];
        for (int i = 0; i < labels; i++) sum += exp((double)x[i] - largest);
        for (int i = 0; i < labels; i++) x[i] = (float)(exp((double)x[i] - largest) / sum);
    }
}
