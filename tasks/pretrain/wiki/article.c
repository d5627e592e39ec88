#include "tasks/pretrain/wiki/article.h"

#include "tasks/pretrain/wiki/wikitext.h"
#include "text/text.h"

#define LONG_LINE 160 /* bytes of a line that is a paragraph of its own; shorter ones are wrapped */

struct ArticleMaker {
    PageParser *parser;
    Page page;
    Wikitext *wikitext;
    Buf paragraph;
};

void wiki_counts_add(WikiCounts *sum, const WikiCounts *more)
{
#define X(field, what) sum->field += more->field;
    WIKI_COUNT_LIST(X)
#undef X
}

ArticleMaker *article_maker_new(void)
{
    ArticleMaker *m = mem_alloc(sizeof *m);
    if (page_parser_open(&m->parser) != OK) m->parser = NULL; /* built without expat */
    m->wikitext = wikitext_new();
    return m;
}

void article_maker_free(ArticleMaker *maker)
{
    if (!maker) return;
    page_parser_close(maker->parser);
    page_free(&maker->page);
    wikitext_free(maker->wikitext);
    buf_free(&maker->paragraph);
    free(maker);
}

/* Appends the title as written, from <title>…</title> or title="…"; at most 80 bytes. */
static void append_title(Buf *out, TextForm form, const char *unit, size_t len)
{
    const char *open = form == FORM_DOCS ? "title=\"" : "<title>";
    size_t look = len < 512 ? len : 512;
    const char *p = memmem(unit, look, open, strlen(open));
    if (!p) return;
    p += strlen(open);
    size_t n = 0, left = look - (size_t)(p - unit);
    while (n < left && n < 80 && p[n] != '<' && p[n] != '"' && (unsigned char)p[n] >= ' ') n++;
    while (n > 0 && text_utf8_error(p, n) >= 0) n--; /* cut within a character, or not UTF-8 */
    buf_printf(out, " '%.*s'", (int)n, p);
}

static void report_problem(Buf *problems, TextForm form, const Unit *unit, const char *data, const char *why)
{
    buf_puts(problems, form == FORM_PAGES ? "page" : "document");
    append_title(problems, form, data, unit->len);
    buf_printf(problems, " at byte %llu of the text: %s\n", (unsigned long long)unit->offset, why);
}

static const char *const unit_problems[] = {
    [UNIT_LARGE] = "larger than --max-article; left out",
    [UNIT_UNCLOSED] = "another page begins before it ends; left out",
    [UNIT_DAMAGED] = "a part of the file is missing within it; left out",
    [UNIT_CUT] = "the file ends within it; left out",
};

/* A unit that cannot be read: at byte `at` of it, where it is UTF-8. */
static size_t leave_out(TextForm form, const Unit *unit, const char *data, size_t at, Buf *problems, WikiCounts *counts)
{
    int64_t bad = text_utf8_error(data, unit->len);
    unsigned long long offset = unit->offset + (bad >= 0 ? (uint64_t)bad : at);
    char *why = bad >= 0 ? mem_printf("byte %llu is not UTF-8; left out", offset)
                         : mem_printf("%s at byte %llu; left out", status_message(), offset);
    report_problem(problems, form, unit, data, why);
    free(why);
    counts->broken++;
    return SIZE_MAX;
}

static size_t make_page(ArticleMaker *m, const Unit *unit, const char *xml, const Namespaces *names, Buf *text,
                        Buf *problems, WikiCounts *counts)
{
    size_t at = 0;
    if (page_parse(m->parser, xml, unit->len, names, &m->page, &at) != OK)
        return leave_out(FORM_PAGES, unit, xml, at, problems, counts);
    if (m->page.other || m->page.redirect) {
        counts->other_namespaces += m->page.other;
        counts->redirects += !m->page.other;
        return SIZE_MAX;
    }
    wikitext_set_namespaces(m->wikitext, names->links.data);
    size_t n = wikitext_sentences(m->wikitext, m->page.text.data ? m->page.text.data : "", m->page.text.len, text);
    counts->gaps += (int64_t)wikitext_dropped(m->wikitext);
    return n;
}

