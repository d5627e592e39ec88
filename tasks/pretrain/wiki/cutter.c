#include "tasks/pretrain/wiki/cutter.h"

#include "tasks/pretrain/kind.h"
#include "tasks/pretrain/wiki/sentences.h"

#define BATCH_BYTES ((size_t)1 << 20)
#define MOST_HEADER ((size_t)1 << 20)
#define SAMPLE      ((size_t)64 << 10) /* of plain text, to find its form */
#define TITLE_BYTES 512                /* kept of a unit that is left out */

const char *text_form_name(TextForm form)
{
    static const char *const names[] = {"text", "MediaWiki XML", "extracted <doc>s", "one sentence per line",
                                        "paragraphs"};
    return names[form];
}

void batch_free(Batch *batch)
{
    buf_free(&batch->data);
    free(batch->units);
    *batch = (Batch){0};
}

void cutter_init(Cutter *c, TextForm wanted, size_t most) { *c = (Cutter){.wanted = wanted, .most = most}; }

void cutter_free(Cutter *c)
{
    BUF_FREE(&c->header, &c->text);
    free(c->pieces);
    *c = (Cutter){0};
}

void cutter_resume(Cutter *c, TextPlace place)
{
    c->text.len = c->at = c->scan = c->n_pieces = c->last_len = 0;
    c->base = place.start;
    c->at = (size_t)(place.offset - place.start); /* beyond the text: text up to there is skipped */
    c->scan = c->at;
    c->open = c->large = c->closed = false;
}

/* ---- the form ---- */

/* FORM_SENTENCES if most lines are one sentence and end like one, else FORM_PARAGRAPHS. */
static TextForm form_of_lines(const char *p, size_t len)
{
    size_t lines = 0, single = 0, ended = 0;
    Buf scratch = {0};
    for (const char *end = p + len; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop && lines > 0) break; /* cut by the sample's end */
        if (!stop) stop = end;
        size_t n = (size_t)(stop - p);
        while (n > 0 && strchr(" \r\t", p[n - 1])) n--;
        if (n > 0) {
            lines++;
            scratch.len = 0;
            single += sentences_append(p, n, &scratch) <= 1;
            while (n > 1 && strchr("\"')]", p[n - 1])) n--;
            ended += strchr(".!?:;", p[n - 1]) != NULL || (unsigned char)p[n - 1] >= 0x80;
        }
        p = stop + 1;
    }
    buf_free(&scratch);
    return single * 10 >= lines * 9 && ended * 10 >= lines * 7 ? FORM_SENTENCES : FORM_PARAGRAPHS;
}

static Status find_form(Cutter *c, bool end)
{
    const char *p = c->text.data ? c->text.data : "", *stop = p + c->text.len;
    if (c->text.len < SAMPLE && !end) return OK;
    size_t mark = kind_mark(p, c->text.len);
    if (mark) c->at = c->scan = mark;
    p += mark;
    p += kind_blanks(p, (size_t)(stop - p));
    Kind kind = kind_of(p, (size_t)(stop - p));
    size_t len = (size_t)(stop - p), look = len < 4096 ? len : 4096;
    if (kind == KIND_DUMP) {
        c->form = FORM_PAGES;
    } else if (str_begins(p, len, "<doc ")) {
        c->form = FORM_DOCS;
    } else if (kind == KIND_XML) {
        return fail(E_FORMAT, "XML, but not a MediaWiki dump: expected <mediawiki> near its start, found \"%.*s\"",
                    (int)(len < 40 ? len : 40), p);
    } else if (str_begins(p, len, "{\"")) {
        return fail(E_FORMAT, "JSON lines; name the file .jsonl, and give the key of the text as --text-columns");
    } else if (memchr(p, '\0', look)) {
        return fail(E_FORMAT, "not text: a NUL at byte %zu",
                    (size_t)((const char *)memchr(p, '\0', look) - c->text.data));
    } else {
        size_t sample = c->text.len < SAMPLE ? len : SAMPLE - (size_t)(p - c->text.data);
        c->form = c->wanted != FORM_UNKNOWN ? c->wanted : form_of_lines(p, sample);
    }
    return OK;
}

/* ---- feeding ---- */

/* Discards the text before `at`. */
static void drop_used(Cutter *c)
{
    size_t used = c->at < c->text.len ? c->at : c->text.len;
    if (used == 0) return;
    memmove(c->text.data, c->text.data + used, c->text.len - used);
    c->text.len -= used;
    c->base += used;
    c->at -= used;
    c->scan -= used;
    size_t k = 0;
    while (k + 1 < c->n_pieces && c->pieces[k + 1].start <= c->base) k++;
    memmove(c->pieces, c->pieces + k, (c->n_pieces - k) * sizeof *c->pieces);
    c->n_pieces -= k;
}

