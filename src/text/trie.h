/* Byte strings with numbers, for text/ only: exact and longest match. */
#pragma once

#include "base/std.h"
#include <signal.h>

/* A double-array trie: node n's child by byte c is nodes[n].base + c if that node's parent is n. Node 0 is the root; at
   least 256 nodes follow every base. */
typedef struct {
    int32_t base, parent; /* parent −1: not in use */
    int32_t id;           /* of the key that ends here, or −1 */
} TrieNode;

typedef struct {
    const char *text;
    size_t len;
    int32_t id;
} TrieKey;

/* Ascending by text, then by id. */
void trie_sort(TrieKey *keys, size_t count);
/* Builds the trie from distinct keys in that order; a part of it once *stop (may be NULL) is not 0. The caller frees.
 */
TrieNode *trie_build(const TrieKey *keys, size_t count, const volatile sig_atomic_t *stop);
/* The node that `text` leads to from `node` ≥ 0, or −1. */
int32_t trie_walk(const TrieNode *nodes, int32_t node, const char *text, size_t len);

/* Returns the id of the longest key that `text` begins with, read from node `from`, and its length in *used; −1 if none
   matches. */
static inline int32_t trie_longest(const TrieNode *nodes, int32_t from, const char *text, size_t len, size_t *used)
{
    int32_t found = -1;
    for (size_t i = 0; i < len; i++) {
        int32_t next = nodes[from].base + (uint8_t)text[i];
        if (nodes[next].parent != from) break;
        from = next;
        if (nodes[from].id >= 0) {
            found = nodes[from].id;
            *used = i + 1;
        }
    }
    return found;
}
