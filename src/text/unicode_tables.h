/* Written by tests/golden/make_unicode_tables.py from Python 3.11.7, Unicode 14.0.0, tokenizers 0.23.3.
   Do not edit: the ids of every text depend on it. */
#pragma once

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
    UC_WORD = 512, /* \w of Python's re: letters, digits, other numbers, _; of the library with marks, but only decimal numbers */
    UC_WHITE = 1024, /* white space: str.isspace(), where str.split() splits; of the library White_Space */
};

typedef struct {
    uint16_t bits;
    uint8_t combining; /* canonical combining class */
} UnicodeRecord;

/* All records that some scalar has. */
extern const UnicodeRecord unicode_records[153];

/* Scalars from UNICODE_DENSE on: those from `first` up to the next row have the records by Python, by the library. */
#define UNICODE_DENSE  0x32400
#define UNICODE_BEYOND 11
typedef struct {
    uint32_t first;
    UnicodeRecord records[2];
} UnicodeBeyond;
extern const UnicodeBeyond unicode_beyond[UNICODE_BEYOND];

/* Lists of numbers as text. "#" to ">" count 0 to 27 and have a digit behind them; "@" to "~" without the backslash
   count 0 to 61 and end a number.

   unicode_runs: runs of the scalars below UNICODE_DENSE in Python: twice the length, and 1 where two records take
   turns; index of the first scalar's record, and of the second's where two take turns.
   unicode_differences: runs of the scalars whose record in the library is another: scalars since the last run, length,
   index of the record. */
#define UNICODE_DIFFERENCES 937
extern const char unicode_runs[], unicode_differences[];

/* Lower case of one character, if UC_LOWER is in its record: first, first + step … last become delta more. Only U+0130
   becomes two, i and U+0307, and is not here. As text: scalars since the last row's last; twice their number, and 1
   where step is 2; twice delta, or −1 − twice delta where that is negative. */
typedef struct {
    uint32_t first, last, step;
    int32_t delta;
} UnicodeLower;
#define UNICODE_LOWER 185
extern const char unicode_lower_text[]; /* ascending */

/* Canonical decompositions by one step, without Hangul. A `first` may decompose again, a `second` does not; `second` is
   0 where there is one scalar. Two whose `composed` is without UC_NFC compose, too. As text: the scalars since the last
   row's composed, first, second. */
typedef struct {
    uint32_t composed, first, second;
} UnicodePair;
#define UNICODE_PAIRS    2061
#define UNICODE_COMPOSED 941
extern const char unicode_pairs_text[]; /* ascending by composed */
/* clang-format on */
