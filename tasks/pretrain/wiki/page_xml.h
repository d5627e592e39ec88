/* One <page> element of a MediaWiki dump (export schema 0.3 to 0.11), parsed by expat. Where the program was built
   without expat, page_parser_open fails. Each page is parsed as a document of its own, so that an error in one does not
   affect the next. */
#pragma once

#include "base/base.h"

typedef struct {
    bool other; /* not in namespace 0; the rest was not read */
    bool redirect;
    Buf title, text; /* text of the last <revision>; NUL-terminated or NULL */
} Page;
void page_free(Page *page); /* takes a zeroed one */

/* Names of a dump's namespaces, from its header: in the dump's language, ASCII in lower case, with a comma before and
   after each. */
typedef struct {
    Buf links; /* File, Category and Media, whose links are left out; without the first comma */
    Buf other; /* all but that of articles; the usual English ones where the header has none */
    bool given;
} Namespaces;
void namespaces_free(Namespaces *n); /* takes a zeroed one */

typedef struct PageParser PageParser;
Status page_parser_open(PageParser **parser); /* E_FAIL: built without expat */
void page_parser_close(PageParser *parser);   /* takes NULL */

/* Overwrites `page` and reuses its buffers. Where it has no <ns> (schema 0.3 to 0.5) the title's prefix and the names
   say whether it is an article. E_FORMAT: not well-formed XML; the message has the reason, *at the byte of `xml`. */
Status page_parse(PageParser *parser, const char *xml, size_t len, const Namespaces *names, Page *page, size_t *at);

/* Reads the text before the first <page>. An incomplete header gives the names that it has. `names` is zeroed. */
void page_parse_header(PageParser *parser, const char *xml, size_t len, Namespaces *names);
