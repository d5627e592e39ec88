/* The second pass: walks over the text by lines, steps over the constructs that the first found, and hands paragraph
   after paragraph to the sentence splitter. */
#include "tasks/pretrain/wiki/wikitext.h"

#include <stdlib.h>
#include <string.h>

#include "tasks/pretrain/wiki/sentences.h"
#include "tasks/pretrain/wiki/wikitext_internal.h"
#include "text/utf8.h"

#define MOST_FRAMES  64  /* links and templates within each other that are kept */
#define MOST_TARGET  512 /* bytes of a link's target; longer, or with a line end, it is none */
#define MOST_FORMULA 24  /* bytes of a formula that is kept */

/* At `at` go on at `jump`: the end of a link's or template's kept words. */
typedef struct {
    uint32_t at, jump;
} Frame;

struct Wikitext {
    TokenList list;
    const char *namespaces;
    Words words; /* the paragraph so far; there is room for all of the article */
    Words plain; /* and mended */
    /* of the article at hand */
    const char *text;
    uint32_t len, at, limit; /* limit: end of the innermost frame */
    size_t next;             /* first token that does not begin before `at` */
    Frame frames[MOST_FRAMES];
    int n_frames;
    bool fresh;        /* at a line's start, comments and templates before it left out */
    bool item;         /* the paragraph is a list item or preformatted: kept if it is prose */
    bool open_table;   /* a table that is never closed */
    int dropped_level; /* level of the heading whose section is left out; 0: none */
    uint64_t external; /* open single brackets, the innermost in bit 0: 1 an external link's */
    size_t sentences;
    Buf *out;
};

Wikitext *wikitext_new(void) { return mem_alloc(sizeof(Wikitext)); }

void wikitext_free(Wikitext *w)
{
    if (!w) return;
    free(w->list.tokens);
    free(w->list.open);
    free(w->words.data);
    free(w->plain.data);
    free(w);
}

void wikitext_set_namespaces(Wikitext *w, const char *names) { w->namespaces = names; }

static void reserve(Words *words, size_t len)
{
    words->len = 0;
    if (words->cap >= len) return;
    words->cap = len + len / 4;
    words->data = mem_resize(words->data, words->cap, 1);
}

static void put(Wikitext *w, const char *p, size_t n)
{
    memcpy(w->words.data + w->words.len, p, n);
    w->words.len += n;
}

static void put_char(Wikitext *w, char c) { w->words.data[w->words.len++] = c; }

static void end_paragraph(Wikitext *w)
{
    CHECK(w->words.len <= w->len, "%zu bytes of words from %u", w->words.len, (unsigned)w->len);
    if (w->words.len > 0) {
        wikitext_mend(&w->words, &w->plain);
        if (!w->item || wikitext_is_prose(&w->plain))
            w->sentences += sentences_append(w->plain.data, w->plain.len, w->out);
        w->words.len = 0;
    }
    w->item = false;
    w->external = 0;
}

/* ---- moving on ---- */

static void go(Wikitext *w, uint32_t at)
{
    const TokenList *list = &w->list;
    w->at = at;
    while (w->next < list->n && list->tokens[w->next].start < at) w->next++;
}

/* The words [at, end) are kept; then it goes on at `jump`. False: too deep, nothing is kept. */
static bool enter(Wikitext *w, uint32_t at, uint32_t end, uint32_t jump)
{
    if (w->n_frames == MOST_FRAMES || at >= end) return go(w, jump), false;
    w->frames[w->n_frames++] = (Frame){end, jump};
    w->limit = end;
    go(w, at);
    return true;
}

static void leave(Wikitext *w)
{
    Frame f = w->frames[--w->n_frames];
    w->limit = w->n_frames ? w->frames[w->n_frames - 1].at : w->len;
    go(w, f.jump);
}

/* The first `c` of [at, end) that is in no construct, or `end`. *k is a token not behind `at`, and moves on with it. */
static uint32_t find_from(const Wikitext *w, size_t *k, uint32_t at, uint32_t end, char c)
{
    const Token *tokens = w->list.tokens;
    size_t n = w->list.n;
    while (at < end) {
        while (*k < n && tokens[*k].start < at) ++*k;
        bool token = *k < n && tokens[*k].start < end;
        uint32_t stop = token ? tokens[*k].start : end;
        const char *found = memchr(w->text + at, c, stop - at);
        if (found) return (uint32_t)(found - w->text);
        if (!token) break;
        at = tokens[*k].end ? tokens[*k].end : stop; /* one that is never closed is text */
        ++*k;
    }
    return end;
}

