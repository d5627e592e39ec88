/* Written by tests/golden/make_unicode_tables.py from Python 3.11.7, Unicode 14.0.0.
   Do not edit: the ids of every text rest on it. */
#ifndef CAIRN_TEXT_UNICODE_TABLES_H
#define CAIRN_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* clang-format off */
#define UNICODE_VERSION "Python 3.11.7, Unicode 14.0.0"

enum {
    UC_DROP = 1, /* removed before anything else: every C category but \t \n \r, and U+FFFD */
    UC_SPACE = 2, /* ends a word: \t \n \r, category Zs, and what Python's str.split() splits at */
    UC_PUNCT = 4, /* a word of its own: ASCII 33-47 58-64 91-96 123-126, and every P category */
    UC_CJK = 8, /* a word of its own: the CJK ideograph ranges that BERT names */
    UC_MARK = 16, /* category Mn: dropped where accents are stripped */
    UC_LOWER = 32, /* Python's str.lower() changes it */
    UC_DECOMPOSES = 64, /* NFD changes it */
    UC_NFC = 128, /* NFC may change it or what stands before it: a word without this bit is in NFC */
    UC_BRACKET = 256, /* '[': a special piece may begin here */
    UC_BEYOND = 512, /* in unicode_ascii only: not ASCII */
};

typedef struct {
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
} UnicodeRecord;

/* A scalar's record is unicode_records[unicode_blocks[unicode_index[c / 128]][c % 128]]. */
extern const UnicodeRecord unicode_records[];
extern const uint8_t unicode_blocks[][128];
extern const uint8_t unicode_index[8704];

/* Bits of every byte: those of the ASCII character, or UC_BEYOND. */
extern const uint16_t unicode_ascii[256];

/* keys (count) ascending; keys[i] becomes pool[starts[i]] … pool[starts[i + 1] − 1], at most 4. */
typedef struct {
    const uint32_t *keys;
    const uint16_t *starts; /* (count + 1) */
    const uint32_t *pool;
    int count;
} UnicodeMapping;

extern const UnicodeMapping unicode_lower;     /* str.lower() of one character */
extern const UnicodeMapping unicode_decompose; /* full canonical decomposition, without Hangul syllables */

/* Pairs that compose, ascending by (first, second), without Hangul. */
typedef struct {
    uint32_t first, second, composed;
} UnicodePair;

#define UNICODE_PAIRS 941
extern const UnicodePair unicode_pairs[UNICODE_PAIRS];
/* clang-format on */

#endif
