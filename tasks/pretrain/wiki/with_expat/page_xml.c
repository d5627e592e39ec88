#include "tasks/pretrain/wiki/page_xml.h"

#include <expat.h>

#if XML_MAJOR_VERSION == 2 && XML_MINOR_VERSION < 9 /* 2.9 deprecates the name without 64 */
#    define XML_GetCurrentByteIndex64 XML_GetCurrentByteIndex
#endif

typedef enum { FIELD_NONE, FIELD_TITLE, FIELD_NS, FIELD_TEXT, FIELD_NAMESPACE } Field;

struct PageParser {
    XML_Parser xml;
    Page *page;
    const Namespaces *names;
    Namespaces *header; /* being read; else NULL */
    bool links;         /* the namespace being read is one whose links are left out */
    Buf name;           /* of that namespace */
    Field field;
    int depth;
    char ns[16]; /* digits of <ns> */
    size_t ns_len;
};

static void append(Buf *b, const char *data, size_t len)
{
    if (len < b->cap && b->len < b->cap - len) { /* expat gives many short pieces, most of which fit */
        memcpy(b->data + b->len, data, len);
        b->data[b->len += len] = '\0';
    } else {
        buf_append(b, data, len);
    }
}

static void header_start(PageParser *p, const char *name, const XML_Char **attributes)
{
    if (strcmp(name, "namespace") != 0) return;
    for (; attributes[0]; attributes += 2) {
        const char *key = attributes[1];
        if (strcmp(attributes[0], "key") != 0 || strcmp(key, "0") == 0) continue;
        p->field = FIELD_NAMESPACE;
        p->links = strcmp(key, "6") == 0 || strcmp(key, "14") == 0 || strcmp(key, "-2") == 0;
        p->name.len = 0;
    }
}

/* Lowers ASCII only, like the text with which the names are compared. */
static void append_lower(Buf *b, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
        if (c != ',') buf_append(b, &c, 1);
    }
}

static void header_end(PageParser *p)
{
    if (p->field != FIELD_NAMESPACE || p->name.len == 0) return;
    Namespaces *n = p->header;
    buf_puts(&p->name, ",");
    if (n->other.len == 0) buf_puts(&n->other, ",");
    buf_append(&n->other, p->name.data, p->name.len);
    if (p->links) buf_append(&n->links, p->name.data, p->name.len);
}

/* Whether a page without <ns> is in another namespace: "Talk:River", but not "2001: A Walk". */
static bool has_prefix(PageParser *p, const Buf *title)
{
    const char *colon = title->len ? memchr(title->data, ':', title->len) : NULL;
    if (!colon || colon == title->data) return false;
    p->name.len = 0;
    buf_puts(&p->name, ",");
    append_lower(&p->name, title->data, (size_t)(colon - title->data));
    buf_puts(&p->name, ",");
    return p->names->other.len && memmem(p->names->other.data, p->names->other.len, p->name.data, p->name.len);
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    PageParser *p = arg;
    p->depth++;
    p->field = FIELD_NONE;
    if (p->header) {
        header_start(p, name, attributes);
    } else if (p->depth == 2) { /* page/… */
        if (strcmp(name, "title") == 0) {
            p->field = FIELD_TITLE;
        } else if (strcmp(name, "ns") == 0) {
            p->field = FIELD_NS;
            p->ns_len = 0;
        } else if (strcmp(name, "redirect") == 0) {
            p->page->redirect = true;
            XML_StopParser(p->xml, XML_FALSE);
        } else if (strcmp(name, "revision") == 0 && p->ns_len == 0 && has_prefix(p, &p->page->title)) {
            p->page->other = true;
            XML_StopParser(p->xml, XML_FALSE);
        }
    } else if (p->depth == 3 && strcmp(name, "text") == 0) { /* page/revision/text */
        p->field = FIELD_TEXT;
        p->page->text.len = 0;
    }
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    PageParser *p = arg;
    (void)name;
    p->depth--;
    if (p->header) header_end(p);
    if (p->field == FIELD_NS) {
        p->ns[p->ns_len] = '\0';
        if (strcmp(p->ns, "0") != 0) {
            p->page->other = true;
            XML_StopParser(p->xml, XML_FALSE);
        }
    }
    p->field = FIELD_NONE;
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int len)
{
    PageParser *p = arg;
    size_t n = (size_t)len;
    switch (p->field) {
    case FIELD_TEXT:
        append(&p->page->text, text, n);
        break;
    case FIELD_TITLE:
        append(&p->page->title, text, n);
        break;
    case FIELD_NS:
        if (n > sizeof p->ns - 1 - p->ns_len) n = sizeof p->ns - 1 - p->ns_len;
        memcpy(p->ns + p->ns_len, text, n);
        p->ns_len += n;
        break;
    case FIELD_NAMESPACE:
        append_lower(&p->name, text, n);
        break;
    default:
        break;
    }
}

