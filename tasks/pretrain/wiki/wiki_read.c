/* Reads one file: pieces are unpacked by the threads, cut into articles, and dispatched in batches. */

#include "base/test_switch.h"
#include "tasks/pretrain/wiki/page_xml.h"
#include "tasks/pretrain/wiki/wiki_internal.h"

static Status check_stop(const WikiRun *r)
{
    if (!r->options->stop || !*r->options->stop) return OK;
    return fail(E_STOPPED, "stopped; %zu parts are finished, run the same command again to resume after them",
                r->parts.n_parts);
}

/* Notes damage of the file itself. */
static void note_damage(WikiRun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note_damage(WikiRun *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->open->lost++;
    buf_vprintf(&r->open->notes, format, args);
    buf_puts(&r->open->notes, "\n");
    va_end(args);
}

/* Keeps the names of a dump's namespaces, before its first batch. */
static void read_header(WikiRun *r, PageParser *parser, const Cutter *c, const char *name)
{
    Namespaces *names = mem_alloc(sizeof *names);
    const Batch *b = &r->open->batch;
    page_parse_header(parser, c->header.data ? c->header.data : "", c->header.len, names);
    MEM_PUSH(r->names, r->n_names, r->names_cap, names);
    if (!names->given && b->n > 0 && !memmem(b->data.data, b->units[0].len, "<ns>", 4))
        log_warn(
            "%s: pages have no <ns>, and no <namespaces> precede them; expected one of the two. Pages whose titles "
            "have English prefixes, as Talk:, are left out; others count as articles",
            name);
}

static Status fill_pieces(WikiRun *r, TextFile *file, bool *end)
{
    while (!*end && r->n_pieces < r->most_pieces) {
        WikiPieceJob *p = &r->pieces[(r->first_piece + r->n_pieces) % r->most_pieces];
        TRY(text_file_next(file, &p->piece, end));
        if (*end) break;
        r->n_pieces++;
        p->job.job.done = true;
        p->job.is_batch = false;
        if (p->piece.packing == PACKING_BZ2 && p->piece.state == PIECE_WHOLE) pool_submit(r->pool, &p->job.job);
        if (p->piece.packing != PACKING_BZ2) break; /* unpacked by this thread: one at a time */
    }
    return OK;
}

/* Returns the oldest piece, unpacked. It stays valid until the next fill. */
static TextPiece *take_piece(WikiRun *r)
{
    WikiPieceJob *p = &r->pieces[r->first_piece];
    pool_wait(r->pool, &p->job.job);
    r->first_piece = (r->first_piece + 1) % r->most_pieces;
    r->n_pieces--;
    if (p->piece.big) text_piece_unpack(&p->piece, true);
    return &p->piece;
}

/* Moves to the place where an earlier run ended, after reading the header again. */
static Status resume_at(WikiRun *r, TextFile *file, Cutter *c, TextPlace place)
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
    if (text_file_packing(file) == PACKING_GZ || text_file_packing(file) == PACKING_RECORDS)
        place.mark = place.start = 0;
    TRY_DONE(text_file_seek(file, place.mark));
    cutter_resume(c, place);
done:
    text_piece_free(&piece);
    batch_free(&scratch);
    return status;
}

Status wiki_read_file(WikiRun *r, size_t index, TextPlace from)
{
    const char *path = r->files.paths[index], *name = file_basename(path);
    TextFile *file = NULL;
    PageParser *parser = NULL; /* of a dump's header */
    Cutter c;
    Status status = OK;
    bool end = false, logged = false, named = false, cut = false;
    double total = (double)r->files.bytes, done = (double)r->files_bytes / total;
    cutter_init(&c, r->options->form, r->options->max_article);
    TRY_DONE(text_file_open(&file, path, r->options->column));
    if (text_file_packing(file) == PACKING_RECORDS) c.wanted = FORM_PARAGRAPHS;
    r->open->file = index;
    r->offset = from.offset;
    if (from.offset > 0) TRY_DONE(resume_at(r, file, &c, from));
    for (int piece_of_run = 1;; piece_of_run++) {
        test_at("piece", piece_of_run);
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
                note_damage(r, "%s: damaged at byte %llu; reading resumes after the damage", name,
                            (unsigned long long)piece->place);
                cutter_gap(&c, &r->open->batch);
            } else if (piece->state == PIECE_CUT) {
                note_damage(r, "%s: cut or damaged after byte %llu; the text before it is used", name,
                            (unsigned long long)piece->place);
                cut = true;
            }
            if (piece->text.cap > (size_t)4 << 20) text_piece_free(piece);
        }
        TRY_DONE(status_context(status, "%s", path));
        if (!logged && c.form != FORM_UNKNOWN) {
            if (r->files.n <= 20) log_info("%s: %s", name, text_form_name(c.form));
            if (c.form == FORM_PAGES) TRY_DONE(status_context(page_parser_open(&parser), "%s", path));
            logged = true;
        }
        bool full;
        do {
            full = cutter_take(&c, &r->open->batch, last);
            if (c.form == FORM_PAGES && !named && (c.header.len > 0 || c.open || r->open->batch.n > 0)) {
                read_header(r, parser, &c, name);
                named = true;
            }
            if (full)
                TRY_DONE(wiki_dispatch(r, (TextCursor){index, r->open->batch.end}, r->open->batch.end.offset, done));
        } while (full);
        if (last) break;
    }
    if (c.form == FORM_PAGES && !c.closed && !cut)
        note_damage(r,
                    "%s: the XML never closes (no </mediawiki> after the last page); the file may be cut between pages",
                    name);
    TRY_DONE(wiki_dispatch(r, (TextCursor){.file = index + 1}, c.base + c.text.len, done));
done:
    while (r->n_pieces > 0) take_piece(r); /* after an error: wait for the threads */
    cutter_free(&c);
    page_parser_close(parser);
    text_file_close(file);
    return status;
}
