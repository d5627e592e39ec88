/* Examples, and how the sequences of a step become the rows of micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

void examples_free(Examples *e)
{
    free(e->offset);
    free(e->ids);
    free(e->types);
    free(e->label);
    free(e->score);
    free(e->masked_offset);
    free(e->masked_place);
    free(e->masked_label);
    *e = (Examples){0};
}

int64_t example_length(const Examples *e, int64_t i) { return e->offset[i + 1] - e->offset[i]; }

void micro_batch_init(MicroBatch *b, int64_t cap_tokens, int64_t cap_seqs)
{
    *b = (MicroBatch){.cap_tokens = cap_tokens, .cap_seqs = cap_seqs};
    int32_t **token_rows[] = {&b->ids, &b->types, &b->pos, &b->seq};
    for (size_t i = 0; i < sizeof token_rows / sizeof *token_rows; i++)
        *token_rows[i] = mem_array((size_t)cap_tokens, sizeof(int32_t));
    b->spans = mem_array((size_t)cap_seqs, 2 * sizeof(int32_t));
    b->seq_index = mem_array((size_t)cap_seqs, sizeof(int32_t));
    b->first = mem_array((size_t)cap_seqs, sizeof(int32_t));
    b->label = mem_array((size_t)cap_seqs, sizeof(int32_t));
    b->score = mem_array((size_t)cap_seqs, sizeof(float));
    b->example = mem_array((size_t)cap_seqs, sizeof(int64_t));
}

void micro_batch_free(MicroBatch *b)
{
    void *all[] = {b->ids, b->types, b->pos, b->seq, b->spans, b->seq_index, b->first, b->label, b->score, b->example};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *b = (MicroBatch){0};
}

static int64_t rows_of(const Examples *e, int64_t example, int64_t padded_length)
{
    return padded_length ? padded_length : example_length(e, example);
}

int64_t micro_split(const Examples *e, const int64_t *index, int64_t n, int64_t cap_tokens, int64_t cap_seqs,
                    int64_t padded_length, MicroRange *ranges)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; count++) {
        int64_t rows = 0, first = i;
        while (i < n && i - first < cap_seqs && rows + rows_of(e, index[i], padded_length) <= cap_tokens)
            rows += rows_of(e, index[i++], padded_length);
        CHECK(i > first, "a sequence of %lld tokens does not fit a micro-batch of %lld",
              (long long)rows_of(e, index[first], padded_length), (long long)cap_tokens);
        ranges[count] = (MicroRange){first, i - first};
    }
    return count;
}

/* One sequence's rows, and the pad rows behind it up to `rows`. */
static void fill_sequence(MicroBatch *b, const Examples *e, int64_t example, int32_t row, int64_t rows,
                          int32_t seq_index, int32_t pad_id)
{
    int64_t start = e->offset[example], length = example_length(e, example);
    for (int64_t i = 0; i < rows; i++) {
        bool real = i < length;
        b->ids[row + i] = real ? e->ids[start + i] : pad_id;
        b->types[row + i] = real ? e->types[start + i] : 0;
        b->pos[row + i] = (int32_t)i;
        b->seq[row + i] = seq_index;
    }
}

void micro_fill(MicroBatch *b, const Examples *e, const int64_t *index, int64_t n, int64_t first, int64_t padded_length,
                int32_t pad_id)
{
    int32_t row = 0;
    CHECK(n <= b->cap_seqs, "%lld sequences, capacity %lld", (long long)n, (long long)b->cap_seqs);
    for (int64_t s = 0; s < n; s++) {
        int64_t rows = rows_of(e, index[s], padded_length);
        CHECK(row + rows <= b->cap_tokens, "rows beyond the capacity of %lld", (long long)b->cap_tokens);
        fill_sequence(b, e, index[s], row, rows, (int32_t)(first + s), pad_id);
        b->spans[2 * s] = row;
        b->spans[2 * s + 1] = row + (int32_t)example_length(e, index[s]);
        b->seq_index[s] = (int32_t)(first + s);
        b->first[s] = row;
        b->label[s] = e->label ? e->label[index[s]] : 0;
        b->score[s] = e->score ? e->score[index[s]] : 0;
        b->example[s] = index[s];
        row += (int32_t)rows;
    }
    b->n_tokens = row;
    b->n_seqs = (int32_t)n;
    for (int64_t i = row; i < b->cap_tokens; i++) {
        b->ids[i] = pad_id;
        b->types[i] = b->pos[i] = b->seq[i] = 0;
    }
    for (int64_t s = n; s < b->cap_seqs; s++) {
        b->spans[2 * s] = b->spans[2 * s + 1] = b->first[s] = b->seq_index[s] = 0;
        b->label[s] = 0;
        b->score[s] = 0;
        b->example[s] = -1;
    }
}
