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
    int64_t cap_tokens = s->options.eval_tokens, cap_seqs = s->options.eval_seqs;
    int64_t *index = mem_array((size_t)e->count, sizeof *index);
    MicroRange *ranges = mem_array((size_t)batch_size, sizeof *ranges);
    float *loss = mem_array((size_t)cap_seqs, sizeof *loss);
    MicroBatch b;
    double sum = 0;
    micro_batch_init(&b, cap_tokens, cap_seqs);
    for (int64_t i = 0; i < e->count; i++) index[i] = i;
    for (int64_t first = 0; first < e->count; first += batch_size) {
        int64_t n = e->count - first < batch_size ? e->count - first : batch_size;
        int64_t micros = micro_split(e, index + first, n, cap_tokens, cap_seqs, padded_length, ranges);
        for (int64_t m = 0; m < micros; m++) {
            if (stop && *stop) {
                status = fail(E_STOPPED, "stopped in evaluation");
                goto done;
            }
            int64_t at = first + ranges[m].first;
            micro_fill(&b, e, index + at, ranges[m].count, ranges[m].first, padded_length,
                       s->model->config.pad_token_id);
            TRY_DONE(session_evaluate(s, &b, values + at * labels, loss));
            for (int64_t i = 0; i < ranges[m].count; i++) sum += (double)loss[i];
        }
    }
    *mean_loss = e->count ? sum / (double)e->count : NAN;
done:
    micro_batch_free(&b);
    free(index);
    free(ranges);
    free(loss);
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
