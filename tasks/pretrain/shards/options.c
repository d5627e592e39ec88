/* Options and text of `cairn shards`, as a job. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/test_switch.h"
#include "tasks/pretrain/shards/job.h"
#include "train/signals.h"

#define LEAST_SHARD  4096
#define MOST_SHARD   ((int64_t)64 << 20)
#define MOST_BUCKETS 65536
#define MOST_VOCAB   ((size_t)256 << 20)

/* ---- the text ---- */

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void add_input(ShardsJob *j, char *path)
{
    j->inputs = mem_resize(j->inputs, (size_t)j->n_inputs + 1, sizeof *j->inputs);
    j->inputs[j->n_inputs++] = path;
}

/* Files of a folder by name: all .txt files, or without any, all files except JSON. */
static Status add_folder(ShardsJob *j, const char *dir)
{
    DIR *d = opendir(dir);
    int first = j->n_inputs, texts = 0, kept;
    if (!d) return fail(E_IO, "%s: %m", dir);
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat info;
        const char *dot = strrchr(entry->d_name, '.');
        char *path = file_join(dir, entry->d_name);
        bool json = dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".jsonl") == 0);
        if (entry->d_name[0] == '.' || json || strstr(entry->d_name, ".tmp.") || stat(path, &info) != 0 ||
            !S_ISREG(info.st_mode)) {
            free(path);
            continue;
        }
        texts += dot && strcmp(dot, ".txt") == 0;
        add_input(j, path);
    }
    closedir(d);
    kept = first;
    for (int i = first; i < j->n_inputs; i++) {
        const char *dot = strrchr(j->inputs[i], '.');
        if (texts == 0 || (dot && strcmp(dot, ".txt") == 0))
            j->inputs[kept++] = j->inputs[i];
        else
            free(j->inputs[i]);
    }
    j->n_inputs = kept;
    if (kept == first) return fail(E_FORMAT, "%s: no text files in it", dir);
    qsort(j->inputs + first, (size_t)(kept - first), sizeof *j->inputs, by_name);
    return OK;
}

static Status find_text(ShardsJob *j, const char *list)
{
    char *copy = mem_strdup(list), *at = copy;
    Status status = OK;
    for (char *path = strsep(&at, ","); path && status == OK; path = strsep(&at, ","))
        if (file_is_directory(path))
            status = add_folder(j, path);
        else
            add_input(j, mem_strdup(path));
    free(copy);
    if (status != OK) return status;
    const char *small = test_switch("SHARDS_CHUNK"); /* tests have less text than a chunk */
    j->chunk_bytes = small ? strtoull(small, NULL, 10) : SHARDS_CHUNK_BYTES;
    j->sizes = mem_array((size_t)j->n_inputs, sizeof *j->sizes);
    for (int i = 0; i < j->n_inputs; i++) {
        TRY(file_size(j->inputs[i], &j->sizes[i]));
        j->bytes += j->sizes[i];
        j->n_chunks += (int)((j->sizes[i] + j->chunk_bytes - 1) / j->chunk_bytes);
    }
    if (j->bytes == 0) return fail(E_FORMAT, "%s: the text is empty", list);
    if (j->n_chunks > 1 << 16) return fail(E_USAGE, "%s: more than 2 TB of text", list);
    j->chunks = mem_array((size_t)j->n_chunks, sizeof *j->chunks);
    j->chunked = mem_array((size_t)j->n_chunks, sizeof *j->chunked);
    for (int i = 0, n = 0; i < j->n_inputs; i++)
        for (uint64_t at_byte = 0; at_byte < j->sizes[i]; at_byte += j->chunk_bytes)
            j->chunks[n++] = (ShardsChunk){i, at_byte, at_byte + j->chunk_bytes};
    return OK;
}

/* ---- the options ---- */

