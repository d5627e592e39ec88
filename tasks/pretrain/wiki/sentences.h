/* Sentence boundaries in running text, by rules: abbreviations, initials, acronyms, decimals, ellipses, quotes and
   brackets do not end a sentence where they do not. Made for English; scripts without capital letters and the full
   stops of other scripts are understood too. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_SENTENCES_H
#define CAIRN_TASKS_PRETRAIN_WIKI_SENTENCES_H

#include "base/base.h"

#define SENTENCE_MOST 10000 /* bytes of a line; what is longer is cut at a space */

/* `text` is one paragraph: UTF-8 without line ends, with single spaces. Appends each sentence and \n to `out`, and
   returns how many there were. What has no letter is left out. */
size_t sentences_append(const char *text, size_t len, Buf *out);
/* The same for text that is one sentence already: only length and letters are looked at. */
size_t sentences_append_one(const char *text, size_t len, Buf *out);

#endif
