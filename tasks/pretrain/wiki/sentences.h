/* Sentence boundaries in running text, by rules for abbreviations, initials, acronyms, decimals, ellipses, quotes and
   brackets. Made for English; scripts without capital letters, and other scripts' full stops, work too. */
#pragma once

#include "base/base.h"

#define SENTENCE_MOST 10000 /* bytes of a line; longer ones are cut at a space */

/* `text` is one paragraph: UTF-8 without line ends, with single spaces. Appends each sentence and \n to `out`, and
   returns their number. Sentences without a letter are left out. */
size_t sentences_append(const char *text, size_t len, Buf *out);
/* Appends a text that is one sentence already: only checks length and letters. */
size_t sentences_append_one(const char *text, size_t len, Buf *out);

/* Stands for words that are missing, in the text and its sentences. A sentence may begin with it. */
#define SENTENCE_GAP '\1'
/* Whether a sentence can begin with this character. Letters of scripts without capitals can begin one. */
bool sentences_may_begin(uint32_t c);
