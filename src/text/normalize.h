/* Text to words, for text/ only: the steps of a BERT tokenizer before WordPiece.

   The tokenizers library cuts the text at the added tokens that are not normalised; drops control characters; puts
   blanks around ideographs; strips accents (NFD without category Mn); lower-cases; cuts at the normalised added tokens,
   at white space and around punctuation.

   Hugging Face's Python BertTokenizer lower-cases each character outside special tokens; cuts at the added tokens;
   drops control characters; cuts at white space and around ideographs; composes (NFC); then, unless the word is a
   special token or one of never_split, strips accents and cuts around punctuation. */
#pragma once

#include "text/text.h"
#include "text/trie.h"

/* Most characters of a word; a longer word is [UNK]. */
#define WORD_MAX 100

/* Bytes that may be read from the beginning of a word, whatever its length. */
#define WORD_READABLE 16

/* The special pieces, [PAD] [UNK] [CLS] [SEP] [MASK], without ids. */
#define N_SPECIAL 5
extern const AddedToken special_tokens[N_SPECIAL];

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

/* Texts to look for. */
typedef struct {
    TrieNode *nodes;
    bool begins[256]; /* the first bytes */
} Lookup;

/* What decides where a text is cut. */
typedef struct {
    TokenizerOptions options;
    const AddedToken *added;
    Lookup raw;    /* indices of `added`: tokens in the text as it is; for Python the special ones, not lower-cased */
    Lookup normal; /* those in the normalised text; for Python all, in the lower-cased text */
    Lookup whole;  /* for Python: 0 a special token, 1 a word of never_split */
    bool ascii;    /* no token begins with an ASCII character other than '[', and words are cut as usual */
    bool across;   /* a token depends on white space beside it or has some */
} TextRules;

/* Keeps pointers into `vocab`. NULL: the five special pieces, without ids. */
void text_rules_init(TextRules *r, TokenizerOptions options, const Vocab *vocab);
void text_rules_free(TextRules *r);

typedef struct {
    void *context;
    /* Words, in order, one or many at a time. */
    void (*words)(void *context, const Word *words, size_t n);
    /* A token that is not cut into pieces: its id, or −1 for a word of never_split. NULL: left out. */
    void (*token)(void *context, const char *text, size_t len, int32_t id);
} WordSink;

/* Hands all words and tokens of `text` to the sink. */
void text_words(const TextRules *rules, const char *text, size_t len, const WordSink *sink);
/* Appends the text in which normalised tokens are looked for. */
void text_normalised(const TextRules *rules, const char *text, size_t len, Buf *out);
