/* The constructs that the first pass found: templates, links, language variants and formulas are converted to their
   kept words, others are skipped. */

#include "tasks/pretrain/wiki/wikitext_internal.h"
#include "text/utf8.h"

#define MOST_FORMULA 24  /* bytes of a formula that is kept */
#define MOST_SUFFIX  3   /* bytes in the name of a template that is the end of a word or unit: I{{er}}, km{{2}} */
#define MOST_TARGET  512 /* bytes of a link's target; a longer one, or one with a line end, is text */

/* Returns the first `c` of [at, end) outside all constructs, or `end`. *k is a token at or before `at`; it advances. */
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
        at = tokens[*k].end ? tokens[*k].end : stop; /* an unclosed construct is text */
        ++*k;
    }
    return end;
}

/* The first `c` of [at, end) outside all constructs, or `end`. */
static uint32_t find_outside(const Wikitext *w, uint32_t at, uint32_t end, char c)
{
    size_t k = w->next;
    return find_from(w, &k, at, end, c);
}

bool wikitext_lower_name(const Wikitext *w, uint32_t at, uint32_t end, char *name, size_t size)
{
    while (at < end && (w->text[at] == ' ' || w->text[at] == '\n' || w->text[at] == '_')) at++;
    while (end > at && (w->text[end - 1] == ' ' || w->text[end - 1] == '\n' || w->text[end - 1] == '_')) end--;
    if (end - at >= size) return false;
    for (uint32_t i = at; i < end; i++) name[i - at] = w->text[i] == '_' ? ' ' : wikitext_lower(w->text[i]);
    name[end - at] = '\0';
    return true;
}

/* ---- frames ---- */

/* Keeps the words [at, end), then continues at `jump`. Nested too deep, or empty: keeps nothing. */
static void enter_frame(Wikitext *w, uint32_t at, uint32_t end, uint32_t jump)
{
    if (w->n_frames == MOST_FRAMES || at >= end) {
        wikitext_move_to(w, jump);
        return;
    }
    w->frames[w->n_frames++] = (Frame){end, jump};
    w->limit = end;
    wikitext_move_to(w, at);
}

/* ---- templates ---- */

bool wikitext_parameter(const Wikitext *w, const Token *t, const char *name, int wanted, uint32_t *start, uint32_t *end)
{
    size_t k = w->next;
    uint32_t at = find_from(w, &k, t->body, t->body_end, '|');
    for (int n = 0; at < t->body_end;) {
        uint32_t begin = at + 1;
        size_t before = k;
        at = find_from(w, &k, begin, t->body_end, '|');
        uint32_t equals = find_from(w, &before, begin, at, '=');
        if (equals < at) { /* named; "1=" is the name of a first parameter that contains an = */
            char found[8];
            if (!wikitext_lower_name(w, begin, equals, found, sizeof found)) continue;
            if (name ? strcmp(found, name) != 0 : found[0] != '0' + wanted || found[1]) continue;
            begin = equals + 1;
        } else if (name || ++n != wanted) {
            continue;
        }
        while (begin < at && (w->text[begin] == ' ' || w->text[begin] == '\n')) begin++;
        while (at > begin && (w->text[at - 1] == ' ' || w->text[at - 1] == '\n')) at--;
        *start = begin;
        *end = at;
        return true;
    }
    return false;
}

bool wikitext_append_plain(Wikitext *w, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to;) {
        char c = w->text[i];
        if (strchr("[]{}<>", c)) return false;
        if (c == '&') {
            w->at = i;
            wikitext_append_entity(w);
            i = w->at;
        } else if (c == '\'' && i + 1 < to && w->text[i + 1] == '\'') {
            while (i < to && w->text[i] == '\'') i++;
        } else {
            wikitext_append_char(w, c == '\n' ? ' ' : c);
            i++;
        }
    }
    return true;
}

/* {{chem|H|2|O}}: "H2O". {{keypress|Ctrl|C}}: "Ctrl+C". {{respell|RIV|ər}}: "RIV-ər". */
static bool append_all(Wikitext *w, const Token *t, char between)
{
    uint32_t from = 0, to = 0;
    for (int n = 1; n < 64 && wikitext_parameter(w, t, NULL, n, &from, &to); n++) {
        if (n > 1 && between) wikitext_append_char(w, between);
        if (!wikitext_append_plain(w, from, to)) return false;
    }
    return true;
}

