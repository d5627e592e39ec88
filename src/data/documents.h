/* Documents as token ids, and the pairs of segments that BERT is pretrained on.

   Pairs follow BERT's authors. Sentences of a document are gathered until they fill the target length (max_length − 3;
   with short_prob, drawn once per document, a random shorter one). A random number of them, at least one, is segment A.
   With probability ½, and always where there is only one sentence, B comes from another document, from a random
   sentence on, and the next pair uses the other gathered sentences; else B is the rest. A pair that is too long loses
   tokens one by one from its longer segment, at the front or the end at random. Label 0: B follows A; 1: random.
   Without another document B always follows A, and a document of one sentence has no pair. (The authors' script then
   takes a random B of the same document, with label 0.)

   Without pairs a sequence is as many sentences of a document as fit; a longer sentence is cut into several. */
#pragma once

#include "data/masking.h"
#include "data/sequences.h"

/* Sentence s of all is ids[token[s] .. token[s + 1]); document d has sentences first[d] .. first[d + 1].
   Zero-initialise. No document is without sentences, no sentence without tokens. */
typedef struct {
    int64_t count, sentences, tokens;
    uint64_t *number; // (count) the document's in the whole corpus, below 2^40: what its draws depend on
    int64_t *first;   // (count + 1)
    int64_t *token;   // (sentences + 1)
    int32_t *ids;     // (tokens)
    int64_t cap_count, cap_sentences, cap_tokens;
} Documents;

void documents_clear(Documents *d); /* keeps the memory */
void documents_free(Documents *d);  /* takes a zeroed one */
/* Appends a document without sentences. */
void documents_begin(Documents *d, uint64_t number);
/* Appends a sentence of n tokens to the last document. The caller fills it. */
int32_t *documents_sentence(Documents *d, int64_t n);

typedef struct {
    int max_length; /* at least 8 */
    double short_prob;
    uint64_t seed;
    int32_t cls, sep;
    bool alone; /* sequences of one text, [CLS] A [SEP], for masked words without next sentences */
} PairOptions;

/* Sentences [a, a_end) of `document` and [b, b_end) of `other`, and their tokens after cutting. */
typedef struct {
    int64_t document, other;
    int64_t a, a_end, b, b_end;                         /* sentences of all */
    int64_t a_token, a_token_end, b_token, b_token_end; /* in ids */
    int label;                                          /* −1: no pair, B is empty */
} Pair;

/* The pairs of one document, in order. `round` counts the uses of the document (--dupe-factor); each has other pairs.
 */
void documents_pairs(const Documents *d, int64_t document, uint32_t round, const PairOptions *o,
                     void (*take)(void *arg, const Pair *pair), void *arg);
/* The sequences of all documents, [CLS] A [SEP] B [SEP] or, without pairs, [CLS] A [SEP]. `masking`, if not NULL, masks
   them. */
void documents_sequences(const Documents *d, uint32_t round, const PairOptions *o, const Masking *masking,
                         Sequences *out);
