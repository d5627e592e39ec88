/* From examples to the trainer: token sequences, in a seekable order, packed into micro-batches. */
#pragma once

#include "data/records.h"
#include "model/inputs.h"
#include "text/text.h"

/* Tokenised examples, immutable after loading. Sequence i is ids[offset[i] .. offset[i+1]). */
typedef struct {
    int64_t count;
    int64_t *offset;     /* (count + 1) */
    int32_t *ids;        /* (offset[count]) */
    uint8_t *types;      /* (offset[count]) */
    int32_t *label;      /* (count, label_width); −1 where unlabelled; NULL: scores or nothing */
    int32_t label_width; /* 0: 1 */
    float *score;        /* (count, score_width), for regression and several labels at once; else NULL */
    int32_t score_width;
    /* For one label of several, in training: `labels` of micro-batches are targets. */
    float *weights; // (n_weights) of each class in the loss; NULL: `labels` are classes
    int32_t n_weights;
    double smoothing; /* the share of a target that goes evenly to all classes */
    /* Masked positions, ascending, for pretraining; all NULL else. Those of sequence i are masked_offset[i] ..
       masked_offset[i+1]: place within the sequence, and the word that was there. */
    int64_t *masked_offset; /* (count + 1) */
    int32_t *masked_place;  /* (masked_offset[count]) */
    int32_t *masked_label;  /* (masked_offset[count]) */
    Digest digest;          /* of ids, types, labels: part of the fingerprint */
    int64_t cut;            /* texts or pairs that were longer than the longest sequence */
} Examples;
void examples_free(Examples *e);
double examples_mean_length(const Examples *e); /* in tokens; 0 for none */
/* Appends the tokens of a text, or of a pair (b.p NULL or an empty b: none), cut to max_length. `cap` counts the tokens
   that there is room for. */
void examples_append(Examples *e, size_t *cap, Tokenizer *tokenizer, RecordText a, RecordText b, int max_length);
/* The digest of ids, types, labels and scores. */
Digest examples_digest(const Examples *e);
/* What the example counts in the mean loss of its step. */
static inline double example_weight(const Examples *e, int64_t i) { return e->weights ? e->weights[e->label[i]] : 1; }
/* The target of a class, with weights w and smoothing ε: (1 − ε)·w of the label, and ε·w / classes for all. */
static inline float example_target(const Examples *e, int64_t i, int32_t class)
{
    double w = (double)e->weights[class], smoothing = e->smoothing;
    return (float)(smoothing * w / e->n_weights + (class == e->label[i] ? (1 - smoothing) * w : 0));
}
int64_t example_length(const Examples *e, int64_t i);
int64_t example_masked(const Examples *e, int64_t i); /* how many positions; 0 without masks */

/* A permutation of 0..n−1 that is a function of (seed, epoch). Element k takes O(1), so a run resumes anywhere (a
   Feistel network over Philox with cycle walking). */
typedef struct {
    uint64_t key;
    int64_t n;
    uint32_t epoch;
    int half_bits;
} Permutation;
Permutation permutation(uint64_t seed, uint32_t epoch, int64_t n);
int64_t permutation_at(const Permutation *p, int64_t k);

int64_t batches_per_epoch(int64_t n, int64_t batch_size);
/* Examples in the first `batches` batches. */
int64_t batches_examples(int64_t n, int64_t batch_size, int64_t batches);
/* The examples of global batch number `batch` (from 0), in the epoch's order. The last batch of an epoch may be short,
   and never holds examples of the next epoch. Fills `index` (batch_size) and returns the number. */
int64_t batch_examples(uint64_t seed, int64_t n, int64_t batch_size, int64_t batch, int64_t *index);

/* The source of a run's steps. */
typedef struct {
    void *self;
    int64_t count; /* examples of an epoch */
    /* The sequences of global batch number `batch`, in the step's order: index[0..*n) of *examples, at most a batch
       size. Valid until the call after the next. */
    Status (*step)(void *self, int64_t batch, const Examples **examples, int64_t *index, int64_t *n);
} ExampleSource;