static size_t end_paragraph(ArticleMaker *m, bool one_sentence, Buf *text)
{
    size_t n =
        m->paragraph.len ? wikitext_plain(m->wikitext, m->paragraph.data, m->paragraph.len, one_sentence, text) : 0;
    m->paragraph.len = 0;
    return n;
}

/* Lines of plain text. In WikiExtractor's form each line is a paragraph. */
static size_t make_lines(ArticleMaker *m, TextForm form, const char *p, const char *end, Buf *text)
{
    size_t n = 0;
    m->paragraph.len = 0;
    for (const char *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        size_t len = (size_t)(stop - p);
        while (len > 0 && strchr(" \t\r", p[len - 1])) len--;
        if (len == 0) {
            n += end_paragraph(m, form == FORM_SENTENCES, text);
            continue;
        }
        if (m->paragraph.len > 0) buf_append(&m->paragraph, " ", 1);
        buf_append(&m->paragraph, p, len);
        if (form != FORM_PARAGRAPHS || len > LONG_LINE) n += end_paragraph(m, form == FORM_SENTENCES, text);
    }
    return n + end_paragraph(m, form == FORM_SENTENCES, text);
}

/* <doc …>, the title again, the text, </doc>. */
static size_t make_doc(ArticleMaker *m, const char *doc, size_t len, Buf *text)
{
    const char *p = doc, *end = doc + len - strlen("</doc>"), *line = memchr(doc, '\n', len);
    if (!line || line >= end) return 0;
    const char *title = memmem(doc, (size_t)(line - doc), "title=\"", 7);
    p = line + 1;
    const char *first_end = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    if (title && first_end) {
        title += 7;
        size_t n = (size_t)(first_end - p);
        if ((size_t)(line - title) > n && memcmp(title, p, n) == 0 && title[n] == '"') p = first_end + 1;
    }
    return make_lines(m, FORM_DOCS, p, end, text);
}

static size_t make_text(ArticleMaker *m, TextForm form, const Unit *unit, const char *data, Buf *text, Buf *problems,
                        WikiCounts *counts)
{
    if (text_utf8_error(data, unit->len) >= 0) return leave_out(form, unit, data, 0, problems, counts);
    return form == FORM_DOCS ? make_doc(m, data, unit->len, text) : make_lines(m, form, data, data + unit->len, text);
}

void articles_make(ArticleMaker *maker, const Batch *batch, const Namespaces *names, Buf *text, Buf *problems,
                   WikiCounts *counts)
{
    *counts = (WikiCounts){0};
    for (size_t i = 0; i < batch->n; i++) {
        const Unit *unit = &batch->units[i];
        const char *data = batch->data.data + unit->start;
        counts->pages++;
        if (unit->state != UNIT_WHOLE) {
            report_problem(problems, batch->form, unit, data, unit_problems[unit->state]);
            counts->too_large += unit->state == UNIT_LARGE;
            counts->broken += unit->state != UNIT_LARGE;
            continue;
        }
        size_t before = text->len;
        size_t n = batch->form == FORM_PAGES ? make_page(maker, unit, data, names, text, problems, counts)
                                             : make_text(maker, batch->form, unit, data, text, problems, counts);
        if (n == SIZE_MAX) continue;
        if (n == 0) {
            counts->empty++;
            text->len = before;
            continue;
        }
        counts->with_markup +=
            batch->form == FORM_PAGES && wikitext_has_markup(text->data + before, text->len - before);
        buf_append(text, "\n", 1);
        counts->articles++;
        counts->sentences += (int64_t)n;
        counts->text_bytes += (int64_t)(text->len - before);
    }
}
