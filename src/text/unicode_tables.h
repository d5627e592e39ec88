/* Written by tests/golden/make_unicode_tables.py from Python 3.11.7, Unicode 14.0.0, tokenizers 0.23.3.
   Do not edit: the ids of every text depend on it. */
#ifndef CAIRN_TEXT_UNICODE_TABLES_H
#define CAIRN_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* clang-format off */
enum {
    UC_DROP = 1, /* removed before anything else: categories Cc Cf Co but \t \n \r, and U+FFFD */
    UC_SPACE = 2, /* ends a word: \t \n \r, category Zs, and what Python's str.split() splits at */
    UC_PUNCT = 4, /* a word of its own: ASCII 33-47 58-64 91-96 123-126, and every P category */
    UC_CJK = 8, /* a word of its own: the CJK ideograph ranges that BERT names */
    UC_MARK = 16, /* category Mn: dropped where accents are stripped */
    UC_LOWER = 32, /* Python's str.lower() changes it */
    UC_DECOMPOSES = 64, /* NFD changes it */
    UC_NFC = 128, /* NFC may change it or the scalar before it, or its place among marks; a word without this bit is in NFC */
    UC_UNASSIGNED = 256, /* category Cn: removed, too, by Python's tokenizer */
};

typedef struct {
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
} UnicodeRecord;

/* A run of scalars, start << 8 | kind, ascending. Its first scalar, the third, … have the record unicode_kinds[kind][0],
   the others [1]. Few runs begin at UNICODE_DENSE or above. */
#define UNICODE_KINDS 123
#define UNICODE_RUNS  2714
#define UNICODE_DENSE 0x31400
extern const UnicodeRecord unicode_kinds[UNICODE_KINDS][2];
extern const uint32_t unicode_runs[UNICODE_RUNS];

/* The scalars, all below UNICODE_DENSE, whose record in the tokenizers library is unicode_kinds[kind][0], ascending. */
typedef struct {
    uint32_t first, last;
    uint8_t kind;
} UnicodeDifference;
#define UNICODE_DIFFERENCES 138
extern const UnicodeDifference unicode_differences[UNICODE_DIFFERENCES];

/* Bits of every byte: those of the ASCII character, else 0. */
extern const uint16_t unicode_ascii[256];

/* Lower case of one character, if UC_LOWER is in its record: first, first + step … last become delta more. Only U+0130
   becomes two, i and U+0307, and is not here. */
typedef struct {
    uint32_t first, last, step;
    int32_t delta;
} UnicodeLower;
#define UNICODE_LOWER 185
extern const UnicodeLower unicode_lower[UNICODE_LOWER]; /* ascending */

/* Canonical decompositions by one step, without Hangul. A `first` may decompose again, a `second` does not. The first
   UNICODE_COMPOSED pairs compose, too, and are ascending by (first, second). */
typedef struct {
    uint32_t first, second, composed;
} UnicodePair;
#define UNICODE_PAIRS    1026
#define UNICODE_COMPOSED 941
extern const UnicodePair unicode_pairs[UNICODE_PAIRS];
extern const uint16_t unicode_by_composed[UNICODE_PAIRS]; /* indices of the pairs, ascending by composed */

/* Scalars with a decomposition to one other: {from, to}, ascending. */
#define UNICODE_SINGLE 1035
extern const uint32_t unicode_single[UNICODE_SINGLE][2];

/* Beyond ASCII, what \w of Python's re matches: {first, last}, ascending. */
#define UNICODE_WORDS 730
extern const uint32_t unicode_words[UNICODE_WORDS][2];

/* Beyond ASCII, where the tokenizers library's \w says the opposite: {first, last}, ascending. */
#define UNICODE_OTHER_WORDS 419
extern const uint32_t unicode_other_words[UNICODE_OTHER_WORDS][2];
/* clang-format on */

#endif
