/* Exact evaluation: every example once, in file order, each row's result independent of its neighbours; so the figures
   are the same for any batch size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/glue/run.h"

Status glue_forward(Session *s, const Examples *e, int64_t batch_size, int64_t padded_length,
                    const volatile sig_atomic_t *stop, float *values, double *mean_loss)
{
    Status status = OK;
    int labels = s->model->head.labels;
    const MicroCapacity *cap = &s->options.eval;
    int64_t *index = mem_array((size_t)e->count, sizeof *index), *order = mem_array((size_t)batch_size, sizeof *order);
    MicroRange *ranges = mem_array((size_t)batch_size, sizeof *ranges);
    float *loss = mem_array((size_t)cap->seqs, sizeof *loss),
          *rows = mem_array((size_t)(cap->seqs * labels), sizeof *rows);
    float *losses = mem_array((size_t)e->count, sizeof *losses);
    MicroBatch b;
    double sum = 0;
    micro_batch_init(&b, *cap);
    for (int64_t i = 0; i < e->count; i++) index[i] = i;
    for (int64_t first = 0; first < e->count; first += batch_size) {
        int64_t n = e->count - first < batch_size ? e->count - first : batch_size;
        int64_t micros = micro_split(e, index + first, n, cap, padded_length, order, ranges);
        for (int64_t m = 0; m < micros; m++) {
            if (stop && *stop) {
                status = fail(E_STOPPED, "stopped in evaluation");
                goto done;
            }
            micro_fill(&b, e, index + first, order + ranges[m].first, ranges[m].count, padded_length,
                       s->model->config.pad_token_id);
            TRY_DONE(session_evaluate(s, &b, rows, loss));
            for (int64_t i = 0; i < ranges[m].count; i++) {
                memcpy(values + b.example[i] * labels, rows + i * labels, (size_t)labels * sizeof *rows);
                losses[b.example[i]] = loss[i];
            }
        }
    }
    for (int64_t i = 0; i < e->count; i++) sum += (double)losses[i]; /* in file order, however they were batched */
    *mean_loss = e->count ? sum / (double)e->count : NAN;
done:
    micro_batch_free(&b);
    free(index);
    free(ranges);
    free(loss);
    free(losses);
    free(order);
    free(rows);
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
