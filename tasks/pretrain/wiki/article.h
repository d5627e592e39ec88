/* Converts a batch of units to text: each article's sentences, one per line, and an empty line after each article. */
#pragma once

#include "base/base.h"
#include "tasks/pretrain/wiki/cutter.h"
#include "tasks/pretrain/wiki/page_xml.h"

/* X(field, meaning) */
#define WIKI_COUNT_LIST(X)                                                                                             \
    X(pages, "pages of dumps, or documents")                                                                           \
    X(redirects, "pages that only point to another")                                                                   \
    X(other_namespaces, "pages of other namespaces")                                                                   \
    X(empty, "articles without a sentence")                                                                            \
    X(articles, "articles written")                                                                                    \
    X(sentences, "lines written")                                                                                      \
    X(gaps, "sentences left out: the words of a template are missing")                                                 \
    X(with_markup, "articles with something like markup in their text")                                                \
    X(broken, "articles left out: not well-formed, not UTF-8, or never closed")                                        \
    X(too_large, "articles left out: larger than --max-article")                                                       \
    X(lost, "places at which a file was damaged or cut")                                                               \
    X(read_bytes, "bytes of unpacked text read")                                                                       \
    X(text_bytes, "bytes written")

typedef struct {
#define X(field, what) int64_t field;
    WIKI_COUNT_LIST(X)
#undef X
} WikiCounts;
void wiki_counts_add(WikiCounts *sum, const WikiCounts *more);

/* The working memory of one thread. */
typedef struct ArticleMaker ArticleMaker;
ArticleMaker *article_maker_new(void);        /* without expat it must get no FORM_PAGES */
void article_maker_free(ArticleMaker *maker); /* takes NULL */

/* Appends the text of a batch to `text`, and a line for each unit left out ("page 'X' at byte 123: why") to `problems`.
   `counts` are of this batch alone, without read_bytes and lost. `names`: of the dump; NULL for other text. The result
   depends on the arguments alone. */
void articles_make(ArticleMaker *maker, const Batch *batch, const Namespaces *names, Buf *text, Buf *problems,
                   WikiCounts *counts);
