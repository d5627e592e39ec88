/* Shared by shards.c (files, blocks) and loader.c (order, batches, the thread). */
#pragma once

#include <pthread.h>

#include "data/masking.h"
#include "data/shard_digests.h"
#include "data/shard_file.h"
#include "data/shards.h"

#define SHARDS_OPEN_FILES    8
#define SHARDS_OPEN_BYTES    ((size_t)2 << 20)  /* that HDF5 and the heaps of lists keep for each (measured) */
#define SHARDS_BLOCK_ROWS    256                /* at least, where the file is long enough */
#define SHARDS_MOST_ROWS     8192               /* of a block, however its file is compressed */
#define SHARDS_WINDOW_TOKENS (INT64_C(1) << 22) /* or one block */

/* Consecutive rows of one file. */
typedef struct {
    int32_t file, rows, sequences;
    int64_t first_row, first; /* in the file; in the set */
} ShardBlock;

/* Reads blocks; one per thread. */
typedef struct {
    struct {
        ShardFile f;
        int32_t file; /* −1: none */
        uint64_t used;
    } open[SHARDS_OPEN_FILES];
    uint64_t clock;
    ShardRows rows;
    int32_t *scratch; // (max_length)
} ShardReader;

/* Some blocks, one after the other; its sequences are permuted as one. */
typedef struct {
    int64_t epoch, index; /* index −1: empty */
    int64_t n_blocks, loaded;
    Sequences sequences;
} ShardWindow;

typedef struct {
    Sequences sequences;
    int64_t batch;
    enum { SLOT_EMPTY, SLOT_WANTED, SLOT_BUSY, SLOT_READY } state;
    Status status;
    char *message; /* of a failure */
} ShardSlot;

struct Shards {
    ShardsOptions o;
    ShardLimits limits;
    Masking masking;
    char **paths;          // (n_files)
    ShardDigest *digests;  // (n_files)
    int n_files, n_masked; /* of these, with masks */
    ShardBlock *blocks;    // (n_blocks)
    int64_t n_blocks, cap_blocks, count;
    Digest digest;
    ShardReader reader; /* of shards_range */
    Sequences read, range;

    int64_t window_blocks, n_windows;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, quit;
    ShardSlot slots[3];
    int next; /* the slot that the next call gets */
    ShardsWork work;
    /* the thread's own */
    ShardReader thread_reader;
    ShardWindow windows[2];
    int last_window; /* of the two, the one used last */
    int64_t order_epoch;
    int64_t *window_first; // (n_windows + 1) of order_epoch
};

/* Appends the block's sequences to out. */
Status shards_read_block(Shards *s, ShardReader *r, const ShardBlock *b, Sequences *out);
void shard_reader_free(ShardReader *r);
/* Appends sequence i of `from` to `to`, with its masks: the file's, or drawn for the epoch. */
void shards_take(Shards *s, ShardReader *r, const Sequences *from, int64_t i, uint32_t epoch, Sequences *to);
Status shards_start(Shards *s); /* the thread */
void shards_stop(Shards *s);

/* The last of n parts that begins at or before `place`: the block or window of a sequence. `first` is the first part's
   beginning, the others follow at a distance of `stride` bytes. */
static inline int64_t shards_find(const int64_t *first, size_t stride, int64_t n, int64_t place)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (*(const int64_t *)((const char *)first + (size_t)middle * stride) <= place)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
