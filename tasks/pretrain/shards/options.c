/* Options and text of `cairn shards`, as a job. */

#include "base/test_switch.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/shards/job.h"
#include "train/ranks/signals.h"

#define LEAST_SHARD  4096
#define MOST_SHARD   ((int64_t)64 << 20)
#define MOST_BUCKETS 65536

/* ---- the text ---- */

static Status find_text(ShardsJob *j, const char *list)
{
    TRY(inputs_find(&j->inputs, list, true));
    const char *small = test_switch("SHARDS_CHUNK"); /* the text of tests is smaller than a chunk */
    j->chunk_bytes = small ? strtoull(small, NULL, 10) : SHARDS_CHUNK_BYTES;
    j->sizes = mem_array((size_t)j->inputs.count, sizeof *j->sizes);
    for (int i = 0; i < j->inputs.count; i++) {
        TRY(file_size(j->inputs.paths[i], &j->sizes[i]));
        j->bytes += j->sizes[i];
        j->n_chunks += (int)((j->sizes[i] + j->chunk_bytes - 1) / j->chunk_bytes);
    }
    if (j->bytes == 0) return fail(E_FORMAT, "%s: the text is empty", list);
    if (j->n_chunks > 1 << 16) return fail(E_USAGE, "%s: more than 2 TB of text", list);
    j->chunks = mem_array((size_t)j->n_chunks, sizeof *j->chunks);
    j->chunked = mem_array((size_t)j->n_chunks, sizeof *j->chunked);
    for (int i = 0, n = 0; i < j->inputs.count; i++)
        for (uint64_t at_byte = 0; at_byte < j->sizes[i]; at_byte += j->chunk_bytes)
            j->chunks[n++] = (ShardsChunk){i, at_byte, at_byte + j->chunk_bytes};
    return OK;
}

/* ---- the options ---- */

Status shards_check_use(const Config *c)
{
    if (c->max_seq_length < 8)
        return fail(E_USAGE, "--max-seq-length %lld: pairs need 8 at least", (long long)c->max_seq_length);
    if (!hdf5_available())
        return fail(E_USAGE, "this cairn was built without HDF5; install libhdf5-dev and build again (-DWITH_HDF5=ON)");
    return OK;
}

static ShardsForm form_of(const char *layout)
{
    static const char *const names[] = {
        [SHARDS_COMPACT] = "compact", [SHARDS_NVIDIA] = "nvidia", [SHARDS_PACKED] = "packed", [SHARDS_FIXED] = "fixed"};
    int form = 0;
    while (strcmp(names[form], layout) != 0) form++;
    return (ShardsForm)form;
}

