/* What flows from a source of examples to the trainer: token sequences, packed into micro-batches, in a seekable order.
 */
#ifndef CAIRN_DATA_DATA_H
#define CAIRN_DATA_DATA_H

#include "base/base.h"

/* Tokenised examples, immutable after loading. Sequence i is ids[offset[i] .. offset[i+1]). */
typedef struct {
    int64_t count;
    int64_t *offset; /* (count + 1) */
    int32_t *ids;    /* (offset[count]) */
    uint8_t *types;  /* (offset[count]) */
    int32_t *label;  /* (count); −1 where unlabelled; NULL for regression */
    float *score;    /* (count) for regression; NULL else */
    /* Masked positions, ascending, for pretraining; all NULL else. Those of sequence i are masked_offset[i] ..
       masked_offset[i+1]: place within the sequence, and the word that was there. */
    int64_t *masked_offset; /* (count + 1) */
    int32_t *masked_place;  /* (masked_offset[count]) */
    int32_t *masked_label;  /* (masked_offset[count]) */
    Digest digest;          /* of ids, types, labels: part of the fingerprint */
} Examples;
void examples_free(Examples *e);
int64_t example_length(const Examples *e, int64_t i);

/* A permutation of 0..n−1 that is a function of (seed, epoch): element k in O(1), so a cursor seeks anywhere (a Feistel
   network over Philox with cycle walking). */
typedef struct {
    uint64_t key;
    int64_t n;
    uint32_t epoch;
    int half_bits;
} Permutation;
Permutation permutation(uint64_t seed, uint32_t epoch, int64_t n);
int64_t permutation_at(const Permutation *p, int64_t k);

/* Which examples make global batch number `batch` (from 0): examples are taken in epoch order, the last batch of an
   epoch may be short (never mixed with the next epoch). Fills `index` (batch_size) and returns how many. */
int64_t batches_per_epoch(int64_t n, int64_t batch_size);
int64_t batch_examples(uint64_t seed, int64_t n, int64_t batch_size, int64_t batch, int64_t *index);

/* One micro-batch on the host, in the layout of the plan's INPUT tensors. Sized once for a capacity. */
typedef struct {
    int64_t cap_tokens, cap_seqs;
    int32_t n_tokens, n_seqs;
    int32_t *ids, *types, *pos, *seq;   /* (cap_tokens) */
    int32_t *spans, *seq_index, *first; /* (cap_seqs, 2), (cap_seqs), (cap_seqs) */
    int32_t *label;                     /* (cap_seqs) */
    float *score;                       /* (cap_seqs) */
    int64_t *example;                   /* (cap_seqs): which example it is */
} MicroBatch;
void micro_batch_init(MicroBatch *b, int64_t cap_tokens, int64_t cap_seqs);
void micro_batch_free(MicroBatch *b);

/* Splits the sequences of one step between micro-batches: in order, as many as fit. */
typedef struct {
    int64_t first, count; /* of the step's sequences */
} MicroRange;
/* `padded_length` 0: packed; else every sequence takes that many rows. Returns the number of micro-batches; `ranges`
   has room for n. */
int64_t micro_split(const Examples *e, const int64_t *index, int64_t n, int64_t cap_tokens, int64_t cap_seqs,
                    int64_t padded_length, MicroRange *ranges);
/* Fills the rows: `first` is the place of index[0] in the global batch. Rows up to the capacity are set to harmless
   values (id pad, position 0). */
void micro_fill(MicroBatch *b, const Examples *e, const int64_t *index, int64_t n, int64_t first, int64_t padded_length,
                int32_t pad_id);

#endif