static Status read_options(ShardsJob *j, const Config *c)
{
    TokenizerOptions text = {
        .lower_case = strcmp(c->do_lower_case, "no") != 0, .strip_accents = -1, .split_chinese = true};
    if (!*c->input)
        return fail(E_USAGE, "give --input DIR: text with a sentence per line, an empty line after each document");
    if (!*c->vocab) return fail(E_USAGE, "give --vocab FILE");
    if (c->source[OPTION_output_dir] == FROM_DEFAULT)
        return fail(E_USAGE, "give --output-dir DIR, where the shards go");
    if (c->max_seq_length < 8)
        return fail(E_USAGE, "--max-seq-length %lld: pairs need 8 at least", (long long)c->max_seq_length);
    if (c->mask_fraction <= 0) return fail(E_USAGE, "--mask-fraction 0 leaves nothing to learn");
    int64_t shard = c->shard_size ? c->shard_size : SHARDS_SIZE;
    if (shard < LEAST_SHARD || shard > MOST_SHARD)
        return fail(E_USAGE, "--shard-size is %lld bytes; expected 4 KiB to 64 MiB", (long long)shard);
    if (strcmp(c->strip_accents, "auto") != 0) text.strip_accents = strcmp(c->strip_accents, "yes") == 0;
    if (!hdf5_available())
        return fail(E_USAGE, "this cairn was built without HDF5; install libhdf5-dev and build again (-DWITH_HDF5=ON)");
    TRY(file_read(c->vocab, MOST_VOCAB, &j->vocab_text));
    TRY(vocab_parse(c->vocab, j->vocab_text.data ? j->vocab_text.data : "", j->vocab_text.len, &j->vocab));
    TRY(find_text(j, c->input));
    SpecialIds special = vocab_special(j->vocab);
    j->dir = c->output_dir;
    j->unfinished = file_join(j->dir, "unfinished");
    j->tokenizer = tokenizer_new(j->vocab, text);
    j->id_bytes = vocab_size(j->vocab) <= UINT16_MAX + 1 ? 2 : 4;
    j->form = strcmp(c->layout, "nvidia") == 0 ? SHARDS_NVIDIA : SHARDS_COMPACT;
    j->is_static = strcmp(c->masking, "static") == 0 || (strcmp(c->masking, "auto") == 0 && j->form == SHARDS_NVIDIA);
    j->max_predictions = c->predictions ? (int)c->predictions : (int)ceil(0.15 * (double)c->max_seq_length);
    j->pairs = (PairOptions){(int)c->max_seq_length, c->short_seq_prob, (uint64_t)c->seed, special.cls, special.sep};
    masking_init(&j->masking, j->vocab, (uint64_t)c->seed, c->mask_fraction, j->max_predictions, c->whole_words);
    j->eval_fraction = c->eval_fraction;
    double buckets = ceil((double)j->bytes * (1 - c->eval_fraction) / (double)shard);
    double eval = c->eval_fraction > 0 ? ceil((double)j->bytes * c->eval_fraction / (double)shard) : 0;
    if (buckets + eval > MOST_BUCKETS)
        return fail(E_USAGE, "--shard-size %lld: that would be %.0f shards; at most %d", (long long)shard,
                    buckets + eval, MOST_BUCKETS);
    j->buckets = buckets < 1 ? 1 : (int)buckets;
    j->eval_buckets = (int)eval;
    j->rounds = (int)c->dupe_factor;
    if ((int64_t)j->buckets * j->rounds > 99999 - j->eval_buckets)
        return fail(E_USAGE, "--dupe-factor %d: more than 99999 shards; give a larger --shard-size", j->rounds);
    j->n_shards = j->buckets * j->rounds + j->eval_buckets;
    j->shards = mem_array((size_t)j->n_shards, sizeof *j->shards);
    return OK;
}

/* Digest of all that the bytes depend on: options, vocabulary, and the text by its files' names, sizes, first and last
   64 KiB. */
static Status identify(ShardsJob *j, const Config *c)
{
    DigestStream *d = digest_new();
    Digest vocab = vocab_digest(j->vocab);
    Status status = OK;
    char *piece = mem_alloc(65536);
    double numbers[] = {(double)c->max_seq_length, (double)j->max_predictions, c->mask_fraction,
                        (double)c->whole_words,    c->short_seq_prob,          (double)j->rounds,
                        c->eval_fraction,          (double)j->buckets,         (double)j->eval_buckets,
                        (double)j->form,           (double)j->is_static,       (double)j->chunk_bytes};
    digest_update(d, numbers, sizeof numbers);
    digest_update(d, &c->seed, sizeof c->seed);
    digest_update(d, c->do_lower_case, strlen(c->do_lower_case) + 1);
    digest_update(d, c->strip_accents, strlen(c->strip_accents) + 1);
    digest_update(d, &vocab, sizeof vocab);
    for (int i = 0; i < j->n_inputs && status == OK; i++) {
        const char *name = file_basename(j->inputs[i]);
        FILE *f = fopen(j->inputs[i], "r");
        if (!f) TRY_DONE(fail(E_IO, "%s: %m", j->inputs[i]));
        digest_update(d, name, strlen(name) + 1);
        digest_update(d, &j->sizes[i], sizeof j->sizes[i]);
        digest_update(d, piece, fread(piece, 1, 65536, f));
        if (j->sizes[i] > 65536 && fseeko(f, (off_t)j->sizes[i] - 65536, SEEK_SET) == 0)
            digest_update(d, piece, fread(piece, 1, 65536, f));
        fclose(f);
    }
    digest_format(digest_value(d), j->identity);
done:
    digest_free(d);
    free(piece);
    return status;
}

Status shards_job_init(ShardsJob *j, const Config *c)
{
    *j = (ShardsJob){.stop = signals_stop()};
    pthread_mutex_init(&j->lock, NULL);
    TRY(read_options(j, c));
    return identify(j, c);
}

void shards_job_free(ShardsJob *j)
{
    for (int i = 0; i < j->n_inputs; i++) free(j->inputs[i]);
    free(j->inputs);
    free(j->sizes);
    free(j->chunks);
    free(j->chunked);
    free(j->shards);
    free(j->unfinished);
    masking_free(&j->masking);
    tokenizer_free(j->tokenizer);
    vocab_free(j->vocab);
    buf_free(&j->vocab_text);
    pthread_mutex_destroy(&j->lock);
}
