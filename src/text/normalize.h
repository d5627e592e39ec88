/* Text to words, for text/ only. The steps are those of Hugging Face's Python BertTokenizer before WordPiece, in its
   order: lower-case each character outside special pieces; cut at the special pieces; drop control characters; cut at
   white space and around ideographs; compose (NFC); then, unless the word is a special piece, strip accents (NFD
   without category Mn) and cut at punctuation. */
#ifndef CAIRN_TEXT_NORMALIZE_H
#define CAIRN_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "text/text.h"

/* Most characters of a word; a longer word is [UNK]. */
#define WORD_MAX 100

/* The pieces that are never split, [PAD] [UNK] [CLS] [SEP] [MASK]. */
#define N_SPECIAL 5
typedef struct {
    const char *text;
    size_t len;
} SpecialPiece;
extern const SpecialPiece special_pieces[N_SPECIAL];

/* A word: UTF-8, never empty, not NUL-terminated, valid during the call. `chars` is its length in scalars. */
typedef void WordFn(void *context, const char *word, size_t len, size_t chars);

/* Calls each(context, …) for every word of `text`, in order. */
void text_words(const TokenizerOptions *options, const char *text, size_t len, WordFn *each, void *context);

#endif