static uint32_t find_outside(const Wikitext *w, uint32_t at, uint32_t end, char c)
{
    size_t k = w->next;
    return find_from(w, &k, at, end, c);
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* text[at, end) without blanks around it, in lower case, _ as a blank; false: longer than `size`. */
static bool lower_name(const Wikitext *w, uint32_t at, uint32_t end, char *name, size_t size)
{
    while (at < end && (w->text[at] == ' ' || w->text[at] == '\n' || w->text[at] == '_')) at++;
    while (end > at && (w->text[end - 1] == ' ' || w->text[end - 1] == '\n' || w->text[end - 1] == '_')) end--;
    if (end - at >= size) return false;
    for (uint32_t i = at; i < end; i++) name[i - at] = w->text[i] == '_' ? ' ' : lower(w->text[i]);
    name[end - at] = '\0';
    return true;
}

/* ---- templates ---- */

/* The n-th unnamed parameter of a template, from 1. */
static bool parameter(const Wikitext *w, const Token *t, int wanted, uint32_t *start, uint32_t *end)
{
    size_t k = w->next;
    uint32_t at = find_from(w, &k, t->body, t->body_end, '|');
    for (int n = 0; at < t->body_end;) {
        uint32_t begin = at + 1;
        size_t before = k;
        at = find_from(w, &k, begin, t->body_end, '|');
        uint32_t equals = find_from(w, &before, begin, at, '=');
        if (equals < at) { /* named; "1=" is what has a name because it holds an = */
            char name[4];
            if (!lower_name(w, begin, equals, name, sizeof name) || name[0] != '0' + wanted || name[1]) continue;
            begin = equals + 1;
        } else if (++n != wanted) {
            continue;
        }
        while (begin < at && (w->text[begin] == ' ' || w->text[begin] == '\n')) begin++;
        *start = begin;
        *end = at;
        return true;
    }
    return false;
}

static void at_template(Wikitext *w, const Token *t)
{
    char name[32];
    uint32_t end = t->end, name_end = t->body, most = t->body_end - t->body < 40 ? t->body_end : t->body + 40;
    while (name_end < most && w->text[name_end] != '|' && w->text[name_end] != '{') name_end++;
    const char *form = NULL;
    if (t->body - t->start == 2 && lower_name(w, t->body, name_end, name, sizeof name)) {
        form = wikitext_kept_template(name);
        if (!form && strncmp(name, "lang-", 5) == 0) form = "\1";
    }
    uint32_t from = 0, to = 0;
    for (; form && *form; form++) {
        if (*form != '\1' && *form != '\2') {
            put_char(w, *form);
            continue;
        }
        if (!parameter(w, t, *form, &from, &to)) {
            form = NULL;
            break;
        }
        if (form[1] == '\0') { /* the last one may have markup in it */
            w->fresh = false;
            enter(w, from, to, end);
            return;
        }
        for (uint32_t i = from; i < to; i++)
            if (!strchr("[]{}<>&'", w->text[i])) put_char(w, w->text[i]);
        w->fresh = false;
    }
    go(w, end);
}

/* ---- links ---- */

static void at_link(Wikitext *w, const Token *t)
{
    const char *text = w->text;
    uint32_t at = t->body, end = t->end, body_end = t->body_end;
    while (at < body_end && text[at] == ' ') at++;
    bool colon = at < body_end && text[at] == ':';
    at += colon;
    uint32_t bar = find_outside(w, at, body_end, '|');
    const char *prefix = memchr(text + at, ':', bar - at < 40 ? bar - at : 40);
    if (prefix && !colon) {
        char name[40];
        uint32_t stop = (uint32_t)(prefix - text);
        bool written_lower = prefix + 1 < text + body_end && prefix[1] != ' ';
        for (uint32_t i = at; i < stop; i++) written_lower &= !(text[i] >= 'A' && text[i] <= 'Z');
        if (lower_name(w, at, stop, name, sizeof name) && wikitext_dropped_prefix(w->namespaces, name, written_lower)) {
            go(w, end);
            return;
        }
    }
    if (bar - at > MOST_TARGET || memchr(text + at, '\n', bar - at)) { /* no link: as if never closed */
        go(w, t->body);
        return;
    }
    w->fresh = false;
    if (bar + 1 < body_end) {
        enter(w, bar + 1, body_end, end);
        return;
    }
    if (colon && prefix) at = (uint32_t)(prefix - text) + 1;
    if (at < bar && text[at] == '#') at++;
    enter(w, at, bar, end);
}

/* -{zh-hans:a; zh-hant:b}-: the first one. -{a}-: a. */
static void at_variant(Wikitext *w, const Token *t)
{
    uint32_t at = t->body, end = t->body_end;
    if (w->words.len > 0 && w->words.data[w->words.len - 1] == '-') w->words.len--;
    w->fresh = false;
    if (at + 1 < end && w->text[at + 1] == '|') { /* flags: those that show nothing */
        bool hidden = memchr("HDT-", w->text[at], 4) != NULL;
        at = hidden ? end : at + 2;
    }
    uint32_t stop = find_outside(w, at, end, ';'), colon = find_outside(w, at, stop, ':');
    if (colon < stop) at = colon + 1; /* zh-hans:…; the first variant */
    enter(w, at, stop, t->end);
}

/* A formula of letters, digits and signs that stand in text too is kept. */
static void at_math(Wikitext *w, const Token *t)
{
    uint32_t n = t->body_end - t->body;
    bool simple = n > 0 && n <= MOST_FORMULA;
    for (uint32_t i = t->body; simple && i < t->body_end; i++) {
        char c = w->text[i];
        simple = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr(" +-=,.()", c);
    }
    if (simple)
        put(w, w->text + t->body, n);
    else
        put(w, "formula", 7);
    w->fresh = false;
    go(w, t->end);
}

/* The end of the line at `at`; constructs that begin on it belong to it. */
static uint32_t line_end(const Wikitext *w, uint32_t at) { return find_outside(w, at, w->len, '\n'); }

static void put_entity(Wikitext *w);

static void at_token(Wikitext *w, const Token *t)
{
    if (t->end == 0) { /* never closed */
        bool table = t->kind == TOKEN_TABLE;
        w->open_table |= table;
        go(w, t->body);
        if (table && w->n_frames == 0) go(w, line_end(w, w->at)); /* its attributes */
        return;
    }
    switch (t->kind) {
    case TOKEN_TEMPLATE:
        at_template(w, t);
        break;
    case TOKEN_LINK:
        at_link(w, t);
        break;
    case TOKEN_MATH:
        at_math(w, t);
        break;
    case TOKEN_VARIANT:
        at_variant(w, t);
        break;
    case TOKEN_RAW:
        w->fresh = false;
        for (go(w, t->body); w->at < t->body_end;) {
            if (w->text[w->at] == '&')
                put_entity(w);
            else
                put_char(w, w->text[w->at++]);
        }
        go(w, t->end);
        break;
    case TOKEN_TABLE:
        end_paragraph(w);
        w->fresh = false;
        go(w, t->end);
        break;
    default:
        go(w, t->end);
    }
}

/* ---- lines ---- */

/* At '=': true if the line is a heading, which is passed. */
static bool heading(Wikitext *w)
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
        while (open > at && memcmp(text + open, "<!--", 4) != 0) open--;
        if (open == at) break;
        end = open;
    }
    while (at < end && text[at] == '=' && level < 6) at++, level++;
    while (end > at && text[end - 1] == '=' && closing < 6) end--, closing++;
    if (closing == 0 || at == end) return false;
    if (closing < level) level = closing;
    end_paragraph(w);
    if (w->dropped_level == 0 || level <= w->dropped_level)
        w->dropped_level = lower_name(w, at, end, name, sizeof name) && wikitext_dropped_section(name) ? level : 0;
    go(w, stop);
    return true;
}

