/* MediaWiki's markup to plain text, without expanding anything.

   Left out: templates (except a few that replace words, like {{lang|fr|mot}} and {{convert|5|km}}), tables, references,
   comments, galleries and the like, files and images with their captions, categories, links to other languages,
   headings, list items that are not prose, preformatted text, the sections that hold links and sources, magic words.
   Kept: the words of links, of emphasis, of HTML's inline tags, of nowiki, of the first of language variants.
   A sentence is left out where what was removed gave words ("such as .", "born on in Ulm"), by its place (see
   wikitext_mend.c), or where a template shows a number that cannot be given (wikitext_numbers.c).
   <math> of a few letters is kept, other formulas become the word "formula". Gaps are closed: "( )" is removed, and so
   is a blank before a comma.

   Paragraphs, list items and sections end sentences. Time and memory are linear in the text, however its brackets are
   nested. A construct that is never closed loses only its brackets. */
#pragma once

#include "base/base.h"

/* Scratch memory of one thread, reused from article to article. */
typedef struct Wikitext Wikitext;
Wikitext *wikitext_new(void);
void wikitext_free(Wikitext *w); /* takes NULL */
/* Namespaces whose links are left out, besides File, Image, Media and Category: "Datei,Kategorie". Lower case, with
   commas; NULL: none. Must live as long as `w`. */
void wikitext_set_namespaces(Wikitext *w, const char *names);

/* Appends the sentences of an article, one per line, to `out`, and returns how many there were. `text` is valid UTF-8
   of less than 2 GiB. */
size_t wikitext_sentences(Wikitext *w, const char *text, size_t len, Buf *out);

/* Sentences of the last article that were left out because of a gap. */
size_t wikitext_dropped(const Wikitext *w);
/* Whether text has something like markup in it: brackets, bars, tags, entities. */
bool wikitext_has_markup(const char *text, size_t len);

/* One paragraph of plain text that may have entities (WikiExtractor's), runs of blanks and line ends. */
size_t wikitext_plain(Wikitext *w, const char *text, size_t len, bool one_sentence, Buf *out);
