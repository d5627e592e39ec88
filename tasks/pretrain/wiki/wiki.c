#include "tasks/pretrain/wiki/wiki.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/pretrain/pool.h"
#include "tasks/pretrain/stage_progress.h"
#include "tasks/pretrain/wiki/page_xml.h"
#include "tasks/pretrain/wiki/text_file.h"
#include "tasks/pretrain/wiki/text_parts.h"

#define MOST_BATCHES  (2 * POOL_MOST + 2)
#define MOST_PIECES   (POOL_MOST + 4)
#define BATCH_ROOM    ((size_t)192 << 20) /* bytes of batches that are on their way */
#define MOST_WARNINGS 20

typedef struct {
    PoolJob job;
    bool is_batch;
} Job;

typedef struct {
    Job job;
    TextPiece piece;
} PieceJob;

typedef struct {
    Job job;
    Batch batch;
    Buf notes; /* what was wrong with the file itself, before the batch's articles */
    int64_t lost, read_bytes;
    const char *namespaces;
    size_t file;       /* of the list */
    TextCursor cursor; /* what comes next */
    double done;       /* of all input, when it was cut */
    Buf text, problems;
    WikiCounts counts;
} BatchJob;

typedef struct {
    const WikiOptions *options;
    WikiFiles files;
    TextParts parts;
    Pool *pool;
    ArticleMaker *makers[POOL_MOST];
    int threads;
    PieceJob pieces[MOST_PIECES]; /* a ring of most_pieces */
    int first_piece, n_pieces, most_pieces;
    BatchJob *batches[MOST_BATCHES]; /* a ring of most_batches; their memory is used again */
    int first_batch, n_batches, most_batches;
    size_t batch_bytes; /* of those in the ring */
    BatchJob *open;     /* being filled; not in the ring */
    char **namespaces;  // (n_namespaces) one per dump: batches point to them
    size_t n_namespaces, namespaces_cap;
    int warnings;
    uint64_t files_bytes; /* of the files before the one at hand */
    uint64_t offset;      /* in the text of the file at hand: up to where batches were handed out */
    StageProgress progress;
} WikiRun;

static void work(PoolJob *job, void *worker)
{
    Job *j = (Job *)job;
    if (!j->is_batch) {
        text_piece_unpack(&((PieceJob *)j)->piece, false);
        return;
    }
    BatchJob *b = (BatchJob *)j;
    b->text.len = b->problems.len = 0;
    articles_make(worker, &b->batch, b->namespaces, &b->text, &b->problems, &b->counts);
    b->counts.lost = b->lost;
    b->counts.read_bytes = b->read_bytes;
}

static Status check_stop(const WikiRun *r)
{
    if (!r->options->stop || !*r->options->stop) return OK;
    return fail(E_STOPPED, "stopped; %zu parts are finished, run the same command again to go on behind them",
                r->parts.n_parts);
}

/* ---- batches ---- */

static void warn(WikiRun *r, const char *lines, size_t len)
{
    for (const char *p = lines, *end = lines + len, *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        if (r->warnings++ < MOST_WARNINGS) log_warn("%.*s", (int)(stop - p), p);
        if (r->warnings == MOST_WARNINGS + 1)
            log_warn("more was left out; manifest.json has the first %d of it", TEXT_PROBLEMS);
    }
}

/* "page …" of a batch with the file's name in front. */
static void name_problems(const WikiRun *r, const BatchJob *b, Buf *out)
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
    char read[24], text[24], what[128];
    if (!stage_progress_due(&r->progress)) return;
    stage_format_bytes((double)r->parts.counts.read_bytes, read, sizeof read);
    stage_format_bytes((double)r->parts.counts.text_bytes, text, sizeof text);
    snprintf(what, sizeof what, "%s read, %lld articles, %s of text", read, (long long)r->parts.counts.articles, text);
    stage_progress_show(&r->progress, done, what);
}

/* Waits for the oldest batch and writes it. */
static Status retire(WikiRun *r)
{
    BatchJob *b = r->batches[r->first_batch];
    Buf problems = {0};
    pool_wait(r->pool, &b->job.job);
    r->first_batch = (r->first_batch + 1) % r->most_batches;
    r->n_batches--;
    r->batch_bytes -= b->batch.data.len;
    if (b->notes.len || b->problems.len) name_problems(r, b, &problems);
    if (problems.len) warn(r, problems.data, problems.len);
    Status status = text_parts_add(&r->parts, &b->text, &b->counts, &problems, b->cursor);
    show_progress(r, b->done);
    buf_free(&problems);
    return status;
}

