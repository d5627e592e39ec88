/* DIR/unfinished/progress.jsonl has a line for each finished chunk and shard, so that a stopped or killed run resumes.
   DIR/manifest.json lists all shards. Formats: docs/files.md 8. */
#include <fcntl.h>
#include <unistd.h>

#include "tasks/pretrain/shards/job.h"

#define MOST_JOURNAL ((size_t)1 << 30)

static char *journal_path(const ShardsJob *j) { return mem_printf("%s/progress.jsonl", j->unfinished); }

/* ---- reading ---- */

static bool same_file(const char *path, uint64_t size, Digest digest)
{
    Digest d;
    uint64_t found;
    return file_size(path, &found) == OK && found == size && file_digest(path, &d, NULL) == OK &&
           digest_equal(d, digest);
}

static ShardsChunkResult chunk_of_line(const Json *line, uint64_t size)
{
    ShardsChunkResult r = {.size = size, .done = true};
#define X(field) r.field = js_int(js_get(line, #field), 0);
    SHARDS_COUNT_LIST(X)
#undef X
    return r;
}

/* Takes over a finished chunk or shard if its file has the size and digest of the line. */
static void adopt_line(ShardsJob *j, const Json *line)
{
    Digest digest;
    int64_t chunk = js_int(js_get(line, "chunk"), -1), shard = js_int(js_get(line, "shard"), -1);
    uint64_t size = (uint64_t)js_int(js_get(line, "bytes"), 0);
    char *path = NULL;
    if (!digest_parse(js_string(js_get(line, "xxh3_128"), ""), &digest)) return;
    if (chunk >= 0 && chunk < j->n_chunks) {
        path = shards_chunk_path(j, (int)chunk);
        if (same_file(path, size, digest)) j->chunked[chunk] = chunk_of_line(line, size);
    } else if (shard >= 0 && shard < j->n_shards) {
        char *name = shards_name(j, (int)shard);
        int64_t sequences = js_int(js_get(line, "sequences"), 0);
        path = file_join(j->dir, name);
        if (sequences == 0 || same_file(path, size, digest))
            j->shards[shard] = (ShardsResult){.size = size,
                                              .sequences = sequences,
                                              .tokens = js_int(js_get(line, "tokens"), 0),
                                              .masked = js_int(js_get(line, "masked"), 0),
                                              .documents = js_int(js_get(line, "documents"), 0),
                                              .random = js_int(js_get(line, "random"), 0),
                                              .digest = digest,
                                              .done = true};
        free(name);
    }
    free(path);
}

/* Whether the folder's work is this job's, or that of a version before the fast tokenizer. */
static bool is_ours(ShardsJob *j, const Config *c, const Json *record)
{
    const char *made_of = js_string(js_get(record, "made_of"), "");
    if (strcmp(made_of, j->older) == 0) shards_adopt_older(j, c);
    return strcmp(made_of, j->identity) == 0;
}

static Status belongs_to_another_job(const ShardsJob *j, const char *path)
{
    return fail(
        E_USAGE,
        "%s belongs to other text, another vocabulary or other options; give another --output-dir, or remove %s", path,
        j->dir);
}

/* Reads the journal's whole lines; *whole is their length. */
static Status read_journal(ShardsJob *j, const Config *c, const char *path, size_t *whole)
{
    Buf text = {0};
    Status status = OK;
    bool first = true;
    *whole = 0;
    if (!file_exists(path)) return OK;
    TRY_DONE(file_read(path, MOST_JOURNAL, &text));
    for (char *at = text.data, *end; (end = memchr(at, '\n', text.len - (size_t)(at - text.data))); at = end + 1) {
        Json *line;
        if (js_parse(path, at, (size_t)(end - at), &line) != OK) break; /* incomplete: the end of the journal */
        bool ours = !first || is_ours(j, c, line);
        if (ours && !first) adopt_line(j, line);
        js_free(line);
        bool more = memchr(end + 1, '\n', text.len - (size_t)(end + 1 - text.data)) != NULL;
        if (!ours && !more) break; /* a start that failed before it made anything: the journal begins again */
        if (!ours) TRY_DONE(belongs_to_another_job(j, path));
        first = false;
        *whole = (size_t)(end + 1 - text.data);
    }
done:
    buf_free(&text);
    return status;
}