static Status read_options(ShardsJob *j, const Config *c)
{
    if (!*c->input)
        return fail(E_USAGE, "give --input DIR: text with a sentence per line, an empty line after each document");
    if (!*c->vocab) return fail(E_USAGE, "give --vocab FILE");
    if (c->source[OPTION_output_dir] == FROM_DEFAULT)
        return fail(E_USAGE, "give --output-dir DIR, where the shards go");
    TRY(shards_check_use(c));
    if (c->mask_fraction <= 0) return fail(E_USAGE, "--mask-fraction 0 leaves nothing to learn");
    int64_t shard = c->shard_size ? c->shard_size : SHARDS_SIZE;
    if (shard < LEAST_SHARD || shard > MOST_SHARD)
        return fail(E_USAGE, "--shard-size is %lld bytes; expected 4 KiB to 64 MiB", (long long)shard);
    TRY(tokenizer_files_read(c->vocab, *c->model ? c->model : NULL, j->stop, &j->tokenizer));
    tokenizer_files_choose(&j->tokenizer, c->do_lower_case, c->strip_accents);
    j->tokenizer.options.one_type = false; /* pairs have two types */
    TRY(find_text(j, c->input));
    SpecialIds special = vocab_special(j->tokenizer.vocab);
    j->dir = c->output_dir;
    j->unfinished = file_join(j->dir, "unfinished");
    j->id_bytes = vocab_size(j->tokenizer.vocab) <= UINT16_MAX + 1 ? 2 : 4;
    j->form = form_of(c->layout);
    j->is_static = strcmp(c->masking, "static") == 0 || (strcmp(c->masking, "auto") == 0 && j->form != SHARDS_COMPACT);
    j->max_predictions = c->predictions ? (int)c->predictions : (int)ceil(0.15 * (double)c->max_seq_length);
    j->pairs = (PairOptions){.max_length = (int)c->max_seq_length,
                             .short_prob = c->short_seq_prob,
                             .seed = (uint64_t)c->seed,
                             .cls = special.cls,
                             .sep = special.sep,
                             .alone = strcmp(c->nsp, "off") == 0};
    if (j->pairs.alone && (j->form == SHARDS_NVIDIA || j->form == SHARDS_FIXED) && !j->is_static)
        return fail(E_USAGE,
                    "--nsp off: rows of fixed length without masks are pairs; leave out --layout %s, or give "
                    "--masking static",
                    c->layout);
    masking_init(&j->masking, j->tokenizer.vocab, (uint64_t)c->seed, c->mask_fraction, j->max_predictions,
                 c->whole_words);
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

/* The digest of versions before the fast tokenizer, and the text's options. */
static Digest identify_text(Digest older, const TokenizerOptions *o)
{
    const int8_t options[] = {(int8_t)o->kind,  o->lower_case,    (int8_t)o->strip_accents,
                              o->split_chinese, o->split_special, o->clean_text,
                              o->split_words};
    char both[sizeof older + sizeof options];
    memcpy(both, &older, sizeof older);
    memcpy(both + sizeof older, options, sizeof options);
    return digest_of(both, sizeof both);
}

void shards_adopt_older(ShardsJob *j, const Config *c)
{
    TokenizerOptions *o = &j->tokenizer.options;
    *o = tokenizer_options(strcmp(c->do_lower_case, "no") != 0);
    if (strcmp(c->strip_accents, "auto") != 0) o->strip_accents = strcmp(c->strip_accents, "yes") == 0;
    o->kind = TOKENIZER_PYTHON;
    memcpy(j->identity, j->older, sizeof j->identity);
}

/* Digest of everything that determines the shards: options, vocabulary, and the text files by name, size, first and
   last 64 KiB. */
static Status identify_job(ShardsJob *j, const Config *c)
{
    DigestStream *d = digest_new();
    Digest vocab = vocab_digest(j->tokenizer.vocab), older;
    Status status = OK;
    Buf head = {0};
    double numbers[] = {(double)c->max_seq_length, (double)j->max_predictions, c->mask_fraction,
                        (double)c->whole_words,    c->short_seq_prob,          (double)j->rounds,
                        c->eval_fraction,          (double)j->buckets,         (double)j->eval_buckets,
                        (double)j->form,           (double)j->is_static,       (double)j->chunk_bytes};
    digest_update(d, numbers, sizeof numbers);
    digest_update(d, &c->seed, sizeof c->seed);
    if (j->pairs.alone) digest_update(d, "alone", 6);
    digest_update(d, c->do_lower_case, strlen(c->do_lower_case) + 1);
    digest_update(d, c->strip_accents, strlen(c->strip_accents) + 1);
    digest_update(d, &vocab, sizeof vocab);
    for (int i = 0; i < j->inputs.count && status == OK; i++)
        status = input_identify(j->inputs.paths[i], j->sizes[i], d, &head);
    older = digest_value(d);
    digest_format(older, j->older);
    digest_format(identify_text(older, &j->tokenizer.options), j->identity);
    digest_free(d);
    buf_free(&head);
    return status;
}

Status shards_job_init(ShardsJob *j, const Config *c)
{
    *j = (ShardsJob){.stop = signals_stop()};
    pthread_mutex_init(&j->lock, NULL);
    TRY(read_options(j, c));
    return identify_job(j, c);
}

void shards_job_free(ShardsJob *j)
{
    file_list_free(&j->inputs);
    MEM_FREE(j->sizes, j->chunks, j->chunked, j->shards, j->unfinished);
    masking_free(&j->masking);
    tokenizer_files_free(&j->tokenizer);
    pthread_mutex_destroy(&j->lock);
}
