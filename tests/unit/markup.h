/* A strict reader of XML, and of HTML written as XML. An error fails the test with its place. It accepts the XML of
   charts and reports: no comments, no CDATA, only the DTD `<!DOCTYPE html>`, only XML's five entities. */
#pragma once

#include "testing.h"

#define MARKUP_ATTRIBUTES 16

typedef struct {
    char *name;
    int n; /* attributes */
    char *keys[MARKUP_ATTRIBUTES], *values[MARKUP_ATTRIBUTES];
    char *text; /* directly in it; decoded */
    int parent; /* -1: the root */
} Element;

typedef struct {
    Element *elements; /* (n) in the order of their start tags */
    int n, cap;
    char error[200]; /* "": well-formed */
} Markup;

typedef struct {
    const char *start, *at;
    Markup *m;
} MarkupReader;

#define MARKUP_FAIL(r, ...)                                                                                            \
    do {                                                                                                               \
        int used_ = snprintf((r)->m->error, sizeof(r)->m->error, "byte %td: ", (r)->at - (r)->start);                  \
        snprintf((r)->m->error + used_, sizeof(r)->m->error - (size_t)used_, __VA_ARGS__);                             \
        return false;                                                                                                  \
    } while (0)

/* One character: valid UTF-8, not a control character, an entity decoded. */
static inline bool markup_char(MarkupReader *r, Buf *out)
{
    static const char *const entities[][2] = {
        {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&apos;", "'"}};
    const unsigned char *c = (const unsigned char *)r->at;
    if (*c == '&') {
        for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
            if (strncmp(r->at, entities[i][0], strlen(entities[i][0])) == 0) {
                buf_puts(out, entities[i][1]);
                r->at += strlen(entities[i][0]);
                return true;
            }
        MARKUP_FAIL(r, "& that begins no entity");
    }
    if (*c < 0x20 && *c != '\n' && *c != '\t') MARKUP_FAIL(r, "character %d", *c);
    int more = *c < 0x80                 ? 0
               : *c >= 0xc2 && *c < 0xe0 ? 1
               : *c >= 0xe0 && *c < 0xf0 ? 2
               : *c >= 0xf0 && *c < 0xf5 ? 3
                                         : -1;
    for (int i = 1; i <= more; i++)
        if ((c[i] & 0xc0) != 0x80) more = -1;
    if (more < 0) MARKUP_FAIL(r, "not UTF-8");
    buf_append(out, c, (size_t)more + 1);
    r->at += more + 1;
    return true;
}

static inline char *markup_name(MarkupReader *r)
{
    size_t len = strspn(r->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    char *name = mem_strndup(r->at, len);
    r->at += len;
    return name;
}

static inline const char *markup_attribute(const Element *e, const char *key)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->keys[i], key) == 0) return e->values[i];
    return NULL;
}

static inline bool markup_attributes(MarkupReader *r, Element *e)
{
    for (;;) {
        size_t space = strspn(r->at, " \n\t");
        r->at += space;
        if (*r->at == '>' || *r->at == '/') return true;
        if (!space) MARKUP_FAIL(r, "no space before an attribute");
        if (e->n == MARKUP_ATTRIBUTES) MARKUP_FAIL(r, "more than %d attributes", MARKUP_ATTRIBUTES);
        char *key = markup_name(r);
        bool known = markup_attribute(e, key), bad = !*key || known || strncmp(r->at, "=\"", 2) != 0;
        e->keys[e->n] = key;
        e->values[e->n++] = NULL;
        if (bad) MARKUP_FAIL(r, "attribute %s: twice, without a value, or the value has no quotes", key);
        Buf value = {0};
        buf_puts(&value, "");
        for (r->at += 2; *r->at != '"';) {
            if (*r->at == '<' || !*r->at || !markup_char(r, &value)) {
                buf_free(&value);
                if (!*r->m->error) MARKUP_FAIL(r, "a value that does not end");
                return false;
            }
        }
        r->at++;
        e->values[e->n - 1] = value.data;
    }
}

static inline bool markup_element(MarkupReader *r, int parent);

/* The contents of element number `self`. */
static inline bool markup_content(MarkupReader *r, int self)
{
    Buf text = {0};
    bool good = true;
    buf_puts(&text, "");
    while (good && strncmp(r->at, "</", 2) != 0) {
        if (!*r->at) {
            snprintf(r->m->error, sizeof r->m->error, "<%s> is not closed", r->m->elements[self].name);
            good = false;
        } else {
            good = *r->at == '<' ? markup_element(r, self) : markup_char(r, &text);
        }
    }
    r->m->elements[self].text = text.data;
    return good;
}

