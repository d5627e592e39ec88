/* Facts about Unicode scalars, and canonical forms of lists of them (Unicode Standard Annex 15). For text/ and the wiki
   reader. */
#pragma once

#include <stdatomic.h>

#include "base/mem.h"
#include "text/unicode_tables.h"

/* Zero-initialise; free with scalars_free. */
typedef struct {
    uint32_t *v; // (count)
    size_t count, cap;
} Scalars;

static inline void scalars_push(Scalars *s, uint32_t scalar) { MEM_PUSH(s->v, s->count, s->cap, scalar); }

void scalars_free(Scalars *s);

/* Whose facts: Python's unicodedata, or Hugging Face's tokenizers library. */
typedef enum { UNICODE_PYTHON, UNICODE_LIBRARY } UnicodeSource;

/* Index of the record of each scalar below UNICODE_DENSE, made on first use. */
extern uint8_t unicode_dense[2][UNICODE_DENSE];
extern atomic_bool unicode_dense_ready;
UnicodeRecord unicode_record_slow(UnicodeSource source, uint32_t scalar);

/* Bits of every byte, from the first unicode_record on: those of the ASCII character, else 0. */
extern uint16_t unicode_ascii[256];

/* The record of a value up to U+10FFFF. */
static inline UnicodeRecord unicode_record_of(UnicodeSource source, uint32_t scalar)
{
    if (scalar >= UNICODE_DENSE || !atomic_load_explicit(&unicode_dense_ready, memory_order_acquire))
        return unicode_record_slow(source, scalar);
    return unicode_records[unicode_dense[source][scalar]];
}
static inline UnicodeRecord unicode_record(uint32_t scalar) { return unicode_record_of(UNICODE_PYTHON, scalar); }

/* Lower case of one character whose record has UC_LOWER: 1 or 2 scalars. Returns how many. */
int unicode_lowered(uint32_t scalar, uint32_t out[2]);

/* Convert `s` to canonical decomposition or composition (by Python's facts). They overwrite `scratch`. Linear in the
   length. */
void scalars_nfd(UnicodeSource source, Scalars *s, Scalars *scratch);
void scalars_nfc(Scalars *s, Scalars *scratch);