/* Examples that are all in memory, in the order of batch_examples. */
typedef struct {
    const Examples *examples;
    uint64_t seed;
    int64_t batch_size;
} LoadedExamples;
ExampleSource loaded_source(LoadedExamples *loaded); /* `loaded` must outlive the source */

/* The most rows of each kind in a micro-batch. */
typedef struct {
    int64_t tokens, seqs, masked; /* masked 0: masked positions are left out */
} MicroCapacity;

/* Rows, sequences and masked positions of a micro-batch up to the end of one of its grains. */
typedef struct {
    int32_t tokens, seqs, masked;
} GrainEnd;

/* One micro-batch on the host: an array for each INPUT tensor of the plan, by name and by number, as model/inputs.h
   describes them. Sized once for a capacity. */
typedef struct {
    MicroCapacity cap;
    int32_t n_tokens, n_seqs, n_masked, n_read;
    union {
        struct {
#define X(name, ...) int32_t *name;
            MICRO_INPUT_LIST(X)
#undef X
        };
        int32_t *inputs[N_MICRO_INPUTS];
    };
    int32_t label_width; /* columns of `labels`: those of the examples filled in; at first 1 */
    int64_t *example;    /* (cap.seqs): which example it is */
    MicroCapacity grain; /* tokens 0, as at first: it is not divided into grains */
    int32_t n_grains;
    GrainEnd *grains; /* (cap.seqs) */
} MicroBatch;
void micro_batch_init(MicroBatch *b, MicroCapacity cap);
void micro_batch_free(MicroBatch *b);
/* Bytes of an input: of the rows that are filled, or (`whole`) of all rows of the capacity. */
size_t micro_bytes(const MicroBatch *b, MicroInput input, bool whole);
/* `labels` of examples that have scores or weights. */
static inline float *micro_scores(const MicroBatch *b) { return (float *)(void *)b->labels; }
/* Adds a row that has its pos and seq to those that heads read; returns its place among them. */
int32_t micro_read(MicroBatch *b, int32_t row);

/* A micro-batch's part of micro_split's `order`. */
typedef struct {
    int64_t first, count;
} MicroRange;
/* Packs sequences of a step into micro-batches: the longest first, each into the first that has room (first-fit
   decreasing). The sequences are those at `places` (n), ascending; NULL: the first n. Sequence s is example index[s].
   `order` (n) becomes their places, micro-batch by micro-batch, ascending in each; `ranges` (n) has the part of each.
   Returns the number of micro-batches. `padded_length` 0: packed; else every sequence takes that many rows. */
int64_t micro_split(const Examples *e, const int64_t *index, const int64_t *places, int64_t n, const MicroCapacity *cap,
                    int64_t padded_length, int64_t *order, MicroRange *ranges);
/* micro_split in grains: consecutive sequences, as many as `grain` has room for, so a function of the sequences alone.
   A micro-batch takes whole grains in order, as many as it has room for. */
int64_t micro_split_grains(const Examples *e, const int64_t *index, const int64_t *places, int64_t n,
                           const MicroCapacity *cap, const MicroCapacity *grain, int64_t padded_length, int64_t *order,
                           MicroRange *ranges);
/* This rank's share of a step's n sequences: fills `places` (n), ascending, and returns the number. The longest
   sequence comes first, each goes to the rank with the fewest rows so far (ties to the lower), but no rank gets more
   than ⌈n / size⌉. Every rank computes the same shares. */
int64_t rank_share(const Examples *e, const int64_t *index, int64_t n, int64_t padded_length, int rank, int size,
                   int64_t *places);
/* Fills the rows with the sequences at `n` places of the step, and finds their grains. Rows up to the capacity are set
   to harmless values (id pad, position 0). */
void micro_fill(MicroBatch *b, const Examples *e, const int64_t *index, const int64_t *places, int64_t n,
                int64_t padded_length, int32_t pad_id);