static inline bool markup_element(MarkupReader *r, int parent)
{
    Markup *m = r->m;
    int self = m->n;
    MEM_GROW(m->elements, m->n, m->cap);
    r->at++;
    m->elements[m->n++] = (Element){.name = markup_name(r), .parent = parent};
    if (!*m->elements[self].name) MARKUP_FAIL(r, "< that begins no tag");
    if (!markup_attributes(r, &m->elements[self])) return false;
    if (*r->at == '/') {
        m->elements[self].text = mem_strdup("");
        if (r->at[1] != '>') MARKUP_FAIL(r, "/ in a tag");
        r->at += 2;
        return true;
    }
    r->at++;
    if (!markup_content(r, self)) return false;
    r->at += 2;
    char *end = markup_name(r);
    bool same = strcmp(end, m->elements[self].name) == 0 && *r->at == '>';
    free(end);
    if (!same) MARKUP_FAIL(r, "<%s> is closed by another tag", m->elements[self].name);
    r->at++;
    return true;
}

static inline void markup_free(Markup *m)
{
    for (int i = 0; i < m->n; i++) {
        Element *e = &m->elements[i];
        for (int k = 0; k < e->n; k++) {
            free(e->keys[k]);
            free(e->values[k]);
        }
        free(e->name);
        free(e->text);
    }
    free(m->elements);
    *m = (Markup){0};
}

/* Reads one element and the white space around it. `m->error` has the error. The caller frees it in either case. */
static inline void markup_parse(const char *text, Markup *m)
{
    static const char doctype[] = "<!DOCTYPE html>\n";
    *m = (Markup){0};
    MarkupReader r = {text, text, m};
    if (strncmp(text, doctype, strlen(doctype)) == 0) r.at += strlen(doctype);
    if (*r.at != '<') {
        snprintf(m->error, sizeof m->error, "does not begin with a tag");
    } else if (markup_element(&r, -1)) {
        r.at += strspn(r.at, " \n\t");
        if (*r.at) snprintf(m->error, sizeof m->error, "byte %td: something after the root", r.at - r.start);
    }
}

static inline void markup_expect(const char *text, Markup *m)
{
    markup_parse(text, m);
    if (*m->error) fail_msg("not well-formed: %s: %.200s", m->error, text);
}

static inline int markup_count(const Markup *m, const char *name)
{
    int n = 0;
    for (int i = 0; i < m->n; i++) n += strcmp(m->elements[i].name, name) == 0;
    return n;
}

/* The first element of that name from number `from` on with exactly this text (NULL: any); -1: none. */
static inline int markup_find(const Markup *m, int from, const char *name, const char *text)
{
    for (int i = from; i < m->n; i++)
        if (strcmp(m->elements[i].name, name) == 0 && (!text || strcmp(m->elements[i].text, text) == 0)) return i;
    return -1;
}

/* A page that fetches and runs nothing: no element or attribute that could, no address except SVG's name. */
static inline void markup_expect_self_contained(const Markup *m)
{
    static const char *const elements[] = {"script", "link", "iframe", "img",  "image", "object", "embed",
                                           "use",    "a",    "base",   "form", "audio", "video"};
    static const char *const attributes[] = {"href", "src", "style", "action", "data"};
    static const char *const texts[] = {"http:", "https:", "url(", "@import", "javascript:"};
    for (int i = 0; i < m->n; i++) {
        const Element *e = &m->elements[i];
        for (size_t k = 0; k < sizeof elements / sizeof *elements; k++) assert_string_not_equal(e->name, elements[k]);
        for (size_t k = 0; k < sizeof attributes / sizeof *attributes; k++)
            if (markup_attribute(e, attributes[k])) fail_msg("<%s> has an attribute %s", e->name, attributes[k]);
        for (int a = 0; a < e->n; a++) {
            if (strcmp(e->keys[a], "xmlns") == 0 && strcmp(e->values[a], "http://www.w3.org/2000/svg") == 0) continue;
            if (strncmp(e->keys[a], "on", 2) == 0) fail_msg("<%s> has a handler %s", e->name, e->keys[a]);
            for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
                if (strstr(e->values[a], texts[k])) fail_msg("%s=\"%s\"", e->keys[a], e->values[a]);
        }
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            if (strcmp(e->name, "style") == 0 && strstr(e->text, texts[k])) fail_msg("style: %s", e->text);
    }
}
