/* The first pass: matches brackets with a stack, as MediaWiki's preprocessor does, so that the second pass can skip a
   construct in one step. No text is read twice because of a bracket that is never closed. */

#include "tasks/pretrain/wiki/wikitext_internal.h"

#define MOST_TAG     1024 /* bytes of a tag's attributes */
#define MOST_VARIANT 2000 /* bytes of -{ … }- */
/* Most constructs of an article; real articles have one in 40 bytes. Brackets beyond that are dropped. */
#define MOST_TOKENS(len) ((len) / 8 + 4096)

typedef struct {
    WikiTokens *list;
    const char *text;
    uint32_t len, at;
    uint32_t n_templates, n_tables; /* on the stack */
    uint32_t single;                /* single [ that are open, since the last [[ */
    uint32_t no_variant;            /* no }- ends before this offset */
    char unclosed[8][20];           /* names of tags without an end after `at` */
    int n_unclosed;
} Scan;

static uint32_t push_token(Scan *s, TokenKind kind, uint32_t start, uint32_t body)
{
    WikiTokens *list = s->list;
    MEM_PUSH(list->tokens, list->n, list->cap, (Token){.start = start, .body = body, .kind = (uint8_t)kind});
    return (uint32_t)list->n - 1;
}

/* A construct whose end is known. */
static void add_closed(Scan *s, TokenKind kind, uint32_t start, uint32_t body, uint32_t body_end, uint32_t end)
{
    uint32_t index = push_token(s, kind, start, body);
    Token *t = &s->list->tokens[index];
    t->body_end = body_end;
    t->end = end;
    s->at = end;
}

static void open_token(Scan *s, TokenKind kind, uint32_t start, uint32_t body)
{
    WikiTokens *list = s->list;
    uint32_t index = push_token(s, kind, start, body);
    MEM_PUSH(list->open, list->n_open, list->open_cap, index);
    s->n_templates += kind == TOKEN_TEMPLATE;
    s->n_tables += kind == TOKEN_TABLE;
    s->at = body;
    s->single = 0;
}

static Token *top_token(const Scan *s)
{
    return s->list->n_open ? &s->list->tokens[s->list->open[s->list->n_open - 1]] : NULL;
}

/* Closes the innermost open token of a kind, which must exist; tokens within it stay open. */
static void close_token(Scan *s, TokenKind kind, uint32_t body_end, uint32_t end)
{
    Token *t;
    do {
        t = top_token(s);
        s->list->n_open--;
        s->n_templates -= t->kind == TOKEN_TEMPLATE;
        s->n_tables -= t->kind == TOKEN_TABLE;
    } while (t->kind != kind);
    t->body_end = body_end;
    t->end = end;
    s->at = end;
    s->single = 0;
}

/* Whether the quote before p ends an attribute's value: a blank, the tag's end or another attribute follows. */
static bool ends_value(const char *p, const char *most)
{
    if (p == most || strchr(" \t\n\r/>", *p)) return true;
    while (p < most && (wikitext_letter(*p) || *p == '-')) p++;
    return p < most && *p == '=';
}

/* The > that ends a tag whose attributes begin at p; NULL: none before `most`. As in HTML a > within a quoted value
   does not end it. A quote that is never closed is an ordinary character. */
static const char *tag_close(const char *p, const char *most)
{
    for (;;) {
        const char *close = memchr(p, '>', (size_t)(most - p));
        const char *quote = close ? memchr(p, '=', (size_t)(close - p)) : NULL, *end = NULL;
        if (!quote) return close;
        do quote++;
        while (strchr(" \t\n\r", *quote)); /* the tag's > is behind it */
        if (*quote == '"' || *quote == '\'') end = memchr(quote + 1, *quote, (size_t)(most - quote - 1));
        p = end && ends_value(end + 1, most) ? end + 1 : quote;
    }
}

