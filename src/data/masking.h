/* The masked words of a sequence, a function of seed, sample and epoch (docs/contracts.md 4). BERT's rule: of the
   tokens that are not [CLS] or [SEP], round(fraction · length), at least 1 and at most `most`, are chosen. Of these 80
   % become [MASK], 10 % stay, 10 % become any piece of the vocabulary. With whole words, all pieces of a word or none.
 */
#pragma once

#include "text/text.h"

typedef struct {
    uint64_t seed;
    double fraction;
    int most;
    int32_t vocab_size; /* random words are below this */
    int32_t cls, sep, mask;
    uint8_t *continues; /* (vocab_size) pieces that continue a word, "##…"; NULL: each piece is a word */
} Masking;

void masking_init(Masking *m, const Vocab *vocab, uint64_t seed, double fraction, int most, bool whole_words);
void masking_free(Masking *m); /* takes a zeroed one */
/* Masks ids in place and returns the number of masks. `place` is ascending. */
int masking_draw(const Masking *m, uint64_t sample, uint32_t epoch, int32_t *ids, int n, // (n)
                 int32_t *place, int32_t *label, int32_t *scratch);                      // (most), (most), (n)

/* A stream of draws of one Philox key: word i of the stream that three counters name. */
typedef struct {
    uint64_t key;
    uint32_t next, c1, c2, c3;
    Philox4 words;
} Draws;
Draws draws(uint64_t key, uint32_t c1, uint32_t c2, uint32_t c3);
uint32_t draw_word(Draws *d);
/* Uniform in 0 … n − 1, n ≥ 1. */
static inline uint32_t draw_below(Draws *d, uint32_t n) { return (uint32_t)((uint64_t)draw_word(d) * n >> 32); }
static inline bool draw_chance(Draws *d, double p) { return (double)draw_word(d) < p * 0x1p32; }
