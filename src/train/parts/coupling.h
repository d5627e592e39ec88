/* Losses that couple all sequences of a step: those of embeddings. A step has `n` rows of data with so many texts each;
   its embeddings are the texts 0 of all rows, then from row `apart` ≥ n on the texts 1 of all rows, and so on:
   (texts·apart, h). A step's loss is the mean over its rows of data. */
#pragma once

#include "base/base.h"

/* INFONCE: the cross-entropy, over all texts but the first of all rows, of their dot products with text 0 over
   `temperature`; the right one is text 1 of the row. `symmetric`: the mean of that and of the one of text 1 over all
   texts 0. (van den Oord et al., 2018; Henderson et al., 2017.) COSINE: (text 0 · text 1 − score)². TRIPLET:
   max(|text 0 − text 1| − |text 0 − text 2| + margin, 0) (Sentence-BERT, Reimers and Gurevych, 2019). INFONCE and
   COSINE are of vectors of length 1. */
typedef enum { COUPLE_INFONCE, COUPLE_COSINE, COUPLE_TRIPLET } CoupleLoss;

typedef struct {
    CoupleLoss loss;
    int64_t rows; /* of data in a step, at most */
    int texts;    /* of a row: 2, or 3 with TRIPLET, and with INFONCE where rows have a wrong text */
    float temperature, margin;
    bool symmetric;
} Coupling;

/* A step of fewer rows learns nothing: its only candidate is the right one. */
static inline int64_t coupling_least_rows(const Coupling *c)
{
    return c->loss == COUPLE_INFONCE && c->texts == 2 ? 2 : 1;
}

/* Rows of data that a step has room for: products take whole blocks. */
static inline int64_t coupling_apart(const Coupling *c) { return (c->rows + 63) / 64 * 64; }
/* The host's memory for a step on a device: embeddings, their gradients, a micro-batch's rows, what is copied. */
static inline size_t coupling_host_bytes(const Coupling *c, int64_t h)
{
    return (size_t)(4 * c->texts * coupling_apart(c) * h) * sizeof(float);
}

/* By what the sum of a step's terms is divided; a symmetric loss has two for each row. */
static inline double coupling_terms(const Coupling *c, int64_t sequences)
{
    return (double)(sequences / c->texts * (c->symmetric ? 2 : 1));
}

/* COSINE and TRIPLET: returns the sum of the rows' losses. `de` (as e) becomes the gradient of this sum times `scale`,
   where rows have texts. `scores` (n): of COSINE. */
double coupling_rows(const Coupling *c, const float *e, const float *scores, int64_t n, int64_t apart, int64_t h,
                     float scale, float *de);
