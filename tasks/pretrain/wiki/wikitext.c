/* The second pass: walks over the text line by line, converts or skips the constructs that the first pass found, and
   gives each paragraph to the sentence splitter. */
#include "tasks/pretrain/wiki/wikitext.h"

#include "tasks/pretrain/wiki/sentences.h"
#include "tasks/pretrain/wiki/wikitext_internal.h"
#include "text/utf8.h"

Wikitext *wikitext_new(void) { return mem_alloc(sizeof(Wikitext)); }

void wikitext_free(Wikitext *w)
{
    if (!w) return;
    MEM_FREE(w->list.tokens, w->list.open, w->words.data, w->plain.data, w);
}

void wikitext_set_namespaces(Wikitext *w, const char *names) { w->namespaces = names; }

void wikitext_grow(Words *words, size_t n)
{
    words->cap = words->len + n + (words->len + n) / 4;
    words->data = mem_resize(words->data, words->cap, 1);
}

static void reserve(Words *words, size_t len)
{
    words->len = 0;
    if (words->cap < len) wikitext_grow(words, len);
}

size_t wikitext_dropped(const Wikitext *w) { return w->dropped; }

/* Removes the sentences behind `from` that have a gap. */
static void drop_gaps(Wikitext *w, size_t from)
{
    char *data = w->out->data;
    size_t kept = from;
    for (size_t at = from, next; at < w->out->len; at = next) {
        next = (size_t)((char *)memchr(data + at, '\n', w->out->len - at) - data) + 1;
        if (memchr(data + at, SENTENCE_GAP, next - at)) {
            w->dropped++;
            w->sentences--;
            continue;
        }
        memmove(data + kept, data + at, next - at);
        kept += next - at;
    }
    w->out->len = kept;
    if (data) data[kept] = '\0';
}

void wikitext_end_paragraph(Wikitext *w)
{
    if (w->words.len > 0) {
        reserve(&w->plain, w->words.len);
        wikitext_mend(&w->words, true, &w->plain);
        size_t before = w->out->len;
        if (!w->item || wikitext_is_prose(&w->plain))
            w->sentences += sentences_append(w->plain.data, w->plain.len, w->out);
        if (memchr(w->plain.data, SENTENCE_GAP, w->plain.len)) drop_gaps(w, before);
        w->words.len = 0;
    }
    w->item = false;
    w->external = 0;
}

static void leave_frame(Wikitext *w)
{
    Frame f = w->frames[--w->n_frames];
    w->limit = w->n_frames ? w->frames[w->n_frames - 1].at : w->len;
    wikitext_move_to(w, f.jump);
}

/* ---- lines ---- */

/* At '=': skips the line and returns true if it is a heading. */
static bool skip_heading(Wikitext *w)
{
    const char *text = w->text;
    const char *newline = memchr(text + w->at, '\n', w->len - w->at);
    uint32_t at = w->at, stop = newline ? (uint32_t)(newline - text) : w->len, end = stop;
    int level = 0, closing = 0;
    char name[40];
    for (;;) { /* comments may follow */
        while (end > at && (text[end - 1] == ' ' || text[end - 1] == '\t' || text[end - 1] == '\r')) end--;
        if (end - at < 3 || memcmp(text + end - 3, "-->", 3) != 0) break;
        uint32_t open = end - 3;
        while (open > at && memcmp(text + --open, "<!--", 4) != 0) continue;
        if (open == at) break;
        end = open;
    }
    while (at < end && text[at] == '=' && level < 6) at++, level++;
    while (end > at && text[end - 1] == '=' && closing < 6) end--, closing++;
    if (closing == 0 || at == end) return false;
    if (closing < level) level = closing;
    wikitext_end_paragraph(w);
    if (w->dropped_level == 0 || level <= w->dropped_level)
        w->dropped_level =
            wikitext_lower_name(w, at, end, name, sizeof name) && wikitext_dropped_section(name) ? level : 0;
    wikitext_move_to(w, stop);
    return true;
}

