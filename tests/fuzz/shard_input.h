/* A fuzz target's bytes as the columns of a shard, and what must hold for each sequence that is accepted. */
#pragma once

#include <string.h>

#include "data/shard_file.h"

typedef struct {
    const uint8_t *at, *end;
} Input;

static inline uint32_t byte(Input *in) { return in->at < in->end ? *in->at++ : 0; }

/* A number of one byte, or of four after 255. */
static inline int32_t number(Input *in)
{
    uint32_t x = byte(in);
    if (x < 255) return (int32_t)x;
    for (int i = 0; i < 4; i++) x = x << 8 | byte(in);
    return (int32_t)x;
}

static const ShardLimits limits = {.vocab_size = 200, .max_length = 24, .max_predictions = 4, .cls = 101};

enum { MOST_COLUMNS = 8, MOST_ROWS = 9, MOST_WIDTH = 64, MOST_READ = 16 };

typedef struct {
    Hdf5Spec spec;
    int64_t rows;
} Column;

/* Rows, then per column a byte for its kind (absent, lists, bytes per number, another number of rows) and its width.
   Returns the number of columns. */
static inline int take_columns(Input *in, Column columns[MOST_COLUMNS], int64_t *rows)
{
    int n = 0;
    *rows = 1 + byte(in) % 8;
    for (int i = 0; i < N_SHARD_COLUMNS && n < MOST_COLUMNS; i++) {
        uint32_t kind = byte(in), width = byte(in);
        if (kind & 1) continue;
        Column *c = &columns[n++];
        c->rows = kind & 16 ? *rows + 1 : *rows;
        c->spec =
            (Hdf5Spec){shard_column_names[i], 1 << ((kind >> 2) % 3), kind & 2 ? 0 : 1 + width % MOST_WIDTH, c->rows};
    }
    return n;
}

/* A column's rows: lists have a length each, others a width. Row i is values[offset[i] .. offset[i+1]). */
static inline void take_rows(Input *in, const Column *c, int32_t values[MOST_ROWS * MOST_WIDTH],
                             int64_t offset[MOST_ROWS + 1])
{
    offset[0] = 0;
    for (int64_t row = 0; row < c->rows; row++) {
        int64_t n = c->spec.width ? c->spec.width : byte(in) % MOST_WIDTH;
        for (int64_t k = 0; k < n; k++) values[offset[row] + k] = number(in);
        offset[row + 1] = offset[row] + n;
    }
}

static inline void check_sequences(const Sequences *s)
{
    for (int64_t i = 0; i < s->e.count; i++) {
        int64_t length = example_length(&s->e, i), masked = example_masked(&s->e, i);
        CHECK(length >= 1 && length <= limits.max_length && masked <= limits.max_predictions, "lengths");
        CHECK(s->e.label[i] >= -1 && s->e.label[i] <= 1, "label %d", s->e.label[i]);
        for (int64_t k = s->e.offset[i]; k < s->e.offset[i + 1]; k++)
            CHECK(s->e.ids[k] >= 0 && s->e.ids[k] < limits.vocab_size && s->e.types[k] <= 1, "id %d", s->e.ids[k]);
        for (int64_t k = s->e.masked_offset[i]; k < s->e.masked_offset[i + 1]; k++)
            CHECK(s->e.masked_place[k] >= 1 && s->e.masked_place[k] < length && s->e.masked_label[k] >= 0 &&
                      s->e.masked_label[k] < limits.vocab_size,
                  "mask %d", s->e.masked_place[k]);
    }
}

/* The sequences of some rows, in number as shard_counts said. */
static inline Status read_rows(ShardFile *f, int64_t first, int64_t n, ShardRows *rows, Sequences *got)
{
    int32_t counts[MOST_READ];
    int64_t expected = got->e.count;
    TRY(shard_counts(f, first, n, counts));
    TRY(shard_read(f, first, n, 0, rows, got));
    for (int64_t i = 0; i < n; i++) expected += counts[i];
    CHECK(got->e.count == expected, "%lld sequences, %lld counted", (long long)got->e.count, (long long)expected);
    return OK;
}

/* Opens the file and reads it, of many rows the first and the last. An accepted file must be within the limits; a
   refusal must name the file. */
static inline void check_shard(const char *path)
{
    ShardFile f;
    ShardRows rows = {0};
    Sequences got = {0};
    Status status = shard_open(&f, path, limits);
    if (status == OK) {
        int64_t n = f.rows < MOST_READ ? f.rows : MOST_READ;
        status = read_rows(&f, 0, n, &rows, &got);
        if (status == OK && f.rows > n) status = read_rows(&f, f.rows - n, n, &rows, &got);
        shard_close(&f);
    }
    CHECK(status == OK || strstr(status_message(), path), "message '%s'", status_message());
    check_sequences(&got);
    shard_rows_free(&rows);
    sequences_free(&got);
}
