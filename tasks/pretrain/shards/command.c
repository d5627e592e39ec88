/* `cairn shards`: an estimate of memory and disk, and the two passes. */
#include <unistd.h>

#include "base/lock.h"
#include "base/parallel.h"
#include "base/test_switch.h"
#include "report/stage_progress.h"
#include "tasks/pretrain/pool.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/shards/job.h"
#include "train/ranks/signals.h"

#define BYTES_PER_TOKEN 3.5  /* of English, at least; for estimates alone */
#define TOKENS_TWICE    1.4  /* text that a random B replaces is used again */
#define FIRST_PASS      0.75 /* of the time */
#define FEW             0.1  /* share of pairs with label 0 */

/* ---- memory and disk ---- */

/* At most as many threads as fit the promised memory. */
static void choose_threads(ShardsJob *j, int64_t asked, int64_t shard_bytes)
{
    double tokens = (double)(shard_bytes ? shard_bytes : SHARDS_SIZE) / BYTES_PER_TOKEN * TOKENS_TWICE;
    double first = (double)SHARDS_CHUNK_BYTES / BYTES_PER_TOKEN * j->id_bytes * 2 + (4 << 20);
    double second = tokens * (5 + 6 + (j->is_static ? 2 : 0)) + 1024.0 * j->pairs.max_length * 4 + (2 << 20);
    int most = (int)((double)SHARDS_MEMORY / (first > second ? first : second));
    int wanted = asked ? (int)asked : parallel_cores();
    if (wanted < 1) wanted = 1; /* the cores are unknown */
    if (most < 1) most = 1;
    if (most > POOL_MOST) most = POOL_MOST;
    if (wanted > most) log_info("%d threads, not %d, to stay below 1 GiB of memory", most, wanted);
    j->threads = wanted > most ? most : wanted;
}

static Status check_disk(ShardsJob *j)
{
    uint64_t there = 0, free_bytes;
    double known = 0, known_bytes = 0, tokens;
    for (int i = 0; i < j->n_chunks; i++) {
        const ShardsChunk *chunk = &j->chunks[i];
        if (!j->chunked[i].done) continue;
        there += j->chunked[i].size;
        known += (double)j->chunked[i].tokens;
        known_bytes +=
            (double)((chunk->end < j->sizes[chunk->input] ? chunk->end : j->sizes[chunk->input]) - chunk->begin);
    }
    for (int i = 0; i < j->n_shards; i++) there += j->shards[i].done ? j->shards[i].size : 0;
    tokens = (double)j->bytes * (known > 0 ? known / known_bytes : 1 / BYTES_PER_TOKEN);
    double chunks = tokens * (j->id_bytes + 0.25),
           used = tokens * TOKENS_TWICE * (1 + (j->rounds - 1) * (1 - j->eval_fraction));
    double shards = shards_bytes(j, used / (0.85 * j->pairs.max_length), used);
    TRY(file_free_bytes(j->dir, &free_bytes));
    const char *between = STAGE_BYTES(chunks), *end = STAGE_BYTES(shards), *left = STAGE_BYTES((double)free_bytes);
    log_info(
        "%s of text in %d files, about %.3g million tokens: %d shards with %d threads; disk: about %s of shards, and "
        "%s in between; %s are free",
        STAGE_BYTES((double)j->bytes), j->inputs.count, tokens / 1e6, j->n_shards, j->threads, end, between, left);
    if (chunks + shards > (double)there + (double)free_bytes)
        return fail(
            E_IO,
            "%s: about %s of shards and %s in between are needed, %s are free. Make room, or give another --output-dir",
            j->dir, end, between, left);
    return OK;
}

/* ---- the passes ---- */

typedef struct {
    PoolJob pool; /* first */
    ShardsJob *j;
    int i;
    bool is_chunk;
    Status status;
    char *message;
} PassJob;

static void run_pass_job(PoolJob *pool, void *arg)
{
    PassJob *t = (PassJob *)pool;
    ShardsJob *j = t->j;
    ShardsWorker *w = arg;
    t->status = *j->stop ? fail(E_STOPPED, "stopped; the same command resumes") : OK;
    if (t->status == OK && t->is_chunk) {
        ShardsChunkResult r;
        t->status = shards_chunk(j, w, t->i, &r);
        if (t->status == OK) t->status = shards_journal_chunk(j, t->i, &r);
        r.done = t->status == OK;
        if (r.done) j->chunked[t->i] = r;
    } else if (t->status == OK) {
        ShardsResult r;
        t->status = shards_make(j, w, t->i, &r);
        if (t->status == OK) t->status = shards_journal_shard(j, t->i, &r);
        r.done = t->status == OK;
        if (r.done) j->shards[t->i] = r;
    }
    if (t->status != OK) t->message = mem_strdup(status_message());
}