/* A manifest lists all shards, so each must be there. */
static Status read_manifest(ShardsJob *j, const Config *c, bool *finished)
{
    char *path = file_join(j->dir, "manifest.json");
    Json *doc = NULL;
    Status status = OK;
    if (!file_exists(path)) goto done;
    TRY_DONE(js_read(path, &doc));
    if (!is_ours(j, c, doc)) TRY_DONE(belongs_to_another_job(j, path));
    const Json *shards = js_get(doc, "shards");
    for (size_t i = 0; i < js_size(shards); i++) {
        const Json *shard = js_at(shards, i);
        char *file = file_join(j->dir, js_string(js_get(shard, "name"), "?"));
        uint64_t size = 0;
        bool same = file_size(file, &size) == OK && size == (uint64_t)js_int(js_get(shard, "bytes"), -1);
        if (!same) status = fail(E_CORRUPT, "%s: missing or damaged; remove %s and make it again", file, path);
        free(file);
        if (status != OK) goto done;
    }
    *finished = true;
done:
    js_free(doc);
    free(path);
    return status;
}

Status shards_journal_open(ShardsJob *j, const Config *c, bool *finished)
{
    char *path = journal_path(j);
    size_t whole = 0;
    Status status = OK;
    *finished = false;
    TRY_DONE(read_manifest(j, c, finished));
    if (*finished) goto done;
    TRY_DONE(read_journal(j, c, path, &whole));
    TRY_DONE(file_make_directories(j->unfinished));
    TRY_DONE(file_remove_temporaries(j->unfinished));
    TRY_DONE(file_remove_temporaries(j->dir));
    int fd;
    TRY_DONE(file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, &fd));
    j->journal = fdopen(fd, "a");
    if (!j->journal || ftruncate(fd, (off_t)whole) != 0) TRY_DONE(fail(E_IO, "%s: %m", path));
    if (whole == 0) fprintf(j->journal, "{\"made_of\": \"%s\"}\n", j->identity);
    if (fflush(j->journal) != 0) TRY_DONE(fail(E_IO, "%s: %m", path));
done:
    free(path);
    return status;
}

/* ---- writing ---- */

/* Appends a durable line, and frees it. */
static Status add_line(ShardsJob *j, Buf *line)
{
    pthread_mutex_lock(&j->lock);
    bool good = fputs(line->data, j->journal) >= 0 && fflush(j->journal) == 0 && fdatasync(fileno(j->journal)) == 0;
    Status status = good ? OK : fail(E_IO, "%s/progress.jsonl: %m", j->unfinished);
    pthread_mutex_unlock(&j->lock);
    buf_free(line);
    return status;
}

Status shards_journal_chunk(ShardsJob *j, int i, const ShardsChunkResult *r)
{
    Buf line = {0};
    buf_printf(&line, "{\"chunk\": %d, ", i);
#define X(field) buf_printf(&line, "\"" #field "\": %lld, ", (long long)r->field);
    SHARDS_COUNT_LIST(X)
#undef X
    buf_printf(&line, "\"bytes\": %llu, \"xxh3_128\": \"%s\"}\n", (unsigned long long)r->size, DIGEST_TEXT(r->digest));
    return add_line(j, &line);
}

static void describe_shard(const ShardsResult *r, Buf *out)
{
    buf_printf(out, "\"sequences\": %lld, \"tokens\": %lld, \"masked\": %lld, \"bytes\": %llu, \"xxh3_128\": \"%s\"}",
               (long long)r->sequences, (long long)r->tokens, (long long)r->masked, (unsigned long long)r->size,
               DIGEST_TEXT(r->digest));
}

Status shards_journal_shard(ShardsJob *j, int i, const ShardsResult *r)
{
    Buf line = {0};
    buf_printf(&line, "{\"shard\": %d, \"documents\": %lld, \"random\": %lld, ", i, (long long)r->documents,
               (long long)r->random);
    describe_shard(r, &line);
    buf_puts(&line, "\n");
    return add_line(j, &line);
}

ShardsChunkResult shards_sum(const ShardsJob *j)
{
    ShardsChunkResult sum = {0};
    for (int i = 0; i < j->n_chunks; i++) {
#define X(field) sum.field += j->chunked[i].field;
        SHARDS_COUNT_LIST(X)
#undef X
    }
    return sum;
}

