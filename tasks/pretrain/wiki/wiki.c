#include "base/parallel.h"
#include "tasks/pretrain/wiki/wiki_internal.h"

#define BATCH_ROOM    ((size_t)192 << 20) /* bytes of unfinished batches */
#define MOST_WARNINGS 20

static void run_job(PoolJob *job, void *worker)
{
    WikiJob *j = (WikiJob *)job;
    if (!j->is_batch) {
        text_piece_unpack(&((WikiPieceJob *)j)->piece, false);
        return;
    }
    WikiBatchJob *b = (WikiBatchJob *)j;
    b->text.len = b->problems.len = 0;
    articles_make(worker, &b->batch, b->names, &b->text, &b->problems, &b->counts);
    b->counts.lost = b->lost;
    b->counts.read_bytes = b->read_bytes;
}

/* ---- batches ---- */

static void warn_lines(WikiRun *r, const char *lines, size_t len)
{
    for (const char *p = lines, *end = lines + len, *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        if (r->warnings++ < MOST_WARNINGS) log_warn("%.*s", (int)(stop - p), p);
        if (r->warnings == MOST_WARNINGS + 1)
            log_warn("more was left out; manifest.json lists the first %d problems", TEXT_PROBLEMS);
    }
}

/* Appends the batch's notes, then its problems with the file's name in front. */
static void name_problems(const WikiRun *r, const WikiBatchJob *b, Buf *out)
{
    if (b->notes.len) buf_append(out, b->notes.data, b->notes.len);
    const char *name = file_basename(r->files.paths[b->file]);
    for (const char *p = b->problems.data, *end = p + b->problems.len, *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        buf_printf(out, "%s: %.*s\n", name, (int)(stop - p), p);
    }
}

static void show_progress(WikiRun *r, double done)
{
    const WikiCounts *c = &r->parts.counts;
    if (!stage_progress_due(&r->progress)) return;
    stage_progress_show(&r->progress, done,
                        SHORT_TEXT("%s read, %lld articles, %s of text", STAGE_BYTES((double)c->read_bytes),
                                   (long long)c->articles, STAGE_BYTES((double)c->text_bytes)));
}

/* Waits for the oldest batch and writes it. */
static Status write_oldest_batch(WikiRun *r)
{
    WikiBatchJob *b = r->batches[r->first_batch];
    Buf problems = {0};
    pool_wait(r->pool, &b->job.job);
    r->first_batch = (r->first_batch + 1) % r->most_batches;
    r->n_batches--;
    r->batch_bytes -= b->batch.data.len;
    if (b->notes.len || b->problems.len) name_problems(r, b, &problems);
    if (problems.len) warn_lines(r, problems.data, problems.len);
    Status status = text_parts_add(&r->parts, &b->text, &b->counts, &problems, b->cursor);
    show_progress(r, b->done);
    buf_free(&problems);
    return status;
}

/* Empties a buffer. A large article's memory is not kept for the small ones after it. */
static void empty_buffer(Buf *b)
{
    if (b->cap > (size_t)4 << 20) buf_free(b);
    b->len = 0;
}

static WikiBatchJob *empty_batch(WikiRun *r, size_t file)
{
    WikiBatchJob **slot = &r->batches[(r->first_batch + r->n_batches) % r->most_batches], *b = *slot;
    if (!b) b = *slot = mem_alloc(sizeof *b);
    empty_buffer(&b->batch.data);
    empty_buffer(&b->text);
    empty_buffer(&b->problems);
    empty_buffer(&b->notes);
    b->batch.n = 0;
    b->batch.end = (TextPlace){0};
    b->job.is_batch = true;
    b->lost = b->read_bytes = 0;
    b->file = file;
    return b;
}

Status wiki_dispatch(WikiRun *r, TextCursor cursor, uint64_t offset, double done)
{
    WikiBatchJob *b = r->open;
    size_t file = b->file;
    b->read_bytes = (int64_t)(offset - r->offset);
    r->offset = offset;
    b->cursor = cursor;
    b->done = done;
    b->names = r->n_names ? r->names[r->n_names - 1] : NULL;
    r->n_batches++; /* it is in the ring's next slot already */
    r->batch_bytes += b->batch.data.len;
    pool_submit(r->pool, &b->job.job);
    while (r->n_batches >= r->most_batches || (r->n_batches > 0 && r->batch_bytes > BATCH_ROOM))
        TRY(write_oldest_batch(r));
    while (r->n_batches > 0 && pool_is_done(r->pool, &r->batches[r->first_batch]->job.job)) TRY(write_oldest_batch(r));
    r->open = empty_batch(r, file);
    return OK;
}

/* ---- the stage ---- */

static Status check_disk(const WikiRun *r)
{
    uint64_t available = 0;
    double still = r->files.text - (double)r->parts.counts.text_bytes;
    TRY(file_free_bytes(r->options->output_dir, &available));
    const char *need = STAGE_BYTES(still > 0 ? still : 0), *have = STAGE_BYTES((double)available);
    log_info("%zu files, %s; up to about %s of text will be written to %s, where %s are free; %d threads", r->files.n,
             STAGE_BYTES((double)r->files.bytes), need, r->options->output_dir, have, r->threads);
    if (still > (double)available)
        return fail(E_IO, "%s: about %s are needed, %s are free; make room or give another --output-dir",
                    r->options->output_dir, need, have);
    return OK;
}

