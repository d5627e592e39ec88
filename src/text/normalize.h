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

/* Bytes that may be read from the beginning of a word, whatever its length. */
#define WORD_READABLE 16

/* The pieces that are never split, [PAD] [UNK] [CLS] [SEP] [MASK]. */
#define N_SPECIAL 5
typedef struct {
    char text[WORD_READABLE];
    size_t len;
} SpecialPiece;
extern const SpecialPiece special_pieces[N_SPECIAL];

/* UTF-8, never empty, without NUL, not NUL-terminated, valid during the call. */
typedef struct {
    const char *text;
    uint32_t len, chars; /* bytes, scalars */
} Word;
typedef void WordsFn(void *context, const Word *words, size_t n);

/* Calls each(context, …) for all words of `text`, in order, one or many at a time. */
void text_words(const TokenizerOptions *options, const char *text, size_t len, WordsFn *each, void *context);

#endif
