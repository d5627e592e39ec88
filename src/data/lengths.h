/* A histogram of sequence lengths, to plan and measure packed training without the data. */
#pragma once

#include "base/base.h"

typedef struct {
    int64_t longest;
    double *share; /* (longest + 1): of all sequences, by length; sums to 1 */
    double mean;   /* tokens of a sequence */
    double beside; /* tokens of a token's sequence, the token itself among them: Σ n² / Σ n */
} Lengths;

/* Text of lines "length count", separated by blanks or a tab; lines that begin with # or with a letter are comments.
   E_FORMAT names the line. */
Status lengths_read(const char *path, Lengths *l);
void lengths_free(Lengths *l); /* takes a zeroed one */
/* The length of sequence i of n, in mixed order. Any n sequences follow the histogram as closely as possible. */
int64_t lengths_at(const Lengths *l, int64_t i, int64_t n);