Status cutter_feed(Cutter *c, const char *text, size_t len, uint64_t mark, bool end)
{
    if (c->form != FORM_UNKNOWN) drop_used(c);
    if (len > 0) {
        MEM_PUSH(c->pieces, c->n_pieces, c->pieces_cap, (TextPlace){.mark = mark, .start = c->base + c->text.len});
        buf_append(&c->text, text, len);
    }
    return c->form == FORM_UNKNOWN ? find_form(c, end) : OK;
}

/* ---- cutting ---- */

static void set_end(Cutter *c, Batch *batch)
{
    uint64_t offset = c->base + c->at;
    size_t k = 0;
    while (k + 1 < c->n_pieces && c->pieces[k + 1].start <= offset) k++;
    if (c->n_pieces == 0) return;
    batch->end = (TextPlace){.mark = c->pieces[k].mark, .start = c->pieces[k].start, .offset = offset};
}

/* Adds the unit [at, end) of the text; of a unit that is left out only the first bytes. */
static void add_unit(Cutter *c, Batch *batch, size_t end, UnitState state)
{
    size_t len = end - c->at;
    if (state != UNIT_WHOLE && len > TITLE_BYTES) len = TITLE_BYTES;
    MEM_PUSH(batch->units, batch->n, batch->cap,
             (Unit){.offset = c->base + c->at, .start = batch->data.len, .len = len, .state = state});
    buf_append(&batch->data, c->text.data + c->at, len);
}

static void move_to(Cutter *c, size_t at)
{
    c->at = c->scan = at;
    c->open = c->large = false;
}

/* Skips text between units. The end of the text after the last unit is kept, to find </mediawiki> in it. */
static void skip_to(Cutter *c, size_t to)
{
    const char *p = c->text.data + c->at;
    size_t n = to - c->at;
    if (c->form == FORM_PAGES && n > 0) {
        size_t keep = n < sizeof c->last ? sizeof c->last - n : 0;
        if (keep > c->last_len) keep = c->last_len;
        memmove(c->last, c->last + c->last_len - keep, keep);
        size_t take = n < sizeof c->last ? n : sizeof c->last;
        memcpy(c->last + keep, p + n - take, take);
        c->last_len = keep + take;
    }
    c->at = c->scan = to;
}

static const char *find_word(const Cutter *c, size_t from, const char *word)
{
    if (from >= c->text.len) return NULL;
    return memmem(c->text.data + from, c->text.len - from, word, strlen(word));
}

/* A page that begins within the unit [at, end) ends the unit, which was never closed. */
static void split_unclosed(Cutter *c, Batch *batch, size_t end)
{
    const char *inner;
    while ((inner = memmem(c->text.data + c->at + 6, end - c->at - 6, "<page>", 6))) {
        size_t at = (size_t)(inner - c->text.data);
        add_unit(c, batch, at, at - c->at > c->most ? UNIT_LARGE : UNIT_UNCLOSED);
        move_to(c, at);
        c->open = true;
    }
}

/* One step of the search for opening and closing tags. True: continue; false: more text is needed. */
static bool take_bracketed(Cutter *c, Batch *batch, bool end)
{
    bool pages = c->form == FORM_PAGES;
    const char *open = pages ? "<page>" : "<doc ", *close = pages ? "</page>" : "</doc>";
    size_t open_len = strlen(open), close_len = strlen(close), len = c->text.len;
    if (!c->open) {
        const char *found = find_word(c, c->at, open);
        if (found) {
            skip_to(c, (size_t)(found - c->text.data));
            c->open = true;
            c->scan = c->at + open_len;
            return true;
        }
        size_t keep = end ? 0 : open_len - 1;
        if (len > keep && len - keep > c->at) skip_to(c, len - keep);
        return false;
    }
    const char *found = find_word(c, c->scan, close), *next = c->large && pages ? find_word(c, c->scan, open) : NULL;
    if (next && (!found || next < found)) { /* the large unit was never closed */
        move_to(c, (size_t)(next - c->text.data));
        return true;
    }
    if (found) {
        size_t stop = (size_t)(found - c->text.data) + close_len;
        if (!c->large) {
            if (pages) split_unclosed(c, batch, stop);
            add_unit(c, batch, stop, stop - c->at > c->most ? UNIT_LARGE : UNIT_WHOLE);
        }
        move_to(c, stop);
        c->last_len = 0;
        return true;
    }
    if (!c->large && len - c->at > c->most) {
        if (pages) split_unclosed(c, batch, len);
        if (len - c->at > c->most) {
            add_unit(c, batch, len, UNIT_LARGE);
            c->large = true;
        }
    }
    if (end) {
        if (!c->large && pages) split_unclosed(c, batch, len);
        if (!c->large) add_unit(c, batch, len, UNIT_CUT);
        move_to(c, len);
        c->last_len = 0;
        return false;
    }
    if (len > close_len - 1 && len - (close_len - 1) > c->scan) c->scan = len - (close_len - 1);
    if (c->large && c->scan > c->at) c->at = c->scan; /* discard its text; its end is still to be found */
    return false;
}

