/* Added tokens in a text, for text/ only. */
#pragma once

#include "text/compose.h"
#include "text/normalize.h"

/* Index of the longest text in `l` that `p` < end begins with, and its length; −1 without one. */
static inline int32_t lookup_longest(const Lookup *l, const char *p, const char *end, size_t *len)
{
    return l->begins[(uint8_t)*p] ? trie_longest(l->nodes, 0, p, (size_t)(end - p), len) : -1;
}

/* Number of `text`, which is not empty, in `l`, or −1. */
static inline int32_t lookup_exactly(const Lookup *l, const char *text, size_t len)
{
    int32_t node = l->begins[(uint8_t)*text] ? trie_walk(l->nodes, 0, text, len) : -1;
    return node < 0 ? -1 : l->nodes[node].id;
}

/* A part of a text: a token, or what lies between two. */
typedef struct {
    const char *start, *stop;
    const AddedToken *token; /* NULL: text */
} Part;

typedef struct {
    Part *v; // (count)
    size_t count, cap;
} Parts;

/* Replace *parts by those of a text: leftmost first, and the longest there. */
void parts_library(const TextRules *r, const Lookup *l, const char *text, const char *end, Parts *parts);
void parts_python(const TextRules *r, const char *text, const char *end, Parts *parts);

/* Appends the lower case of each character, by Python's facts, outside the texts in `kept`. */
void text_lowered(const Lookup *kept, const char *p, const char *end, Buf *out);