/* At the first character of a line, or after dropped constructs at its start. */
static void line_start(Wikitext *w)
{
    const char *text = w->text;
    uint32_t at = w->at;
    bool first = at == 0 || text[at - 1] == '\n';
    if (first && w->item) wikitext_end_paragraph(w);
    if (text[at] == '=' && skip_heading(w)) return;
    if (w->dropped_level > 0) {
        wikitext_move_to(w, wikitext_line_end(w, at));
        return;
    }
    switch (text[at]) {
    case '\n':
    case '\r':
        if (first) wikitext_end_paragraph(w);
        return;
    case '*':
    case '#':
    case ':':
    case ';':
        wikitext_end_paragraph(w);
        w->item = true;
        while (at < w->len && strchr("*#:; ", text[at])) at++;
        wikitext_move_to(w, at);
        w->fresh = false;
        return;
    case ' ':
    case '\t':
        while (at < w->len && (text[at] == ' ' || text[at] == '\t')) at++;
        if (at < w->len && text[at] != '\n' && first) {
            wikitext_end_paragraph(w);
            w->item = true;
        }
        wikitext_move_to(w, at);
        return;
    case '!':
        if (!w->open_table) break; /* fall through */
    case '|':                      /* the rest of an unclosed table or template */
        wikitext_end_paragraph(w);
        wikitext_move_to(w, wikitext_line_end(w, at));
        return;
    case '-':
        if (w->len - at >= 4 && memcmp(text + at, "----", 4) == 0) {
            wikitext_end_paragraph(w);
            while (at < w->len && text[at] == '-') at++;
            wikitext_move_to(w, at);
            return;
        }
        break;
    }
    w->fresh = false;
}

/* ---- characters ---- */

/* At '&'. */
void wikitext_append_entity(Wikitext *w)
{
    const char *p = w->text + w->at + 1, *end = w->text + w->len;
    char name[12];
    size_t n = 0;
    uint32_t scalar = 0;
    while (p + n < end && n < sizeof name - 1 && p[n] != ';' && ((unsigned char)p[n] > ' ') && p[n] != '&') n++;
    if (p + n < end && p[n] == ';' && n > 1) {
        memcpy(name, p, n);
        name[n] = '\0';
        if (name[0] == '#') {
            char *stop;
            bool hex = name[1] == 'x' || name[1] == 'X';
            unsigned long value = strtoul(name + 1 + hex, &stop, hex ? 16 : 10);
            if (*stop == '\0' && value < 0x110000 && (value < 0xD800 || value > 0xDFFF))
                scalar = value < 0x20 || value == 0x7F ? ' ' : (uint32_t)value;
        } else {
            scalar = wikitext_entity(name);
        }
    }
    if (scalar == 0) {
        wikitext_append_char(w, '&');
        w->at++;
        return;
    }
    char bytes[4];
    wikitext_append(w, bytes, (size_t)utf8_encode(scalar, bytes));
    w->at += (uint32_t)n + 2;
}

static bool begins_with(const Wikitext *w, uint32_t at, const char *prefix)
{
    size_t n = strlen(prefix);
    return w->limit - at >= n && strncasecmp(w->text + at, prefix, n) == 0;
}

/* At a '[' that does not begin a link to a page. */
static void at_single_bracket(Wikitext *w)
{
    static const char *const schemes[] = {"http://", "https://", "//",     "ftp://",
                                          "mailto:", "news:",    "irc://", "ftps://"};
    uint32_t at = w->at + 1;
    bool external = false;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes && !external; i++)
        external = begins_with(w, at, schemes[i]);
    w->external = w->external << 1 | external;
    if (external) {
        while (at < w->limit && !strchr(" \t\n]<[", w->text[at])) at++;
        while (at < w->limit && w->text[at] == ' ') at++;
    } else {
        wikitext_append_char(w, '[');
    }
    wikitext_move_to(w, at);
}

static void at_quotes(Wikitext *w)
{
    uint32_t n = 0;
    while (w->at + n < w->limit && w->text[w->at + n] == '\'') n++;
    if (n == 1 || n == 4) wikitext_append_char(w, '\'');
    w->at += n;
}

/* Removes __NOTOC__ and other magic words; any other _ is text. */
static void at_underscore(Wikitext *w)
{
    uint32_t at = w->at, n = 2;
    if (begins_with(w, at, "__")) {
        while (at + n < w->limit && w->text[at + n] >= 'A' && w->text[at + n] <= 'Z') n++;
        if (n > 4 && begins_with(w, at + n, "__")) {
            w->at = at + n + 2;
            return;
        }
    }
    wikitext_append_char(w, '_');
    w->at++;
}