/* Finds the end of the line at `at`, after its \n. False: more text is needed. */
static bool whole_line(const Cutter *c, size_t at, bool end, size_t *stop, bool *blank)
{
    const char *p = c->text.data + at, *newline = at < c->text.len ? memchr(p, '\n', c->text.len - at) : NULL;
    if (!newline && (!end || at >= c->text.len)) return false;
    *stop = newline ? (size_t)(newline - c->text.data) + 1 : c->text.len;
    *blank = true;
    for (const char *q = p; q < c->text.data + *stop && *blank; q++) *blank = strchr(" \t\r\n", *q) && *q;
    return true;
}

/* Takes one document of plain text, or a part of a document that is too large. */
static bool take_lines(Cutter *c, Batch *batch, bool end)
{
    size_t stop;
    bool blank;
    if (!c->open) {
        if (!whole_line(c, c->at, end, &stop, &blank)) {
            if (c->at >= c->text.len || c->text.len - c->at <= c->most) return false;
        } else if (blank) {
            move_to(c, stop);
            return true;
        }
        c->open = true;
        c->scan = c->at;
    }
    while (whole_line(c, c->scan, end, &stop, &blank)) {
        size_t line = c->scan;
        if (stop - c->at > c->most && line > c->at) { /* before this line */
            add_unit(c, batch, line, UNIT_WHOLE);
            move_to(c, line);
            return true;
        }
        bool ends = false;
        if (blank && c->form == FORM_SENTENCES) ends = true;
        if (blank && c->form == FORM_PARAGRAPHS) {
            size_t next;
            bool second = false;
            if (!whole_line(c, stop, end, &next, &second) && !(end && stop >= c->text.len)) break;
            ends = second || stop >= c->text.len;
        }
        c->scan = stop;
        if (!ends) continue;
        add_unit(c, batch, line, UNIT_WHOLE);
        move_to(c, stop);
        return true;
    }
    if (c->text.len - c->at > c->most) { /* one line without end */
        size_t cut = c->at + c->most;
        while (cut > c->at + 1 && ((unsigned char)c->text.data[cut] & 0xC0) == 0x80) cut--;
        add_unit(c, batch, cut, UNIT_WHOLE);
        move_to(c, cut);
        return true;
    }
    if (end && c->text.len > c->at) {
        add_unit(c, batch, c->text.len, UNIT_WHOLE);
        move_to(c, c->text.len);
    }
    return false;
}

bool cutter_take(Cutter *c, Batch *batch, bool end)
{
    if (c->form == FORM_UNKNOWN) return false;
    batch->form = c->form;
    if (c->form == FORM_PAGES && c->base == 0 && c->header.len == 0) { /* the header, once */
        const char *page = find_word(c, 0, "<page>");
        if (!page && !end && c->text.len < MOST_HEADER) return false;
        size_t len = page ? (size_t)(page - c->text.data) : c->text.len;
        buf_append(&c->header, c->text.data, len < MOST_HEADER ? len : MOST_HEADER);
    }
    bool bracketed = c->form == FORM_PAGES || c->form == FORM_DOCS;
    if (c->at >= c->text.len && !(end && c->open)) return false;
    while (bracketed ? take_bracketed(c, batch, end) : take_lines(c, batch, end)) {
        if (batch->data.len < BATCH_BYTES || c->open) continue;
        set_end(c, batch);
        return true;
    }
    if (end && memmem(c->last, c->last_len, "</mediawiki>", 12)) c->closed = true;
    if (!c->open) set_end(c, batch);
    return false;
}

void cutter_gap(Cutter *c, Batch *batch)
{
    if (c->open && !c->large && c->at < c->text.len) add_unit(c, batch, c->text.len, UNIT_DAMAGED);
    batch->form = c->form;
    move_to(c, c->text.len);
}
