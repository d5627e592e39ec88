/* Merging of vocabulary training. Words are lists of symbols, at first their characters. Each step merges the most
   frequent pair of neighbours into one symbol. Pair counts are updated, not recounted: a merge visits only the words
   that hold the pair. */
#pragma once

#include "text/string_table.h"
#include "text/text.h"

typedef struct {
    int32_t a, b;    /* symbols */
    int64_t count;   /* of its occurrences, now */
    int64_t queued;  /* count of its newest entry in the queue, 0: none */
    uint32_t *words; // (n_words), every word that holds it and maybe some that no longer do
    size_t n_words, words_cap;
    bool touched;
} MergePair;

typedef struct {
    int64_t count;
    size_t pair;
} MergeEntry;

typedef struct {
    const VocabTraining *options;
    StringTable symbols; /* special pieces, characters, and the results of merges in their order */
    int *chars;          // (symbols.count), length without ##
    size_t chars_cap;
    int32_t *text;   // symbols of all words, word after word
    size_t *start;   // (n_words)
    uint8_t *length; // (n_words), symbols of a word; never more than WORD_MAX
    int64_t *counts; // (n_words)
    size_t *word;    // (n_words), the caller's number of the word
    size_t n_words;
    MergePair *pairs; // (n_pairs)
    size_t n_pairs, pairs_cap;
    uint32_t *slots; // (n_slots), index of a pair + 1, 0: empty; at most half are taken
    size_t n_slots;
    MergeEntry *queue; // (n_queue), binary heap
    size_t n_queue, queue_cap;
    size_t *touched; // pairs whose count rose in this merge
    size_t n_touched, touched_cap;
} Merging;

/* The symbol of a piece of `chars` characters, without ##; a new one if it is not known. */
int32_t merging_add_symbol(Merging *m, const char *text, size_t len, int chars);
/* Merges pairs of the words as `text`, `start`, `length` and `counts` have them now, until there are `size` symbols or
   no pair is left. Of pairs with equal counts the one with older symbols comes first. */
void merging_run(Merging *m, size_t size);
void merging_free(Merging *m);