void wikitext_tag_at(const char *text, uint32_t len, uint32_t at, TagAt *tag)
{
    uint32_t p = at + 1, n = 0;
    *tag = (TagAt){.kind = TAG_NONE, .end = at + 1};
    if (p < len && text[p] == '/') tag->closing = true, p++;
    for (; p < len && n < sizeof tag->name - 1 &&
           (wikitext_letter(text[p]) || (n > 0 && text[p] >= '1' && text[p] <= '6'));
         p++)
        tag->name[n++] = wikitext_lower(text[p]);
    if (n == 0 || (p < len && (wikitext_letter(text[p]) || (text[p] >= '0' && text[p] <= '9')))) return;
    tag->kind = wikitext_tag(tag->name);
    if (tag->kind == TAG_NONE) return;
    uint32_t most = len - p < MOST_TAG ? len : p + MOST_TAG;
    const char *end = tag_close(text + p, text + most);
    if (!end) { /* not a whole tag: its name is removed */
        tag->end = p;
        tag->empty = true;
        return;
    }
    tag->end = (uint32_t)(end - text) + 1;
    tag->empty = end[-1] == '/';
}

/* The start of </name> from `at` on, and its end in *end. */
static bool find_close(Scan *s, const char *name, uint32_t at, uint32_t *start, uint32_t *end)
{
    size_t n = strlen(name);
    for (int i = 0; i < s->n_unclosed; i++)
        if (strcmp(s->unclosed[i], name) == 0) return false;
    while (at + n + 2 < s->len) {
        const char *found = memchr(s->text + at, '<', s->len - at);
        if (!found) break;
        uint32_t p = (uint32_t)(found - s->text);
        at = p + 1;
        if (p + n + 2 >= s->len) break;
        /* References do not hold references: this one was never closed. */
        if (strcmp(name, "ref") == 0 && strncasecmp(found, "<ref", 4) == 0 && strchr(" >", found[4])) return false;
        if (found[1] != '/' || strncasecmp(found + 2, name, n) != 0) continue;
        uint32_t q = p + 2 + (uint32_t)n;
        while (q < s->len && (s->text[q] == ' ' || s->text[q] == '\n' || s->text[q] == '\t')) q++;
        if (q >= s->len || s->text[q] != '>') continue;
        *start = p;
        *end = q + 1;
        return true;
    }
    if (s->n_unclosed < 8) strcpy(s->unclosed[s->n_unclosed++], name);
    return false;
}

static void at_tag(Scan *s)
{
    const char *text = s->text;
    uint32_t at = s->at, start, end;
    if (s->len - at >= 4 && memcmp(text + at, "<!--", 4) == 0) {
        const char *close = memmem(text + at + 4, s->len - at - 4, "-->", 3);
        add_closed(s, TOKEN_DROP, at, at, at, close ? (uint32_t)(close - text) + 3 : s->len);
        return;
    }
    TagAt tag;
    wikitext_tag_at(text, s->len, at, &tag);
    switch (tag.kind) {
    case TAG_SILENT:
    case TAG_DROP:
    case TAG_MATH:
    case TAG_RAW:
        if (tag.closing || tag.empty || s->n_unclosed == 8 || !find_close(s, tag.name, tag.end, &start, &end))
            add_closed(s, TOKEN_DROP, at, at, at, tag.end);
        else
            add_closed(s,
                       tag.kind == TAG_SILENT ? TOKEN_DROP
                       : tag.kind == TAG_DROP ? TOKEN_GAP
                       : tag.kind == TAG_MATH ? TOKEN_MATH
                                              : TOKEN_RAW,
                       at, tag.end, start, end);
        return;
    case TAG_TABLE:
        if (!tag.closing && !tag.empty)
            open_token(s, TOKEN_TABLE, at, tag.end);
        else if (tag.closing && s->n_tables > 0)
            close_token(s, TOKEN_TABLE, at, tag.end);
        else
            add_closed(s, TOKEN_DROP, at, at, at, tag.end);
        return;
    default:
        s->at = tag.end; /* left to the second pass */
    }
}

/* Whether only blanks and list marks precede `at` on its line. */
static bool begins_line(const Scan *s, uint32_t at)
{
    while (at > 0 && (s->text[at - 1] == ' ' || s->text[at - 1] == ':' || s->text[at - 1] == '\t')) at--;
    return at == 0 || s->text[at - 1] == '\n';
}