/* A large article's memory is not kept for the small ones behind it. */
static void trim(Buf *b)
{
    if (b->cap > (size_t)4 << 20) buf_free(b);
    b->len = 0;
}

static BatchJob *empty_batch(WikiRun *r, size_t file)
{
    BatchJob **slot = &r->batches[(r->first_batch + r->n_batches) % r->most_batches], *b = *slot;
    if (!b) b = *slot = mem_alloc(sizeof *b);
    trim(&b->batch.data);
    trim(&b->text);
    trim(&b->problems);
    trim(&b->notes);
    b->batch.n = 0;
    b->batch.end = (TextPlace){0};
    b->job.is_batch = true;
    b->lost = b->read_bytes = 0;
    b->file = file;
    return b;
}

/* Hands the open batch, which ends at an offset of its file's text, to the threads and opens the next. */
static Status dispatch(WikiRun *r, TextCursor cursor, uint64_t offset, double done)
{
    BatchJob *b = r->open;
    size_t file = b->file;
    b->read_bytes = (int64_t)(offset - r->offset);
    r->offset = offset;
    b->cursor = cursor;
    b->done = done;
    b->namespaces = r->n_namespaces ? r->namespaces[r->n_namespaces - 1] : NULL;
    r->n_batches++; /* it lies in the ring's next place already */
    r->batch_bytes += b->batch.data.len;
    pool_submit(r->pool, &b->job.job);
    while (r->n_batches >= r->most_batches || (r->n_batches > 0 && r->batch_bytes > BATCH_ROOM)) TRY(retire(r));
    while (r->n_batches > 0 && pool_is_done(r->pool, &r->batches[r->first_batch]->job.job)) TRY(retire(r));
    r->open = empty_batch(r, file);
    return OK;
}

/* ---- one file ---- */

