/* Text to words, for text/ only. The steps are those of Hugging Face's Python BertTokenizer before WordPiece, in its
   order: lower-case each character outside special pieces; cut at the special pieces; drop control characters; cut at
   white space and around ideographs; compose (NFC); then, unless the word is a special piece, strip accents (NFD
   without category Mn) and cut at punctuation. */
#ifndef CAIRN_TEXT_NORMALIZE_H
#define CAIRN_TEXT_NORMALIZE_H

#include <stddef.h>
#include <string.h>

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
/* The first bytes of a word, then zeros: WORD_READABLE at most. */
typedef struct {
    uint64_t low, high;
} WordKey;
static inline WordKey word_key(const Word *w)
{
    /* keep[8 + n] keeps the first n bytes of eight: none of them below, all beyond. */
    static const uint64_t keep[25] = {
        [9] = UINT64_MAX >> 56,  [10] = UINT64_MAX >> 48, [11] = UINT64_MAX >> 40, [12] = UINT64_MAX >> 32,
        [13] = UINT64_MAX >> 24, [14] = UINT64_MAX >> 16, [15] = UINT64_MAX >> 8,  [16 ... 24] = UINT64_MAX};
    size_t len = w->len < WORD_READABLE ? w->len : WORD_READABLE;
    WordKey k;
    memcpy(&k, w->text, sizeof k);
    k.low &= keep[len + 8];
    k.high &= keep[len];
    return k;
}
static inline size_t word_key_hash(WordKey k, int bits)
{
    return (size_t)(((k.low ^ (k.high << 29 | k.high >> 35)) * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - bits));
}

typedef void WordsFn(void *context, const Word *words, size_t n);

/* Calls each(context, …) for all words of `text`, in order, one or many at a time. */
void text_words(const TokenizerOptions *options, const char *text, size_t len, WordsFn *each, void *context);

#endif
