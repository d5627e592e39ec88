/* In place of with_expat/page_xml.c where expat was not found. */
#include "tasks/pretrain/wiki/page_xml.h"

Status page_parser_open(PageParser **parser)
{
    *parser = NULL;
    return fail(E_FAIL, "this program was built without expat, which reads XML dumps; install libexpat1-dev, then "
                        "configure and build again");
}

void page_parser_close(PageParser *parser) { (void)parser; }

void page_free(Page *page) { (void)page; }

void namespaces_free(Namespaces *n) { (void)n; }

Status page_parse(PageParser *parser, const char *xml, size_t len, const Namespaces *names, Page *page, size_t *at)
{
    (void)parser, (void)xml, (void)len, (void)names, (void)page, (void)at;
    return fail(E_FAIL, "built without expat");
}

void page_parse_header(PageParser *parser, const char *xml, size_t len, Namespaces *names)
{
    (void)parser, (void)xml, (void)len, (void)names;
}