/* At the first character of a line, or behind what was left out there. */
static void line_start(Wikitext *w)
{
    const char *text = w->text;
    uint32_t at = w->at;
    bool first = at == 0 || text[at - 1] == '\n';
    if (first && w->item) end_paragraph(w);
    if (text[at] == '=' && heading(w)) return;
    if (w->dropped_level > 0) {
        go(w, line_end(w, at));
        return;
    }
    switch (text[at]) {
    case '\n':
    case '\r':
        if (first) end_paragraph(w);
        return;
    case '*':
    case '#':
    case ':':
    case ';':
        end_paragraph(w);
        w->item = true;
        while (at < w->len && strchr("*#:; ", text[at])) at++;
        go(w, at);
        w->fresh = false;
        return;
    case ' ':
    case '\t':
        while (at < w->len && (text[at] == ' ' || text[at] == '\t')) at++;
        if (at < w->len && text[at] != '\n' && first) {
            end_paragraph(w);
            w->item = true;
        }
        go(w, at);
        return;
    case '!':
        if (!w->open_table) break; /* fall through */
    case '|':                      /* what is left of a table or a template */
        end_paragraph(w);
        go(w, line_end(w, at));
        return;
    case '-':
        if (w->len - at >= 4 && memcmp(text + at, "----", 4) == 0) {
            end_paragraph(w);
            while (at < w->len && text[at] == '-') at++;
            go(w, at);
            return;
        }
        break;
    }
    w->fresh = false;
}

