/* A folder of shards as an endless sequence of batches, and as a list to evaluate on.

   Layouts may be mixed (docs/files.md 8). An epoch's order has two levels (docs/contracts.md 3), so that rows which are
   compressed together are read together. Memory holds at most two windows of 2^22 tokens and three batches; 8 files
   are open. A thread reads ahead: batch + 1 while the caller works on batch, and the next window. Batches can be
   requested in any order; their sequences and masks depend on the files, the seed and the batch's number alone. One
   thread at a time may call. */
#pragma once

#include <signal.h>

#include "data/data.h"
#include "text/text.h"

typedef struct {
    const Vocab *vocab;  /* checks ids and draws masks; must outlive the Shards. NULL: only files with masks */
    int32_t vocab_size;  /* without a vocabulary: ids are below this */
    int max_length;      /* no sequence is longer */
    int max_predictions; /* no sequence has more masked positions; 0: 15 % of max_length, rounded up */
    uint64_t seed;
    int64_t batch_size;
    bool stored_masks;    /* files without masks are refused */
    bool dynamic_masking; /* draws new masks for masked files too, from the words in their labels */
    double mask_fraction; /* 0: 0.15 */
    bool whole_words;
    int64_t picked;    /* for shards_range alone: of more sequences so many, at even distances, are the set; 0: all */
    bool picked_first; /* … and the first ones */
} ShardsOptions;

typedef struct Shards Shards;

/* `dir` is a folder, or one file. Every file is opened and its shape checked; rows are checked when they are read
   (shards_check reads them all). E_FORMAT: no shards, or a bad one, by name. */
Status shards_open(const char *dir, const ShardsOptions *o, Shards **s);
void shards_close(Shards *s);          /* takes NULL */
int64_t shards_count(const Shards *s); /* sequences of an epoch, or picked ones */
/* Reads every row once, with up to 8 threads: the first bad one is E_FORMAT with file, dataset and row. For the start
   of a run; a resumed one with the same shards_digest need not repeat it. `stop` as in signals_stop; may be NULL. */
Status shards_check(Shards *s, const volatile sig_atomic_t *stop);
/* The sequences of global batch number `batch` (from 0), in order; the last batch of an epoch may be short. Valid until
   the next call but one. */
Status shards_step(Shards *s, int64_t batch, const Examples **e);
/* shards_step as a run's source of steps; the Shards must live as long. */
ExampleSource shards_source(Shards *s);
/* Bytes that will be allocated beyond those held now, for sequences of `mean_length`: by shards_step (windows, batches
   and the caller's figures of each sequence), or by shards_range alone. For the run's memory account. */
size_t shards_memory(const Shards *s, double mean_length, bool steps);
/* At most so many, for shards of so many tokens in so many files, which are still to be made. */
size_t shards_memory_most(const ShardsOptions *o, double tokens, double files, bool steps);
/* Sequences first … first + n − 1 in file order, of the picked ones; masks that are drawn are those of epoch 0. Valid
   until the next call. */
Status shards_range(Shards *s, int64_t first, int64_t n, const Examples **e);
/* The digest of the files' names, sizes, counts and of up to 16 pieces of 64 KiB from each: part of the fingerprint. */
Digest shards_digest(const Shards *s);

/* Work of the thread, for the rate that a run reports. */
typedef struct {
    int64_t tokens;      /* put into batches */
    double busy, waited; /* seconds: of the thread reading; of callers waiting for it */
} ShardsWork;
ShardsWork shards_work(Shards *s);
