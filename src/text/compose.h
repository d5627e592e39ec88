/* Lists of Unicode scalars and their canonical forms (Unicode Standard Annex 15), within text only. */
#ifndef CAIRN_TEXT_COMPOSE_H
#define CAIRN_TEXT_COMPOSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "text/unicode_tables.h"

/* Zero-initialise; free with scalars_free. */
typedef struct {
    uint32_t *v; // (count)
    size_t count, cap;
} Scalars;

static inline void scalars_push(Scalars *s, uint32_t scalar)
{
    MEM_GROW(s->v, s->count, s->cap);
    s->v[s->count++] = scalar;
}

void scalars_free(Scalars *s);

static inline UnicodeRecord unicode_record(uint32_t scalar)
{
    return unicode_records[unicode_blocks[unicode_index[scalar >> 7]][scalar & 127]];
}

/* What `scalar` becomes; itself if the mapping does not name it. Returns how many. */
int unicode_map(const UnicodeMapping *mapping, uint32_t scalar, uint32_t out[4]);

/* Puts `s` in canonical decomposition or composition. `scratch` is overwritten. Linear in the length. */
void scalars_nfd(Scalars *s, Scalars *scratch);
void scalars_nfc(Scalars *s, Scalars *scratch);

#endif
