/* Inside a Vocab, for text/ only: the pieces, and a trie over their bytes for longest match. */
#ifndef CAIRN_TEXT_VOCAB_H
#define CAIRN_TEXT_VOCAB_H

#include "text/text.h"

/* A double-array trie: node n's child by byte c is nodes[n].base + c if that node's parent is n. */
typedef struct {
    int32_t base, parent; /* parent −1: not in use */
    int32_t id;           /* of the piece that ends here, or −1 */
} TrieNode;

struct Vocab {
    char *text;           /* all pieces, each with a NUL after it */
    size_t *start;        // (size + 1), where each piece begins in `text`
    int32_t pieces, size; /* lines; ids */
    TrieNode *nodes;      /* node 0 is the root; at least 256 nodes follow every base */
    int32_t continuation; /* the node after "##", or −1 */
    SpecialIds special;
    AddedToken *added;  // (n_added), ascending by id
    char **never_split; // (n_never_split)
    int n_added, n_never_split;
    Digest digest;
};

/* The five special pieces as added tokens. */
void vocab_add_special(Vocab *vocab);
void vocab_free_added(Vocab *vocab);

/* Returns the id of the longest piece that `text` begins with, read from node `from`, and its length in *used; −1 if
   none matches. */
static inline int32_t vocab_longest(const Vocab *vocab, int32_t from, const char *text, size_t len, size_t *used)
{
    int32_t found = -1;
    for (size_t i = 0; i < len; i++) {
        int32_t next = vocab->nodes[from].base + (uint8_t)text[i];
        if (vocab->nodes[next].parent != from) break;
        from = next;
        if (vocab->nodes[from].id >= 0) {
            found = vocab->nodes[from].id;
            *used = i + 1;
        }
    }
    return found;
}

#endif
