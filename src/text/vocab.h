/* Inside a Vocab, for text/ only: the pieces, and a trie over their bytes for longest match. */
#pragma once

#include "text/text.h"
#include "text/trie.h"

#define PIECE_MAX 1000 /* bytes; words have at most 100 characters */

struct Vocab {
    char *text;           /* all pieces, each with a NUL after it */
    size_t *start;        // (size + 1), where each piece begins in `text`
    int32_t pieces, size; /* lines; ids */
    TrieNode *nodes;
    int32_t continuation; /* the node after "##", or −1 */
    SpecialIds special;
    AddedToken *added;  // (n_added), ascending by id
    char **never_split; // (n_never_split)
    int n_added, n_never_split;
    Digest digest;
};

/* Appends the pieces as vocab.txt has them. */
void vocab_lines(const Vocab *vocab, Buf *out);
/* The five special pieces as added tokens. */
void vocab_add_special(Vocab *vocab);
void vocab_free_added(Vocab *vocab);