/* ---- characters ---- */

/* At '&'. */
static void put_entity(Wikitext *w)
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
        put_char(w, '&');
        w->at++;
        return;
    }
    char bytes[4];
    put(w, bytes, (size_t)utf8_encode(scalar, bytes));
    w->at += (uint32_t)n + 2;
}

static bool begins_with(const Wikitext *w, uint32_t at, const char *prefix)
{
    size_t n = strlen(prefix);
    return w->limit - at >= n && strncasecmp(w->text + at, prefix, n) == 0;
}

/* At a '[' that is no link to a page. */
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
        put_char(w, '[');
    }
    go(w, at);
}

static void at_quotes(Wikitext *w)
{
    uint32_t n = 0;
    while (w->at + n < w->limit && w->text[w->at + n] == '\'') n++;
    if (n == 1 || n == 4) put_char(w, '\'');
    w->at += n;
}

/* __NOTOC__ and the like go; any other _ is text. */
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
    put_char(w, '_');
    w->at++;
}

static void at_angle(Wikitext *w)
{
    TagAt tag;
    wikitext_tag_at(w->text, w->len, w->at, &tag);
    if (tag.kind == TAG_NONE) {
        put_char(w, '<');
        w->at++;
        return;
    }
    if (tag.kind == TAG_BREAK) end_paragraph(w);
    if (tag.kind == TAG_SPACE) put_char(w, ' ');
    go(w, tag.end < w->limit ? tag.end : w->limit);
}

static const bool special[256] = {['\n'] = true, ['{'] = true, ['}'] = true, ['['] = true, [']'] = true,
                                  ['<'] = true,  ['&'] = true, ['_'] = true, ['\''] = true};

static void at_special(Wikitext *w)
{
    switch (w->text[w->at]) {
    case '\n':
        put_char(w, ' ');
        w->at++;
        w->fresh = true;
        w->external = 0;
        break;
    case '[':
        at_single_bracket(w);
        break;
    case ']':
        if (w->at + 1 < w->limit && w->text[w->at + 1] == ']' && w->external == 0) { /* of no link */
            w->at += 2;
            break;
        }
        if (!(w->external & 1)) put_char(w, ']');
        w->external >>= 1;
        w->at++;
        break;
    case '<':
        at_angle(w);
        break;
    case '&':
        put_entity(w);
        break;
    case '_':
        at_underscore(w);
        break;
    case '\'':
        at_quotes(w);
        break;
    default: /* a brace of nothing */
        w->at++;
        break;
    }
}

size_t wikitext_sentences(Wikitext *w, const char *text, size_t len, Buf *out)
{
    CHECK(len < (size_t)1 << 31, "an article of %zu bytes", len);
    reserve(&w->words, len + 16);
    reserve(&w->plain, len + 16);
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
    w->sentences = 0;
    w->out = out;
    for (;;) {
        if (w->at >= w->limit) {
            if (w->n_frames == 0) break;
            leave(w);
            continue;
        }
        if (w->next < w->list.n && w->list.tokens[w->next].start == w->at && w->dropped_level == 0) {
            at_token(w, &w->list.tokens[w->next]);
            continue;
        }
        if (w->fresh && w->n_frames == 0) {
            uint32_t before = w->at;
            line_start(w);
            if (w->at != before || w->at >= w->limit) continue;
        }
        uint32_t at = w->at;
        while (at < w->limit && !special[(unsigned char)text[at]]) at++;
        put(w, text + w->at, at - w->at);
        w->fresh &= at == w->at;
        w->at = at;
        if (at < w->limit && !(w->next < w->list.n && w->list.tokens[w->next].start == at)) at_special(w);
    }
    end_paragraph(w);
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
        put(w, text + w->at, stop - w->at);
        w->at = stop;
        if (found) put_entity(w);
    }
    wikitext_mend(&w->words, &w->plain);
    w->words.len = 0;
    return one_sentence ? sentences_append_one(w->plain.data, w->plain.len, out)
                        : sentences_append(w->plain.data, w->plain.len, out);
}
