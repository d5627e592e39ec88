/* One <page> element of a MediaWiki dump (export schema 0.3 to 0.11), parsed by expat. Where the program was built
   without expat, page_parser_open fails. Each page is parsed as a document of its own, so that an error in one does not
   affect the next. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_PAGE_XML_H
#define CAIRN_TASKS_PRETRAIN_WIKI_PAGE_XML_H

#include <stdbool.h>

#include "base/base.h"

typedef struct {
    bool other; /* not in namespace 0; the rest was not read */
    bool redirect;
    Buf title, text; /* text of the last <revision>; NUL-terminated or NULL */
} Page;
void page_free(Page *page); /* takes a zeroed one */

typedef struct PageParser PageParser;
Status page_parser_open(PageParser **parser); /* E_FAIL: built without expat */
void page_parser_close(PageParser *parser);   /* takes NULL */

/* Overwrites `page` and reuses its buffers. E_FORMAT: not well-formed XML; the message has the reason, *at the byte of
   `xml`. */
Status page_parse(PageParser *parser, const char *xml, size_t len, Page *page, size_t *at);

/* Appends the names of the namespaces File, Category and Media, found in the text before the first <page>, to `names`:
   in the dump's language, in lower case, each followed by a comma. An incomplete header gives the names that it has. */
void page_parse_header(PageParser *parser, const char *xml, size_t len, Buf *names);

#endif
