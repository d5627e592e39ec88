/* Inside `cairn shards`: text to shards in two passes, with an external shuffle between them.

   Pass 1 takes the text in chunks of 16 MiB: a chunk's documents become token ids, are dealt to buckets by their number
   (or, chosen by their hash, to a bucket of the held-out part), and are written to one file, sorted by bucket. Pass 2
   makes one shard of each bucket, and of each round of the dupe factor: it gathers the bucket's documents from all
   chunk files, pairs and shuffles them. A thread holds one chunk or one bucket in memory. Both depend on the text and
   the options alone, so the bytes are the same for any number of threads. */
#pragma once

#include <pthread.h>
#include <signal.h>

#include "config/config.h"
#include "data/documents.h"
#include "data/hdf5_file.h"
#include "tasks/pretrain/inputs.h"
#include "text/tokenizer_files.h"

#define SHARDS_SIZE        ((int64_t)4 << 20) /* of a shard by default: bytes of its text */
#define SHARDS_CHUNK_BYTES ((uint64_t)16 << 20)
#define SHARDS_MEMORY      ((uint64_t)800 << 20) /* of all threads together */

/* Counts of a chunk, in the order of the journal. cut_lines and cut_documents were too long, bad_lines not UTF-8. */
#define SHARDS_COUNT_LIST(X)                                                                                           \
    X(documents) X(eval_documents) X(sentences) X(tokens) X(cut_lines) X(cut_documents) X(bad_lines)

/* --layout. The numbers are part of a job's identity. */
typedef enum { SHARDS_COMPACT, SHARDS_NVIDIA, SHARDS_PACKED, SHARDS_FIXED } ShardsForm;

#define SHARDS_PER_ROW 3 /* sequences in a packed row, at most */

typedef struct {
    uint64_t size;
#define X(field) int64_t field;
    SHARDS_COUNT_LIST(X)
#undef X
    Digest digest;
    bool done;
} ShardsChunkResult;

typedef struct {
    uint64_t size;
    int64_t sequences, tokens, masked;
    int64_t documents, random; /* of its bucket; pairs of label 1 */
    Digest digest;
    bool done;
} ShardsResult;

typedef struct {
    int input;
    uint64_t begin, end; /* bytes; the documents that begin after `begin`, up to the first after `end` */
} ShardsChunk;

typedef struct {
    const char *dir;
    char *unfinished; /* DIR/unfinished: chunk files and the journal */
    FileList inputs;
    uint64_t *sizes; // (inputs.count)
    uint64_t bytes;  /* of text */
    int threads;

    TokenizerFiles tokenizer; /* written beside the shards, too */
    int id_bytes;             /* of an id in a chunk file: 2 or 4 */
    PairOptions pairs;
    Masking masking;
    bool is_static; /* masks are stored */
    ShardsForm form;
    int max_predictions;
    double eval_fraction;
    int buckets, eval_buckets, rounds;

    uint64_t chunk_bytes;
    ShardsChunk *chunks;        // (n_chunks)
    ShardsChunkResult *chunked; // (n_chunks)
    int n_chunks;
    ShardsResult *shards; // (n_shards): rounds × buckets, then eval_buckets
    int n_shards;

    char identity[33]; /* digest of options and inputs */
    char older[33];    /* the same as versions that had the Python tokenizer alone made it */
    FILE *journal;
    const volatile sig_atomic_t *stop;
    pthread_mutex_t lock; /* of the journal */
} ShardsJob;

/* A thread's own memory. Zero-initialise. */
typedef struct {
    Tokenizer *tokenizer;
    char *window; /* a piece of the text */
    TokenIds ids;
    Buf words; /* ids of a chunk, id_bytes each */
    uint32_t *lengths;
    size_t n_lengths, cap_lengths;
    struct ShardsDocument *documents;
    size_t n_documents, cap_documents;
    Documents bucket;
    Buf record;
    Sequences sequences;
    void *rows;      // (1024, max_length) to be written, 4 bytes per number
    int64_t *offset; // (1025)
} ShardsWorker;
void shards_worker_free(ShardsWorker *w);

/* From options, vocabulary and text. Writes nothing. The caller frees it also after a failure. (options.c) */
Status shards_job_init(ShardsJob *j, const Config *c);
void shards_job_free(ShardsJob *j);
/* The folder holds work of a version that had the Python tokenizer alone: the job goes on with that one. */
void shards_adopt_older(ShardsJob *j, const Config *c);

/* Pass 1: chunk i to its file. (text.c) */
Status shards_chunk(ShardsJob *j, ShardsWorker *w, int i, ShardsChunkResult *r);
char *shards_chunk_path(const ShardsJob *j, int i);
/* All documents of a bucket, in the corpus's order. */
Status shards_gather(ShardsJob *j, ShardsWorker *w, int bucket, Documents *d);

/* Pass 2: shard i. (write.c) */
Status shards_make(ShardsJob *j, ShardsWorker *w, int i, ShardsResult *r);
char *shards_name(const ShardsJob *j, int i); /* below DIR */
bool shards_held_out(const ShardsJob *j, int i);
/* Bytes of a shard of so many sequences and tokens, about. */
double shards_bytes(const ShardsJob *j, double sequences, double tokens);

/* Rows of at most SHARDS_PER_ROW sequences and `most` tokens. Row r has the sequences order[first[r]] ..
   order[first[r + 1] − 1]; the result depends on the lengths alone. Returns the number of rows. (pack.c) */
int64_t shards_pack(const int64_t *offset, int64_t n, int most, int64_t *order, int64_t *first); // (n), (n + 1)

/* The journal, by which a run resumes, and the manifest. (journal.c) */
/* Reads the journal of an earlier run of the same job; incomplete files are made again. E_USAGE: the folder belongs to
   another job. *finished: all shards exist already. */
Status shards_journal_open(ShardsJob *j, const Config *c, bool *finished);
Status shards_journal_chunk(ShardsJob *j, int i, const ShardsChunkResult *r);
Status shards_journal_shard(ShardsJob *j, int i, const ShardsResult *r);
Status shards_manifest(ShardsJob *j, const Config *c);
ShardsChunkResult shards_sum(const ShardsJob *j); /* the counts of all chunks */
void shards_journal_close(ShardsJob *j);