static void show_pass(StageProgress *p, bool chunks, int done, int of)
{
    double share = (double)done / of;
    if (!stage_progress_due(p)) return;
    stage_progress_show(p, chunks ? FIRST_PASS * share : FIRST_PASS + (1 - FIRST_PASS) * share,
                        SHORT_TEXT(chunks ? "text to tokens, %d of %d" : "shard %d of %d", done, of));
}

/* One pass: every missing chunk or shard. The first failure ends it, after the jobs that had begun. */
static Status run_pass(ShardsJob *j, ShardsWorker *workers, StageProgress *progress, bool chunks)
{
    int n = chunks ? j->n_chunks : j->n_shards, waiting = 0, begun = 0, done = 0;
    void *all[POOL_MOST];
    PassJob *jobs = mem_array((size_t)n, sizeof *jobs);
    Pool *pool = NULL;
    Status status = OK;
    for (int i = 0; i < n; i++)
        if (!(chunks ? j->chunked[i].done : j->shards[i].done))
            jobs[waiting++] = (PassJob){.j = j, .i = i, .is_chunk = chunks};
        else
            done++;
    for (int i = 0; i < j->threads; i++) all[i] = &workers[i];
    if (waiting == 0) goto done;
    TRY_DONE(pool_open(&pool, j->threads < waiting ? j->threads : waiting, run_pass_job, all));
    for (int i = 0; i < waiting; i++) {
        for (; begun < waiting && begun < i + 2 * j->threads; begun++) pool_submit(pool, &jobs[begun].pool);
        while (!pool_is_done(pool, &jobs[i].pool)) {
            usleep(5000);
            show_pass(progress, chunks, done, n);
        }
        done++;
        if (jobs[i].status != OK) TRY_DONE(fail(jobs[i].status, "%s", jobs[i].message));
    }
done:
    pool_close(pool);
    for (int i = 0; i < waiting; i++) free(jobs[i].message);
    free(jobs);
    return status;
}

/* B of a random pair comes from the same shard, so pairs of a shard with one document all have label 0. Where no B
   follows within a document, because each line is one or each fills a sequence, all have label 1. */
static void warn_labels(const ShardsJob *j, bool held_out)
{
    const char *what = held_out ? "held out" : "for training";
    int64_t pairs = 0, random = 0;
    int lone = 0, shards = 0;
    for (int i = 0; i < j->n_shards; i++) {
        const ShardsResult *r = &j->shards[i];
        if (shards_held_out(j, i) != held_out || r->documents == 0) continue;
        pairs += r->sequences;
        random += r->random;
        lone += r->documents == 1;
        shards++;
    }
    if (j->pairs.alone || pairs == 0) return;
    if (lone > 0)
        log_warn(
            "%s: %d of %d shards have one document, so all their pairs have label 0 (B follows A), and a lone sentence "
            "has none; give more documents (an empty line ends one), a larger --shard-size, or --nsp off",
            what, lone, shards);
    if ((double)(pairs - random) < FEW * (double)pairs)
        log_warn("%s: %lld of %lld pairs have label 1 (B from another document); expected about half. Give a sentence "
                 "per line, and an empty line only after each document (docs/data.md 3), a larger --max-seq-length, or "
                 "--nsp off",
                 what, (long long)random, (long long)pairs);
}

static void warn_documents(const ShardsJob *j, int64_t documents, int64_t held_out)
{
    if (j->eval_fraction > 0 && (held_out == 0 || held_out == documents))
        log_warn("--eval-fraction %g holds out %s of the %lld documents; give a %s one", j->eval_fraction,
                 held_out ? "all" : "none", (long long)documents, held_out ? "smaller" : "larger");
    warn_labels(j, false);
    warn_labels(j, true);
}