static Status start_threads(WikiRun *r)
{
    int n = r->options->threads > 0 ? r->options->threads : parallel_cores();
    r->threads = n < 1 ? 1 : n < POOL_MOST ? n : POOL_MOST;
    r->most_batches = 2 * r->threads + 2;
    r->most_pieces = r->threads + 4;
    for (int i = 0; i < r->threads; i++) r->makers[i] = article_maker_new();
    return pool_open(&r->pool, r->threads, run_job, (void *const *)r->makers);
}

static Status read_files(WikiRun *r)
{
    Status status = OK;
    TextCursor from = r->parts.cursor;
    if (from.file > 0 || from.place.offset > 0)
        log_info("resuming after %zu finished parts, in %s", r->parts.n_parts,
                 from.file < r->files.n ? r->files.paths[from.file] : "nothing");
    r->open = empty_batch(r, 0);
    stage_progress_open(&r->progress);
    for (size_t i = 0; i < r->files.n && status == OK; i++) {
        uint64_t size = 0;
        TRY_DONE(file_size(r->files.paths[i], &size));
        if (i >= from.file) status = wiki_read_file(r, i, i == from.file ? from.place : (TextPlace){0});
        r->files_bytes += size;
    }
    while (status == OK && r->n_batches > 0) status = write_oldest_batch(r);
done:
    stage_progress_close(&r->progress);
    return status;
}

static void log_summary(const WikiRun *r, double seconds)
{
    const WikiCounts *c = &r->parts.counts;
    const char *rate = STAGE_BYTES(seconds > 0 ? (double)c->read_bytes / seconds : 0);
    log_info("%s: %zu parts, %lld articles, %lld sentences, %s of text from %s, in %s (%s/s)", r->options->output_dir,
             r->parts.n_parts, (long long)c->articles, (long long)c->sentences, STAGE_BYTES((double)c->text_bytes),
             STAGE_BYTES((double)c->read_bytes), CLOCK_DURATION(seconds), rate);
    int64_t left_out = c->redirects + c->other_namespaces + c->empty + c->broken + c->too_large;
    if (left_out)
        log_info(
            "not written: %lld redirects, %lld pages of other namespaces, %lld without a sentence, %lld broken, %lld "
            "too large",
            (long long)c->redirects, (long long)c->other_namespaces, (long long)c->empty, (long long)c->broken,
            (long long)c->too_large);
    if (c->gaps > 0 || c->with_markup > 0)
        log_info(
            "%lld of %lld articles (%.1f %%) have something like markup in their text; %lld sentences were left out "
            "where a template's words are missing",
            (long long)c->with_markup, (long long)c->articles, 100 * (double)c->with_markup / (double)c->articles,
            (long long)c->gaps);
    if (c->lost > 0)
        log_warn("files were damaged or cut at %lld places; the text has only the whole articles", (long long)c->lost);
}

static void free_run(WikiRun *r)
{
    pool_close(r->pool);
    for (int i = 0; i < POOL_MOST; i++) article_maker_free(r->makers[i]);
    for (int i = 0; i < MOST_PIECES; i++) text_piece_free(&r->pieces[i].piece);
    for (int i = 0; i < MOST_BATCHES; i++) {
        WikiBatchJob *b = r->batches[i];
        if (!b) continue;
        batch_free(&b->batch);
        BUF_FREE(&b->notes, &b->text, &b->problems);
        free(b);
    }
    for (size_t i = 0; i < r->n_names; i++) {
        namespaces_free(r->names[i]);
        free(r->names[i]);
    }
    free(r->names);
    text_parts_free(&r->parts);
    wiki_files_free(&r->files);
    free(r);
}

Status wiki_make_text(const WikiOptions *options, WikiCounts *counts)
{
    WikiRun *r = mem_alloc(sizeof *r);
    Status status = OK;
    bool finished = false;
    char digest[33], *settings = NULL;
    double started = clock_monotonic();
    r->options = options;
    TRY_DONE(wiki_files_find(&r->files, options->input));
    settings = mem_printf("{\"part-size\": %zu, \"max-article\": %zu, \"text-form\": \"%s\"}", options->part_size,
                          options->max_article, options->form == FORM_UNKNOWN ? "auto" : text_form_name(options->form));
    DigestStream *identity = digest_new();
    digest_update(identity, &r->files.identity, sizeof r->files.identity);
    digest_update(identity, settings, strlen(settings));
    if (strcmp(options->column, "text") != 0) digest_update(identity, options->column, strlen(options->column));
    digest_format(digest_value(identity), digest);
    digest_free(identity);
    r->parts.dir = options->output_dir;
    r->parts.identity = digest;
    r->parts.input = options->input;
    r->parts.options = settings;
    r->parts.part_size = options->part_size;
    TRY_DONE(file_make_directories(options->output_dir));
    TRY_DONE(text_parts_open(&r->parts, &finished));
    if (!finished) {
        TRY_DONE(start_threads(r));
        TRY_DONE(check_disk(r));
        TRY_DONE(read_files(r));
        if (r->parts.counts.articles == 0)
            TRY_DONE(fail(E_FORMAT, "%s: expected text, found no sentence (%lld pages, %lld redirects, %lld left out)",
                          options->input, (long long)r->parts.counts.pages, (long long)r->parts.counts.redirects,
                          (long long)(r->parts.counts.broken + r->parts.counts.too_large)));
        TRY_DONE(text_parts_finish(&r->parts));
    }
    log_summary(r, finished ? 0 : clock_monotonic() - started);
    if (finished) log_info("%s was finished before; nothing to do", options->output_dir);
    if (counts) *counts = r->parts.counts;
done:
    free_run(r);
    free(settings);
    return status;
}