/* {{IPAc-en|ˈ|k|ɛər|n}}: "/ˈkɛərn/". Words that the template says before, and sound files, are left out. */
static bool append_phonemes(Wikitext *w, const Token *t)
{
    uint32_t from = 0, to = 0;
    bool any = false;
    for (int n = 1; n < 64 && wikitext_parameter(w, t, NULL, n, &from, &to); n++) {
        char word[8];
        bool skip = memchr(w->text + from, '.', to - from) != NULL;
        if (!skip && wikitext_lower_name(w, from, to, word, sizeof word))
            skip = str_list_has("lang,pron,local,also,uk,us,ukalso,usalso,alsouk,alsous", ',', word, strlen(word));
        if (skip || from == to) continue;
        if (!any) wikitext_append_char(w, '/');
        any = true;
        for (uint32_t i = from; i < to; i++) /* "_" is a blank between words */
            if (w->text[i] == '_')
                wikitext_append_char(w, ' ');
            else if (!strchr("[]{}<>&'\n", w->text[i]))
                wikitext_append_char(w, w->text[i]);
    }
    if (any) wikitext_append_char(w, '/');
    return any;
}

/* Enters the n-th unnamed parameter, which may have markup in it. */
static bool enter_parameter(Wikitext *w, const Token *t, int n)
{
    uint32_t from = 0, to = 0;
    if (!wikitext_parameter(w, t, NULL, n, &from, &to)) return false;
    if (from == to) return false;
    w->fresh = false;
    enter_frame(w, from, to, t->end);
    return true;
}

/* Appends a part of a form. */
static bool append_part(Wikitext *w, const Token *t, char code)
{
    uint32_t from = 0, to = 0;
    switch (code) {
    case '+':
        return append_all(w, t, 0);
    case 'k':
        return append_all(w, t, '+');
    case 'r':
        return append_all(w, t, '-');
    case 's':
        return append_phonemes(w, t);
    case '1':
    case '2':
        return wikitext_parameter(w, t, NULL, code - '0', &from, &to) && from < to &&
               wikitext_append_plain(w, from, to);
    default:
        return wikitext_append_number(w, t, code);
    }
}

/* Appends the words of a template in its form, or enters its last parameter. False: it has no such parameter, or shows
   what Cairn cannot give; the words are as before. */
static bool append_form(Wikitext *w, const Token *t, const char *form)
{
    size_t before = w->words.len;
    uint32_t from, to;
    for (; *form; form++) {
        if (*form != '%') {
            wikitext_append_char(w, *form);
            continue;
        }
        char code = *++form;
        bool last = form[1] == '\0';
        if (code == '3') code = wikitext_parameter(w, t, NULL, 3, &from, &to) ? '3' : '2';
        if (code == '+' && last && !wikitext_parameter(w, t, NULL, 2, &from, &to)) code = '?';
        if (code == '^' || code == '_') {
            if (wikitext_parameter(w, t, NULL, 1, &from, &to)) wikitext_begin_script(w, code, from, t->end);
            code = '1';
        }
        if (last && code == '?' && !wikitext_parameter(w, t, NULL, 1, &from, &to)) break;
        if (last && (code == '?' || (code >= '1' && code <= '3'))) {
            if (enter_parameter(w, t, code == '?' ? 1 : code - '0')) return true;
            w->words.len = before;
            return false;
        }
        if (!append_part(w, t, code)) {
            w->words.len = before;
            return false;
        }
        w->fresh = false;
    }
    wikitext_move_to(w, t->end);
    return true;
}

/* {{formatnum:12345}} is a function of the wiki: "12345". */
static bool append_number(Wikitext *w, const Token *t)
{
    static const char name[] = "formatnum:";
    uint32_t n = sizeof name - 1, at = t->body;
    while (at < t->body_end && w->text[at] == ' ') at++;
    if (t->body_end - at <= n || strncasecmp(w->text + at, name, n) != 0) return false;
    w->fresh = false;
    enter_frame(w, at + n, find_outside(w, at + n, t->body_end, '|'), t->end);
    return true;
}

/* Whether the words so far end in a word. */
static bool behind_word(const Wikitext *w)
{
    const char *end = w->words.data + w->words.len, *p = end;
    while (p > w->words.data && ((unsigned char)*--p & 0xC0) == 0x80) continue;
    return p < end && wikitext_word(utf8_decode(&p, end));
}