static void log_summary(const ShardsJob *j, double seconds, bool resumed)
{
    ShardsChunkResult sum = shards_sum(j);
    ShardsResult made = {0};
    for (int i = 0; i < j->n_shards; i++) {
        made.sequences += j->shards[i].sequences;
        made.tokens += j->shards[i].tokens;
        made.size += j->shards[i].size;
    }
    if (sum.bad_lines) log_warn("%lld lines were not UTF-8: their other bytes were left out", (long long)sum.bad_lines);
    if (sum.cut_lines) log_warn("%lld lines above 1 MiB were cut", (long long)sum.cut_lines);
    if (sum.cut_documents) log_warn("%lld documents of more than 262144 tokens were cut", (long long)sum.cut_documents);
    warn_documents(j, sum.documents, sum.eval_documents);
    log_info("%s: %lld documents (%lld held out), %lld sentences: %lld sequences, %.1f tokens on average, %s, in %s%s, "
             "%.1f MB of text per second",
             j->dir, (long long)sum.documents, (long long)sum.eval_documents, (long long)sum.sentences,
             (long long)made.sequences, made.sequences ? (double)made.tokens / (double)made.sequences : 0,
             STAGE_BYTES((double)made.size), CLOCK_DURATION(seconds), resumed ? " since it resumed" : "",
             seconds > 0 ? (double)j->bytes / 1e6 / seconds : 0);
}

/* Documents of one sentence that are alone in their shard have no pair. */
static Status check_pairs(const ShardsJob *j, const Config *c)
{
    int64_t sequences = 0;
    for (int i = 0; i < j->n_shards; i++) sequences += j->shards[i].sequences;
    if (sequences > 0) return OK;
    return fail(
        E_FORMAT,
        "%s: expected pairs of sentences, found %lld sentences in %lld documents, each alone in its shard; give "
        "more text, a larger --shard-size, or --nsp off",
        c->input, (long long)shards_sum(j).sentences, (long long)shards_sum(j).documents);
}

/* The tokenizer is written beside the shards, but never replaces another vocabulary. */
static Status check_vocab_place(const ShardsJob *j, const Config *c)
{
    TokenizerFiles there = {0};
    Status status = OK;
    char *path = tokenizer_files_find(j->dir);
    if (!path) return OK;
    TRY_DONE(tokenizer_files_read(NULL, j->dir, j->stop, &there));
    if (!digest_equal(vocab_digest(there.vocab), vocab_digest(j->tokenizer.vocab)))
        TRY_DONE(fail(E_USAGE,
                      "%s differs from %s, which goes beside the shards as vocab.txt; give another --output-dir", path,
                      c->vocab));
done:
    tokenizer_files_free(&there);
    free(path);
    return status;
}

static Status make_shards(ShardsJob *j, const Config *c)
{
    bool finished, resumed = false;
    double start = clock_monotonic();
    Status status = OK;
    StageProgress progress = {0};
    ShardsWorker *workers = NULL;
    char *eval = file_join(j->dir, "eval");
    TRY_DONE(shards_journal_open(j, c, &finished));
    if (finished) { /* a process killed after the manifest left files */
        TRY_DONE(file_remove_temporaries(j->dir));
        TRY_DONE(file_remove_tree(j->unfinished));
        log_info("%s: all shards exist already", j->dir);
        goto done;
    }
    TRY_DONE(check_vocab_place(j, c));
    for (int i = 0; i < j->n_chunks; i++) resumed |= j->chunked[i].done;
    choose_threads(j, c->threads, c->shard_size);
    workers = mem_array((size_t)j->threads, sizeof *workers);
    if (resumed) log_info("%s: resuming where an earlier run ended", j->dir);
    TRY_DONE(check_disk(j));
    if (j->eval_buckets) TRY_DONE(file_make_directories(eval));
    if (j->eval_buckets) TRY_DONE(file_remove_temporaries(eval));
    stage_progress_open(&progress);
    TRY_DONE(run_pass(j, workers, &progress, true));
    if (shards_sum(j).documents == 0) TRY_DONE(fail(E_FORMAT, "%s: no sentence in the text", c->input));
    test_at("pass", 1);
    TRY_DONE(run_pass(j, workers, &progress, false));
    test_at("pass", 2);
    stage_progress_close(&progress);
    TRY_DONE(check_pairs(j, c));
    TRY_DONE(shards_manifest(j, c));
    shards_journal_close(j);
    TRY_DONE(file_remove_tree(j->unfinished));
    log_summary(j, clock_monotonic() - start, resumed);
done:
    stage_progress_close(&progress);
    shards_journal_close(j);
    for (int i = 0; workers && i < j->threads; i++) shards_worker_free(&workers[i]);
    MEM_FREE(workers, eval);
    return status;
}

Status command_shards(const Config *c)
{
    ShardsJob j;
    FolderLock lock = {0};
    Status status = OK;
    TRY_DONE(shards_job_init(&j, c));
    signals_install();
    TRY_DONE(lock_take(&lock, j.dir));
    TRY_DONE(make_shards(&j, c));
done:
    lock_release(&lock);
    shards_job_free(&j);
    return status;
}
