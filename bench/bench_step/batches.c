/* Batches of random words, full or of given lengths, with masked positions spread over each sequence. */
#include <stdlib.h>

#include "bench/bench_step/rig.h"
#include "data/lengths.h"

Batch batches[BATCHES];
RowCounts capacity;
double mean_seqs, mean_tokens, mean_masked, beside;

static uint32_t scramble(uint32_t x)
{
    x *= 2654435761u;
    return x ^ x >> 15;
}

static void add_sequence(Batch *m, int64_t length)
{
    MicroBatch *b = &m->b;
    int32_t s = b->n_seqs++, first = b->n_tokens, n = (int32_t)length;
    b->spans[2 * s] = first;
    b->spans[2 * s + 1] = first + n;
    b->seq_index[s] = s;
    b->labels[s] = s % (want.predictions ? 2 : 3);
    for (int32_t i = 0; i < n; i++) {
        int32_t row = first + i;
        b->ids[row] = (int32_t)(scramble((uint32_t)row) % (uint32_t)model.config.vocab_size);
        b->types[row] = i > n / 2;
        b->pos[row] = i;
        b->seq[row] = s;
    }
    b->first[s] = micro_read(b, first);
    int64_t masked = want.predictions ? want.predictions * length / want.length : 0;
    if (want.predictions && masked < 1) masked = 1;
    for (int64_t i = 0; i < masked; i++) {
        int32_t row = first + (int32_t)(i * length / masked);
        b->masked[b->n_masked] = micro_read(b, row);
        b->masked_labels[b->n_masked++] = (int32_t)(scramble((uint32_t)row + 7) % (uint32_t)model.config.vocab_size);
    }
    b->n_tokens += n;
    m->squares += (double)length * (double)length;
}

void batches_make(void)
{
    Lengths l = {0};
    int64_t rows = (want.batch * want.length + 63) / 64 * 64, next = 0;
    int64_t most = want.lengths ? rows / 3 + 1 : want.batch, drawn = 4096;
    double squares = 0;
    if (want.lengths) must(lengths_read(want.lengths, &l));
    if (l.longest > want.length) {
        fprintf(stderr, "bench_step: %s has sequences of %lld tokens; the length is %lld\n", want.lengths,
                (long long)l.longest, (long long)want.length);
        exit(2);
    }
    for (int i = 0; i < BATCHES; i++) {
        Batch *m = &batches[i];
        micro_batch_init(&m->b, (MicroCapacity){rows, most, want.predictions ? rows : 0});
        while (m->b.n_seqs < most) {
            int64_t length = want.lengths ? lengths_at(&l, next % drawn, drawn) : want.length;
            if (m->b.n_tokens + length > rows) break;
            add_sequence(m, length);
            next++;
        }
        mean_seqs += (double)m->b.n_seqs / BATCHES;
        mean_tokens += (double)m->b.n_tokens / BATCHES;
        mean_masked += (double)m->b.n_masked / BATCHES;
        squares += m->squares / BATCHES;
        if (m->b.n_seqs > capacity.count[ROWS_SEQS]) capacity.count[ROWS_SEQS] = m->b.n_seqs;
        if (m->b.n_masked > capacity.count[ROWS_MASKED]) capacity.count[ROWS_MASKED] = m->b.n_masked;
    }
    capacity.count[ROWS_TOKENS] = rows;
    capacity.count[ROWS_READ] = capacity.count[ROWS_SEQS] + capacity.count[ROWS_MASKED];
    beside = squares / mean_tokens;
    lengths_free(&l);
}

double step_flops(void)
{
    const ModelConfig *c = &model.config;
    double h = c->hidden, layer = mean_tokens * (8 * h * h + 4 * h * c->ffn + 4 * beside * h);
    double head = mean_masked * (2 * h * h + 2 * h * (double)c->vocab_padded) + mean_seqs * 2 * h * h;
    double unread = (mean_tokens - mean_masked - mean_seqs) * (2 * h * h + 4 * h * c->ffn); /* in the last layer */
    return 3 * (c->layers * layer + head - unread);
}

void batches_free(void)
{
    for (int i = 0; i < BATCHES; i++) micro_batch_free(&batches[i].b);
}