/* Something is wrong with the file itself. */
static void note(WikiRun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(WikiRun *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->open->lost++;
    buf_vprintf(&r->open->notes, format, args);
    buf_puts(&r->open->notes, "\n");
    va_end(args);
}

/* The names of a dump's namespaces, once its header is there. */
static Status read_header(WikiRun *r, const Cutter *c)
{
    PageParser *parser;
    Buf names = {0};
    TRY(page_parser_open(&parser));
    page_parse_header(parser, c->header.data ? c->header.data : "", c->header.len, &names);
    page_parser_close(parser);
    MEM_GROW(r->namespaces, r->n_namespaces, r->namespaces_cap);
    r->namespaces[r->n_namespaces++] = names.data ? names.data : mem_strdup("");
    return OK;
}

static Status can_read_pages(void)
{
    PageParser *parser;
    TRY(page_parser_open(&parser));
    page_parser_close(parser);
    return OK;
}

static Status fill_pieces(WikiRun *r, TextFile *file, bool *end)
{
    while (!*end && r->n_pieces < r->most_pieces) {
        PieceJob *p = &r->pieces[(r->first_piece + r->n_pieces) % r->most_pieces];
        TRY(text_file_next(file, &p->piece, end));
        if (*end) break;
        r->n_pieces++;
        p->job.job.done = true;
        p->job.is_batch = false;
        if (p->piece.packing == PACKING_BZ2 && p->piece.state == PIECE_WHOLE) pool_submit(r->pool, &p->job.job);
        if (p->piece.packing != PACKING_BZ2) break; /* read here: no use in having many */
    }
    return OK;
}

/* The oldest piece, unpacked. It stays in the ring's free place until the next fill. */
static TextPiece *take_piece(WikiRun *r)
{
    PieceJob *p = &r->pieces[r->first_piece];
    pool_wait(r->pool, &p->job.job);
    r->first_piece = (r->first_piece + 1) % r->most_pieces;
    r->n_pieces--;
    if (p->piece.big) text_piece_unpack(&p->piece, true);
    return &p->piece;
}

/* To where an earlier run ended: the header is read again, then the file is entered at the place. */
static Status go_to(WikiRun *r, TextFile *file, Cutter *c, TextPlace place)
{
    TextPiece piece = {0};
    Batch scratch = {0};
    Status status = OK;
    bool end = false;
    while (c->form == FORM_UNKNOWN || (c->form == FORM_PAGES && c->header.len == 0 && scratch.n == 0 && !c->open)) {
        TRY_DONE(check_stop(r));
        TRY_DONE(text_file_next(file, &piece, &end));
        text_piece_unpack(&piece, true);
        TRY_DONE(cutter_feed(c, piece.text.data, piece.text.len, piece.mark, end));
        if (end) break;
        cutter_take(c, &scratch, false);
    }
    if (text_file_packing(file) == PACKING_GZ) place.mark = place.start = 0;
    TRY_DONE(text_file_seek(file, place.mark));
    cutter_resume(c, place);
done:
    text_piece_free(&piece);
    batch_free(&scratch);
    return status;
}

static Status read_file(WikiRun *r, size_t index, TextPlace from)
{
    const char *path = r->files.paths[index], *name = file_basename(path);
    TextFile *file = NULL;
    Cutter c;
    Status status = OK;
    bool end = false, told = false, named = false, cut = false;
    double total = (double)r->files.bytes, done = (double)r->files_bytes / total;
    cutter_init(&c, r->options->form, r->options->max_article);
    TRY_DONE(text_file_open(&file, path));
    r->open->file = index;
    r->offset = from.offset;
    if (from.offset > 0) TRY_DONE(go_to(r, file, &c, from));
    for (;;) {
        TRY_DONE(check_stop(r));
        TRY_DONE(fill_pieces(r, file, &end));
        bool last = r->n_pieces == 0;
        if (last) {
            status = cutter_feed(&c, NULL, 0, 0, true);
        } else {
            TextPiece *piece = take_piece(r);
            done = ((double)r->files_bytes + (double)piece->read) / total;
            status = cutter_feed(&c, piece->text.data, piece->text.len, piece->mark, false);
            if (piece->state == PIECE_BROKEN) {
                note(r, "%s: damaged at byte %llu; reading goes on behind it", name, (unsigned long long)piece->place);
                cutter_gap(&c, &r->open->batch);
            } else if (piece->state == PIECE_CUT) {
                note(r, "%s: cut or damaged behind byte %llu; what stands before it is used", name,
                     (unsigned long long)piece->place);
                cut = true;
            }
            if (piece->text.cap > (size_t)4 << 20) text_piece_free(piece);
        }
        if (status != OK) {
            status = status_context(status, "%s", path);
            goto done;
        }
        if (!told && c.form != FORM_UNKNOWN) {
            if (r->files.n <= 20) log_info("%s: %s", name, text_form_name(c.form));
            if (c.form == FORM_PAGES) TRY_DONE(status_context(can_read_pages(), "%s", path));
            told = true;
        }
        bool full;
        do {
            full = cutter_take(&c, &r->open->batch, last);
            if (c.header.len > 0 && !named) {
                TRY_DONE(read_header(r, &c));
                named = true;
            }
            if (full) TRY_DONE(dispatch(r, (TextCursor){index, r->open->batch.end}, r->open->batch.end.offset, done));
        } while (full);
        if (last) break;
    }
    if (c.form == FORM_PAGES && !c.closed && !cut)
        note(r, "%s: the XML never closes (no </mediawiki> behind the last page); cut between pages?", name);
    TRY_DONE(dispatch(r, (TextCursor){.file = index + 1}, c.base + c.text.len, done));
done:
    while (r->n_pieces > 0) take_piece(r); /* after an error: nobody works on them any more */
    cutter_free(&c);
    text_file_close(file);
    return status;
}

/* ---- the whole ---- */

static Status check_disk(const WikiRun *r)
{
    uint64_t available = 0;
    char need[24], have[24], size[24];
    double still = r->files.text - (double)r->parts.counts.text_bytes;
    TRY(file_free_bytes(r->options->output_dir, &available));
    stage_format_bytes(still > 0 ? still : 0, need, sizeof need);
    stage_format_bytes((double)available, have, sizeof have);
    stage_format_bytes((double)r->files.bytes, size, sizeof size);
    log_info("%zu files, %s; up to about %s of text will be written to %s, where %s are free; %d threads", r->files.n,
             size, need, r->options->output_dir, have, r->threads);
    if (still > (double)available)
        return fail(E_IO, "%s: about %s are needed there, %s are free; make room or choose another --output-dir",
                    r->options->output_dir, need, have);
    return OK;
}

static Status start_threads(WikiRun *r)
{
    int n = r->options->threads > 0 ? r->options->threads : pool_usable_cores();
    r->threads = n < POOL_MOST ? n : POOL_MOST;
    r->most_batches = 2 * r->threads + 2;
    r->most_pieces = r->threads + 4;
    for (int i = 0; i < r->threads; i++)
        if (article_maker_open(&r->makers[i], true) != OK) TRY(article_maker_open(&r->makers[i], false));
    return pool_open(&r->pool, r->threads, work, (void *const *)r->makers);
}

static Status read_files(WikiRun *r)
{
    Status status = OK;
    TextCursor from = r->parts.cursor;
    if (from.file > 0 || from.place.offset > 0)
        log_info("going on behind %zu finished parts, in %s", r->parts.n_parts,
                 from.file < r->files.n ? r->files.paths[from.file] : "nothing");
    r->open = empty_batch(r, 0);
    stage_progress_open(&r->progress);
    for (size_t i = 0; i < r->files.n && status == OK; i++) {
        uint64_t size = 0;
        TRY_DONE(file_size(r->files.paths[i], &size));
        if (i >= from.file) status = read_file(r, i, i == from.file ? from.place : (TextPlace){0});
        r->files_bytes += size;
    }
    while (status == OK && r->n_batches > 0) status = retire(r);
done:
    stage_progress_close(&r->progress);
    return status;
}

static void summary(const WikiRun *r, double seconds)
{
    const WikiCounts *c = &r->parts.counts;
    char text[24], read[24], took[32], rate[24];
    stage_format_bytes((double)c->text_bytes, text, sizeof text);
    stage_format_bytes((double)c->read_bytes, read, sizeof read);
    stage_format_bytes(seconds > 0 ? (double)c->read_bytes / seconds : 0, rate, sizeof rate);
    clock_format_duration(seconds, took, sizeof took);
    log_info("%s: %zu parts, %lld articles, %lld sentences, %s of text from %s, in %s (%s/s)", r->options->output_dir,
             r->parts.n_parts, (long long)c->articles, (long long)c->sentences, text, read, took, rate);
    log_info("not written: %lld redirects, %lld pages of other namespaces, %lld without a sentence, %lld broken, %lld "
             "too large",
             (long long)c->redirects, (long long)c->other_namespaces, (long long)c->empty, (long long)c->broken,
             (long long)c->too_large);
    if (c->lost > 0)
        log_warn("files were damaged or cut at %lld places; the text is what was whole", (long long)c->lost);
}

static void free_run(WikiRun *r)
{
    pool_close(r->pool);
    for (int i = 0; i < POOL_MOST; i++) article_maker_close(r->makers[i]);
    for (int i = 0; i < MOST_PIECES; i++) text_piece_free(&r->pieces[i].piece);
    for (int i = 0; i < MOST_BATCHES; i++) {
        BatchJob *b = r->batches[i];
        if (!b) continue;
        batch_free(&b->batch);
        buf_free(&b->notes);
        buf_free(&b->text);
        buf_free(&b->problems);
        free(b);
    }
    for (size_t i = 0; i < r->n_namespaces; i++) free(r->namespaces[i]);
    free(r->namespaces);
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
        if (r->parts.counts.articles == 0) {
            status = fail(E_FORMAT, "%s: no article with a sentence in it (%lld pages, %lld redirects, %lld left out)",
                          options->input, (long long)r->parts.counts.pages, (long long)r->parts.counts.redirects,
                          (long long)(r->parts.counts.broken + r->parts.counts.too_large));
            goto done;
        }
        TRY_DONE(text_parts_finish(&r->parts));
    }
    summary(r, finished ? 0 : clock_monotonic() - started);
    if (finished) log_info("%s was finished before; nothing was done", options->output_dir);
    if (counts) *counts = r->parts.counts;
done:
    free_run(r);
    free(settings);
    return status;
}
