/* Private to the wiki stage: the state of a run. wiki.c has the stage and its batches, wiki_read.c the reading of a
 * file. */
#pragma once

#include "report/stage_progress.h"
#include "tasks/pretrain/pool.h"
#include "tasks/pretrain/wiki/text_file.h"
#include "tasks/pretrain/wiki/text_parts.h"
#include "tasks/pretrain/wiki/wiki.h"

#define MOST_BATCHES (2 * POOL_MOST + 2)
#define MOST_PIECES  (POOL_MOST + 4)

typedef struct {
    PoolJob job;
    bool is_batch;
} WikiJob;

typedef struct {
    WikiJob job;
    TextPiece piece;
} WikiPieceJob;

typedef struct {
    WikiJob job;
    Batch batch;
    Buf notes; /* damage of the file itself, before the batch's articles */
    int64_t lost, read_bytes;
    const Namespaces *names;
    size_t file;       /* of the list */
    TextCursor cursor; /* the start of the next batch */
    double done;       /* share of the input, when the batch was cut */
    Buf text, problems;
    WikiCounts counts;
} WikiBatchJob;

typedef struct {
    const WikiOptions *options;
    WikiFiles files;
    TextParts parts;
    Pool *pool;
    ArticleMaker *makers[POOL_MOST];
    int threads;
    WikiPieceJob pieces[MOST_PIECES]; /* a ring of most_pieces */
    int first_piece, n_pieces, most_pieces;
    WikiBatchJob *batches[MOST_BATCHES]; /* a ring of most_batches; their memory is reused */
    int first_batch, n_batches, most_batches;
    size_t batch_bytes; /* of those in the ring */
    WikiBatchJob *open; /* the batch being filled; not in the ring */
    Namespaces **names; // (n_names) one per dump: batches point to them
    size_t n_names, names_cap;
    int warnings;
    uint64_t files_bytes; /* of the files before the current one */
    uint64_t offset;      /* in the current file's text, of the end of the last batch */
    StageProgress progress;
} WikiRun;

/* Hands the open batch, which ends at an offset of its file's text, to the threads and opens the next. `done`: share of
   the input. */
Status wiki_dispatch(WikiRun *r, TextCursor cursor, uint64_t offset, double done);
/* Reads a file from a place on, and dispatches its batches. */
Status wiki_read_file(WikiRun *r, size_t index, TextPlace from);
