/* Sentence embeddings: rows of two or three texts, in training the anchor, its positive and perhaps a hard negative;
   how good the vectors of a dev file are. */
#pragma once

#include "data/data.h"
#include "train/ranks/ranks.h"

/* ---- reading (read.c) ---- */

/* The columns of a file: names, or positions where all are numbers. */
typedef struct {
    char *list;   /* owns the names */
    char **names; // (n) of the texts
    int n;        /* 2 or 3 */
    char *score;  /* NULL: none is named */
} EmbedColumns;

/* Sequence i·texts + k of the examples is text k of row i. Where rows have a score, each of its sequences has it. */
typedef struct {
    char *path;
    int texts;
    int64_t rows;
    Examples examples;
    Digest *digests; // (sequences) of the texts, without spaces around: many texts may have one row of tokens
} EmbedTexts;

/* --text-columns and --label-column. E_USAGE. */
Status embed_columns(const char *texts, const char *score, EmbedColumns *columns);
void embed_columns_free(EmbedColumns *columns); /* takes a zeroed one */

typedef enum { SCORES_NONE, SCORES_ANY, SCORES_COSINES /* from −1 to 1 */ } EmbedScores;

/* The first `texts` columns of the file `path`, or of `data` (NULL: none), which messages call so. E_FORMAT names file
   and line. */
Status embed_read(EmbedTexts *x, const char *path, const void *data, size_t size, const EmbedColumns *columns,
                  int texts, EmbedScores scores, Tokenizer *tokenizer, int max_length);
void embed_texts_free(EmbedTexts *x); /* takes a zeroed one */

/* Steps of training: rows in the order of batch_examples; the texts 0 of a step's rows, then their texts 1, and so on.
 */
typedef struct {
    const EmbedTexts *texts;
    uint64_t seed;
    int64_t rows; /* of a step */
} EmbedSource;
ExampleSource embed_source(EmbedSource *s); /* `s` must outlive it */

/* ---- metrics (metrics.c) ---- */

/* X(name, printed name): of pairs with scores, then of pairs without. */
#define EMBED_METRIC_LIST(X)                                                                                           \
    X(EMBED_PEARSON, "pearson")                                                                                        \
    X(EMBED_SPEARMAN, "spearmanr")                                                                                     \
    X(EMBED_RECALL_1, "recall_at_1")                                                                                   \
    X(EMBED_RECALL_5, "recall_at_5")                                                                                   \
    X(EMBED_RECALL_10, "recall_at_10")                                                                                 \
    X(EMBED_MRR, "mrr_at_10")

typedef enum {
#define X(name, text) name,
    EMBED_METRIC_LIST(X)
#undef X
        N_EMBED_METRICS
} EmbedMetric;
const char *embed_metric_name(EmbedMetric metric);
/* Whether the metric is of such rows: with scores, or without. */
static inline bool embed_measures(const EmbedTexts *x, EmbedMetric metric)
{
    return (x->examples.score != NULL) == (metric <= EMBED_SPEARMAN);
}

/* The figures of rows of two texts; v (rows, 2, h) becomes vectors of length 1. With scores the correlation of the
   cosines with them. Else each text 0 looks for its text 1 among the texts 1 of all rows: a row's rank is 1 and the
   number of other texts whose cosine is not smaller, with those of equal tokens and without those of equal characters.
   MRR is the mean of 1/rank, where ranks beyond 10 count 0. Metrics of the other kind stay as they are. Collective;
   E_STOPPED. */
Status embed_measure(const EmbedTexts *x, float *v, int h, Ranks *ranks, double figures[N_EMBED_METRICS]);
size_t embed_measure_bytes(const EmbedTexts *x, int h); /* that it needs beside v */