static uint32_t run_of(const Scan *s, char c)
{
    uint32_t n = 0;
    while (s->at + n < s->len && s->text[s->at + n] == c) n++;
    return n;
}

/* {{ and {{{, the outermost of a run first; {| and -{ */
static void at_open_brace(Scan *s)
{
    uint32_t at = s->at, n = run_of(s, '{');
    if (n == 1 && at + 1 < s->len && s->text[at + 1] == '|' && begins_line(s, at)) {
        open_token(s, TOKEN_TABLE, at, at + 2);
    } else if (n == 1 && at > 0 && s->text[at - 1] == '-') {
        uint32_t most = s->len - at < MOST_VARIANT ? s->len : at + MOST_VARIANT;
        uint32_t from = s->no_variant > at ? s->no_variant : at; /* none ends earlier */
        const char *close = from < most ? memmem(s->text + from, most - from, "}-", 2) : NULL;
        if (!close && most > from) s->no_variant = most - 1;
        if (close)
            add_closed(s, TOKEN_VARIANT, at, at + 1, (uint32_t)(close - s->text), (uint32_t)(close - s->text) + 2);
        else
            s->at++;
    } else if (n == 1) {
        s->at++;
    } else {
        uint32_t width = n % 2 ? 3 : 2;
        for (uint32_t end = at + n; at < end; at += width, width = 2) open_token(s, TOKEN_TEMPLATE, at, at + width);
    }
}

static void at_close_brace(Scan *s)
{
    uint32_t at = s->at, n = run_of(s, '}');
    const Token *t = top_token(s);
    bool table = at > 0 && s->text[at - 1] == '|' && s->n_tables > 0 && begins_line(s, at - 1);
    if (table && (n == 1 || (t && t->kind == TOKEN_TABLE))) {
        close_token(s, TOKEN_TABLE, at - 1, at + 1);
        return;
    }
    while (n >= 2 && s->n_templates > 0) {
        while ((t = top_token(s))->kind != TOKEN_TEMPLATE) { /* a link or table that its template ends */
            s->n_tables -= t->kind == TOKEN_TABLE;
            s->list->n_open--;
        }
        uint32_t width = t->body - t->start == 3 && n >= 3 ? 3 : 2;
        close_token(s, TOKEN_TEMPLATE, at, at + width);
        at += width;
        n -= width;
    }
    s->at = at + n;
}

static void at_bracket(Scan *s)
{
    const Token *t;
    uint32_t at = s->at, n;
    if (s->text[at] == '[') {
        n = run_of(s, '[');
        if (n % 2) s->at++, s->single += n == 1;
        for (uint32_t end = at + n; s->at < end;) open_token(s, TOKEN_LINK, s->at, s->at + 2);
        return;
    }
    n = run_of(s, ']');
    uint32_t end = at + n;
    while (n > 0) {
        if (s->single > 0 && (n == 1 || n == 3)) {
            s->single--;
            at++;
            n--;
        } else if (n >= 2 && (t = top_token(s)) && t->kind == TOKEN_LINK) {
            close_token(s, TOKEN_LINK, at, at + 2);
            at += 2;
            n -= 2;
        } else {
            break;
        }
    }
    s->at = end;
}

static const bool marks[256] = {['{'] = true, ['}'] = true, ['['] = true, [']'] = true, ['<'] = true};

void wikitext_scan(WikiTokens *list, const char *text, uint32_t len)
{
    Scan s = {.list = list, .text = text, .len = len};
    list->n = list->n_open = 0;
    while (s.at < len && list->n < MOST_TOKENS(len)) {
        while (s.at < len && !marks[(unsigned char)text[s.at]]) s.at++;
        if (s.at == len) break;
        switch (text[s.at]) {
        case '<':
            at_tag(&s);
            break;
        case '{':
            at_open_brace(&s);
            break;
        case '}':
            at_close_brace(&s);
            break;
        default:
            at_bracket(&s);
        }
    }
    list->n_open = 0;
}