static void at_template(Wikitext *w, const Token *t)
{
    char name[32];
    uint32_t name_end = t->body, most = t->body_end - t->body < 40 ? t->body_end : t->body + 40;
    while (name_end < most && w->text[name_end] != '|' && w->text[name_end] != '{') name_end++;
    bool silent = false;
    const char *form = NULL;
    if (t->body - t->start == 2 && wikitext_lower_name(w, t->body, name_end, name, sizeof name)) {
        form = wikitext_kept_template(name);
        if (!form && strncmp(name, "lang-", 5) == 0) form = "%1";
        if (!form && strncmp(name, "ipa-", 4) == 0) form = "[%1]";
        silent = !form && (wikitext_silent_template(name) || strncmp(name, "#tag:ref", 8) == 0);
    }
    if (form && append_form(w, t, form)) return;
    if (!form && append_number(w, t)) return;
    bool words = form && strcmp(form, "%s") != 0; /* sounds may be a file alone */
    words |= name_end - t->body <= MOST_SUFFIX && behind_word(w);
    if (!silent) wikitext_append_char(w, words ? WIKITEXT_MISSING : WIKITEXT_MARK);
    wikitext_move_to(w, t->end);
}

/* ---- links ---- */

/* Whether a name ends as that of a picture or sound. */
static bool is_media(const char *name, size_t len)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".svg",  ".gif", ".tif", ".tiff", ".webp",
                                          ".ogg", ".ogv",  ".oga", ".webm", ".mp3", ".wav", ".djvu"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (len > n && strncasecmp(name + len - n, endings[i], n) == 0) return true;
    }
    return false;
}

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
        bool media = stop > at && is_media(prefix + 1, bar - stop - 1); /* of a wiki in another language */
        if (media || (wikitext_lower_name(w, at, stop, name, sizeof name) &&
                      wikitext_dropped_prefix(w->namespaces, name, written_lower))) {
            wikitext_move_to(w, end);
            return;
        }
    }
    if (bar - at > MOST_TARGET || memchr(text + at, '\n', bar - at)) { /* not a link: treated as never closed */
        wikitext_move_to(w, t->body);
        return;
    }
    w->fresh = false;
    if (bar + 1 < body_end) {
        enter_frame(w, bar + 1, body_end, end);
        return;
    }
    if (colon && prefix) at = (uint32_t)(prefix - text) + 1;
    if (at < bar && text[at] == '#') at++;
    enter_frame(w, at, bar, end);
}

/* -{zh-hans:a; zh-hant:b}-: the first variant. -{a}-: a. */
static void at_variant(Wikitext *w, const Token *t)
{
    uint32_t at = t->body, end = t->body_end;
    if (w->words.len > 0 && w->words.data[w->words.len - 1] == '-') w->words.len--;
    w->fresh = false;
    if (at + 1 < end && w->text[at + 1] == '|') /* flags; H, D, T and - hide the text */
        at = memchr("HDT-", w->text[at], 4) ? end : at + 2;
    uint32_t stop = find_outside(w, at, end, ';'), colon = find_outside(w, at, stop, ':');
    if (colon < stop) at = colon + 1; /* zh-hans:…; the first variant */
    enter_frame(w, at, stop, t->end);
}

/* Keeps a short formula of letters, digits and common signs; other formulas become the word "formula". */
static void at_math(Wikitext *w, const Token *t)
{
    uint32_t n = t->body_end - t->body;
    bool simple = n > 0 && n <= MOST_FORMULA;
    for (uint32_t i = t->body; simple && i < t->body_end; i++) {
        char c = w->text[i];
        simple = wikitext_letter(c) || (c >= '0' && c <= '9') || strchr(" +-=,.()", c);
    }
    if (simple)
        wikitext_append(w, w->text + t->body, n);
    else
        wikitext_append(w, "formula", 7);
    w->fresh = false;
    wikitext_move_to(w, t->end);
}

uint32_t wikitext_line_end(const Wikitext *w, uint32_t at) { return find_outside(w, at, w->len, '\n'); }

/* ---- any of them ---- */

void wikitext_at_token(Wikitext *w, const Token *t)
{
    if (t->end == 0) { /* never closed */
        bool table = t->kind == TOKEN_TABLE;
        w->open_table |= table;
        wikitext_move_to(w, t->body);
        if (table && w->n_frames == 0) wikitext_move_to(w, wikitext_line_end(w, w->at)); /* its attributes */
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
        for (wikitext_move_to(w, t->body); w->at < t->body_end;) {
            if (w->text[w->at] == '&')
                wikitext_append_entity(w);
            else
                wikitext_append_char(w, w->text[w->at++]);
        }
        wikitext_move_to(w, t->end);
        break;
    case TOKEN_TABLE:
        wikitext_end_paragraph(w);
        w->fresh = false;
        wikitext_move_to(w, t->end);
        break;
    case TOKEN_GAP:
        wikitext_append_char(w, WIKITEXT_MARK);
        wikitext_move_to(w, t->end);
        break;
    default:
        wikitext_move_to(w, t->end);
    }
}