/* A dump has no document type; without one there are no entities to expand. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public,
                               int internal)
{
    PageParser *p = arg;
    (void)name, (void)system, (void)public, (void)internal;
    XML_StopParser(p->xml, XML_FALSE);
}

Status page_parser_open(PageParser **parser)
{
    PageParser *p = mem_alloc(sizeof *p);
    p->xml = XML_ParserCreate("UTF-8");
    if (!p->xml) mem_exhausted(sizeof *p);
    *parser = p;
    return OK;
}

void page_parser_close(PageParser *parser)
{
    if (!parser) return;
    buf_free(&parser->name);
    XML_ParserFree(parser->xml);
    free(parser);
}

void namespaces_free(Namespaces *n) { BUF_FREE(&n->links, &n->other); }

void page_free(Page *page) { BUF_FREE(&page->title, &page->text); }

static void reset_parser(PageParser *p)
{
    XML_ParserReset(p->xml, "UTF-8");
    XML_SetUserData(p->xml, p);
    XML_SetElementHandler(p->xml, on_start, on_end);
    XML_SetCharacterDataHandler(p->xml, on_text);
    XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
    p->field = FIELD_NONE;
    p->depth = 0;
}

/* MediaWiki before 1.16 did not mark redirects in the XML. In dumps without <ns> the word is of any language: a
   redirect is a # with a word directly behind it, and a link. */
static bool is_redirect(const Buf *text, bool any_word)
{
    const char *p = text->data, *end = p + text->len;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t')) p++;
    if (end - p >= 9 && strncasecmp(p, "#REDIRECT", 9) == 0) return true;
    const char *word = p + 1;
    if (!any_word || p == end || *p != '#') return false;
    for (p = word; p < end && !strchr(" \n\t:#*[]{}<>|", *p);) p++;
    if (p - word < 3) return false;
    while (p < end && (*p == ' ' || *p == '\n' || *p == ':')) p++;
    return end - p >= 2 && memcmp(p, "[[", 2) == 0;
}

Status page_parse(PageParser *parser, const char *xml, size_t len, const Namespaces *names, Page *page, size_t *at)
{
    page->other = page->redirect = false;
    page->title.len = page->text.len = 0;
    reset_parser(parser);
    parser->page = page;
    parser->names = names;
    parser->header = NULL;
    parser->ns_len = 0;
    CHECK(len < (size_t)1 << 31, "a page of %zu bytes", len);
    if (XML_Parse(parser->xml, xml, (int)len, XML_TRUE) != XML_STATUS_OK && !page->other && !page->redirect) {
        int64_t offset = XML_GetCurrentByteIndex64(parser->xml);
        *at = offset > 0 ? (size_t)offset : 0;
        return fail(E_FORMAT, "%s", XML_ErrorString(XML_GetErrorCode(parser->xml)));
    }
    if (page->text.len > 0 && is_redirect(&page->text, parser->ns_len == 0)) page->redirect = true;
    return OK;
}

void page_parse_header(PageParser *parser, const char *xml, size_t len, Namespaces *names)
{
    static const char usual[] =
        ",media,special,talk,user,user talk,wikipedia,wikipedia talk,project,project talk,image,"
        "image talk,file,file talk,mediawiki,mediawiki talk,template,template talk,help,help "
        "talk,category,category talk,portal,portal talk,";
    reset_parser(parser);
    parser->header = names;
    XML_Parse(parser->xml, xml, len < (size_t)1 << 30 ? (int)len : 0, XML_FALSE);
    parser->header = NULL;
    names->given = names->other.len > 0;
    if (!names->given) buf_puts(&names->other, usual);
    buf_puts(&names->links, "");
}