/* `folder` is DIR, or DIR/eval, whose manifest lists the shards in it alone (`only` is "eval/"). */
static Status write_manifest(ShardsJob *j, const Config *c, const char *folder, const char *only)
{
    Buf out = {0};
    ShardsChunkResult sum = shards_sum(j);
    const TokenizerOptions *o = &j->tokenizer.options;
    buf_printf(&out, "{\n  \"cairn_shards\": 1,\n  \"made_of\": \"%s\",\n  \"vocab_xxh3_128\": \"%s\",\n", j->identity,
               DIGEST_TEXT(vocab_digest(j->tokenizer.vocab)));
    buf_printf(&out,
               "  \"max_seq_length\": %d,\n  \"max_predictions\": %d,\n  \"mask_fraction\": ", j->pairs.max_length,
               j->max_predictions);
    buf_double(&out, c->mask_fraction);
    buf_puts(&out, ",\n  \"short_seq_prob\": ");
    buf_double(&out, c->short_seq_prob);
    buf_puts(&out, ",\n  \"eval_fraction\": ");
    buf_double(&out, c->eval_fraction);
    buf_printf(
        &out,
        ",\n  \"dupe_factor\": %d,\n  \"whole_words\": %s,\n  \"masking\": \"%s\",\n  \"layout\": \"%s\",\n  "
        "\"tokenizer\": \"%s\",\n  \"do_lower_case\": \"%s\",\n  \"strip_accents\": \"%s\",\n  \"seed\": %lld,\n",
        j->rounds, c->whole_words ? "true" : "false", j->is_static ? "static" : "dynamic", c->layout,
        o->kind == TOKENIZER_FAST ? "fast" : "python", o->lower_case ? "yes" : "no",
        o->strip_accents < 0 ? "auto"
        : o->strip_accents   ? "yes"
                             : "no",
        (long long)c->seed);
    buf_printf(&out,
               "  \"text_bytes\": %llu,\n  \"documents\": %lld,\n  \"eval_documents\": %lld,\n  \"sentences\": "
               "%lld,\n  \"text_tokens\": %lld,\n  \"shards\": [",
               (unsigned long long)j->bytes, (long long)sum.documents, (long long)sum.eval_documents,
               (long long)sum.sentences, (long long)sum.tokens);
    for (int i = 0, listed = 0; i < j->n_shards; i++) {
        if (j->shards[i].sequences == 0) continue;
        char *name = shards_name(j, i);
        if (strncmp(name, only, strlen(only)) == 0) {
            buf_printf(&out, "%s\n    {\"name\": \"%s\", ", listed++ ? "," : "", name + strlen(only));
            describe_shard(&j->shards[i], &out);
        }
        free(name);
    }
    buf_puts(&out, "\n  ]\n}\n");
    return file_write_text(folder, "manifest.json", &out);
}

static Status write_tokenizer(const ShardsJob *j, const char *folder)
{
    TokenizerText texts[TOKENIZER_MAX_TEXTS];
    Status status = OK;
    int n = tokenizer_files_write(j->tokenizer.vocab, &j->tokenizer.options, j->pairs.max_length, texts);
    for (int i = 0; i < n && status == OK; i++)
        status = file_write_in(folder, texts[i].name, texts[i].text.data, texts[i].text.len);
    for (int i = 0; i < n; i++) buf_free(&texts[i].text);
    return status;
}

/* Equal text and options give equal bytes on every machine. DIR's manifest comes last. */
Status shards_manifest(ShardsJob *j, const Config *c)
{
    Status status = OK;
    char *eval = file_join(j->dir, "eval");
    TRY_DONE(write_tokenizer(j, j->dir));
    if (j->eval_buckets) TRY_DONE(write_tokenizer(j, eval));
    if (j->eval_buckets) TRY_DONE(write_manifest(j, c, eval, "eval/"));
    TRY_DONE(write_manifest(j, c, j->dir, ""));
done:
    free(eval);
    return status;
}

void shards_journal_close(ShardsJob *j)
{
    if (j->journal) fclose(j->journal);
    j->journal = NULL;
}
