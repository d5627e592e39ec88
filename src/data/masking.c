#include "data/masking.h"

Draws draws(uint64_t key, uint32_t c1, uint32_t c2, uint32_t c3)
{
    return (Draws){.key = key, .c1 = c1, .c2 = c2, .c3 = c3};
}

uint32_t draw_word(Draws *d)
{
    uint32_t i = d->next++;
    if (i % 4 == 0) d->words = philox4(d->key, i / 4, d->c1, d->c2, d->c3);
    return d->words.v[i % 4];
}

void masking_init(Masking *m, const Vocab *vocab, uint64_t seed, double fraction, int most, bool whole_words)
{
    SpecialIds special = vocab_special(vocab);
    *m = (Masking){seed, fraction, most, vocab_size(vocab), special.cls, special.sep, special.mask, NULL};
    if (!whole_words) return;
    m->continues = mem_alloc((size_t)m->vocab_size);
    for (int32_t id = 0; id < m->vocab_size; id++) {
        const char *piece = vocab_piece(vocab, id);
        m->continues[id] = piece[0] == '#' && piece[1] == '#' && piece[2] != '\0';
    }
}

void masking_free(Masking *m)
{
    free(m->continues);
    *m = (Masking){0};
}

/* The pieces of a word: the first and its continuations. */
static int word_length(const Masking *m, const int32_t *ids, int n, int start)
{
    int end = start + 1;
    while (m->continues && end < n && m->continues[ids[end]]) end++;
    return end - start;
}

int masking_draw(const Masking *m, uint64_t sample, uint32_t epoch, int32_t *ids, int n, int32_t *place, int32_t *label,
                 int32_t *scratch)
{
    Draws d = draws(m->seed ^ PHILOX_MASKING, epoch, (uint32_t)sample, (uint32_t)(sample >> 32));
    int words = 0, chosen = 0, wanted = (int)rint((double)n * m->fraction);
    if (wanted < 1) wanted = 1;
    if (wanted > m->most) wanted = m->most;
    for (int i = 0; i < n; i++) {
        if (ids[i] == m->cls || ids[i] == m->sep) continue;
        scratch[words++] = i;
        i += word_length(m, ids, n, i) - 1;
    }
    /* Words in random order, as many as fit: the first places of a shuffle. */
    for (int i = 0; i < words && chosen < wanted; i++) {
        int j = i + (int)draw_below(&d, (uint32_t)(words - i)), start = scratch[j];
        scratch[j] = scratch[i];
        int pieces = word_length(m, ids, n, start);
        if (chosen + pieces > wanted) continue;
        for (int k = 0; k < pieces; k++) place[chosen++] = start + k;
    }
    for (int i = 1; i < chosen; i++) {
        int32_t x = place[i];
        int j = i;
        for (; j > 0 && place[j - 1] > x; j--) place[j] = place[j - 1];
        place[j] = x;
    }
    for (int i = 0; i < chosen; i++) {
        uint32_t what = draw_below(&d, 10);
        label[i] = ids[place[i]];
        if (what < 8)
            ids[place[i]] = m->mask;
        else if (what == 9)
            ids[place[i]] = (int32_t)draw_below(&d, (uint32_t)m->vocab_size);
    }
    return chosen;
}