static void at_angle(Wikitext *w)
{
    TagAt tag;
    wikitext_tag_at(w->text, w->len, w->at, &tag);
    if (tag.kind == TAG_NONE) {
        wikitext_append_char(w, '<');
        w->at++;
        return;
    }
    if (tag.kind == TAG_BREAK) wikitext_end_paragraph(w);
    if (tag.kind == TAG_SPACE) wikitext_append_char(w, ' ');
    if (!tag.closing && !tag.empty && (strcmp(tag.name, "sup") == 0 || strcmp(tag.name, "sub") == 0))
        wikitext_begin_script(w, tag.name[2] == 'p' ? '^' : '_', tag.end, w->limit);
    wikitext_move_to(w, tag.end < w->limit ? tag.end : w->limit);
}

static const bool special[256] = {['\n'] = true, ['{'] = true, ['}'] = true, ['['] = true, [']'] = true,
                                  ['<'] = true,  ['&'] = true, ['_'] = true, ['\''] = true};

static void at_special(Wikitext *w)
{
    switch (w->text[w->at]) {
    case '\n':
        wikitext_append_char(w, '\n');
        w->at++;
        w->fresh = true;
        w->external = 0;
        break;
    case '[':
        at_single_bracket(w);
        break;
    case ']':
        if (w->at + 1 < w->limit && w->text[w->at + 1] == ']' && w->external == 0) { /* not of a link */
            w->at += 2;
            break;
        }
        if (!(w->external & 1)) wikitext_append_char(w, ']');
        w->external >>= 1;
        w->at++;
        break;
    case '<':
        at_angle(w);
        break;
    case '&':
        wikitext_append_entity(w);
        break;
    case '_':
        at_underscore(w);
        break;
    case '\'':
        at_quotes(w);
        break;
    default: /* a brace of no construct */
        w->at++;
        break;
    }
}

size_t wikitext_sentences(Wikitext *w, const char *text, size_t len, Buf *out)
{
    CHECK(len < (size_t)1 << 31, "an article of %zu bytes", len);
    reserve(&w->words, len + 16);
    wikitext_scan(&w->list, text, (uint32_t)len);
    w->text = text;
    w->len = w->limit = (uint32_t)len;
    w->at = 0;
    w->next = 0;
    w->n_frames = 0;
    w->fresh = true;
    w->item = w->open_table = false;
    w->dropped_level = 0;
    w->external = 0;
    w->sentences = w->dropped = 0;
    w->out = out;
    for (;;) {
        if (w->at >= w->limit) {
            if (w->n_frames == 0) break;
            leave_frame(w);
            continue;
        }
        if (w->next < w->list.n && w->list.tokens[w->next].start == w->at && w->dropped_level == 0) {
            wikitext_at_token(w, &w->list.tokens[w->next]);
            continue;
        }
        if (w->fresh && w->n_frames == 0) {
            uint32_t before = w->at;
            line_start(w);
            if (w->at != before || w->at >= w->limit) continue;
        }
        uint32_t at = w->at;
        while (at < w->limit && !special[(unsigned char)text[at]]) at++;
        wikitext_append(w, text + w->at, at - w->at);
        w->fresh &= at == w->at;
        w->at = at;
        if (at < w->limit && !(w->next < w->list.n && w->list.tokens[w->next].start == at)) at_special(w);
    }
    wikitext_end_paragraph(w);
    return w->sentences;
}

size_t wikitext_plain(Wikitext *w, const char *text, size_t len, bool one_sentence, Buf *out)
{
    reserve(&w->words, len + 16);
    reserve(&w->plain, len + 16);
    w->text = text;
    w->len = w->limit = (uint32_t)len;
    for (w->at = 0; w->at < w->len;) {
        const char *found = memchr(text + w->at, '&', w->len - w->at);
        uint32_t stop = found ? (uint32_t)(found - text) : w->len;
        wikitext_append(w, text + w->at, stop - w->at);
        w->at = stop;
        if (found) wikitext_append_entity(w);
    }
    wikitext_mend(&w->words, false, &w->plain);
    w->words.len = 0;
    return one_sentence ? sentences_append_one(w->plain.data, w->plain.len, out)
                        : sentences_append(w->plain.data, w->plain.len, out);
}
