/* One shard: an HDF5 file of pretraining sequences, in any of the layouts of docs/files.md 8. Its datasets show
   which. Every row is checked when it is read; messages name file, dataset and row. */
#pragma once

#include "data/hdf5_file.h"
#include "data/sequences.h"

typedef enum { SHARD_FIXED, SHARD_DYNAMIC, SHARD_LISTS, SHARD_PACKED, N_SHARD_LAYOUTS } ShardLayout;

enum {
    SHARD_INPUT_IDS,
    SHARD_INPUT_MASK,
    SHARD_SEGMENT_IDS,
    SHARD_MASKED_POSITIONS,
    SHARD_MASKED_IDS,
    SHARD_LABELS,
    SHARD_SPECIAL_POSITIONS,
    SHARD_PACKED_LENGTHS,
    SHARD_PACKED_MASKED,
    N_SHARD_COLUMNS
};
extern const char *const shard_column_names[N_SHARD_COLUMNS];

/* Limits of a row. */
typedef struct {
    int32_t vocab_size;  /* ids are below this */
    int max_length;      /* tokens in a sequence */
    int max_predictions; /* masked positions in a sequence */
    int32_t cls;         /* the first token of each; −1: not checked */
} ShardLimits;

typedef struct {
    Hdf5File *file;
    Hdf5Column *columns[N_SHARD_COLUMNS]; /* NULL: absent, or not needed */
    ShardLimits limits;
    ShardLayout layout;
    int64_t rows;
    int64_t unit;   /* rows best read together: compressed ones */
    int width;      /* of fixed rows; else 0 */
    bool is_masked; /* masked words are marked in the file */
} ShardFile;

/* Buffers for rows of any file, for one thread at a time. Zero-initialise. */
typedef struct {
    Hdf5Lists columns[N_SHARD_COLUMNS];
} ShardRows;
void shard_rows_free(ShardRows *r);

const char *shard_layout_name(ShardLayout layout);
/* Checks everything except the rows. */
Status shard_open(ShardFile *f, const char *path, ShardLimits limits);
void shard_close(ShardFile *f); /* takes a zeroed one */
/* Sequences in each row; 1 unless they are packed. */
Status shard_counts(ShardFile *f, int64_t first, int64_t n, int32_t *counts); // (n)
/* Appends the sequences of n rows; the first one is number `sample` of the set. */
Status shard_read(ShardFile *f, int64_t first, int64_t n, int64_t sample, ShardRows *rows, Sequences *out);
