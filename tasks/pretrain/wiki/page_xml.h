/* One <page> element of a MediaWiki dump (export schema 0.3 to 0.11), parsed by expat. Where the program was built
   without expat, page_parser_open says so. Every page is a document of its own: what is wrong with one does not reach
   the next. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_PAGE_XML_H
#define CAIRN_TASKS_PRETRAIN_WIKI_PAGE_XML_H

#include <stdbool.h>

#include "base/base.h"

typedef struct {
    bool other; /* not in namespace 0; nothing more was read */
    bool redirect;
    Buf title, text; /* text of the last <revision>; NUL-terminated or NULL */
} Page;
void page_free(Page *page); /* takes a zeroed one */

typedef struct PageParser PageParser;
Status page_parser_open(PageParser **parser); /* E_FAIL: built without expat */
void page_parser_close(PageParser *parser);   /* takes NULL */

/* `page` is filled anew; its buffers are used again. E_FORMAT: no well-formed XML; the message says what is wrong, and
 *at is the byte, from `xml` on, at which it was seen. */
Status page_parse(PageParser *parser, const char *xml, size_t len, Page *page, size_t *at);

/* What stands before the first <page>: the names of the namespaces File, Category and Media in the dump's language, in
   lower case with commas, appended to `names`. A header that is not whole gives what it has. */
void page_parse_header(PageParser *parser, const char *xml, size_t len, Buf *names);

#endif
