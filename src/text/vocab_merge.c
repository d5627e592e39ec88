#include "text/vocab_merge.h"

#include "text/normalize.h"

int32_t merging_add_symbol(Merging *m, const char *text, size_t len, int chars)
{
    size_t i = string_table_add(&m->symbols, text, len);
    MEM_GROW(m->chars, i, m->chars_cap);
    m->chars[i] = chars;
    return (int32_t)i;
}

static uint32_t *pair_slot(const Merging *m, int32_t a, int32_t b)
{
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t at = (h >> 20) & (m->n_slots - 1);; at = (at + 1) & (m->n_slots - 1)) {
        uint32_t *slot = &m->slots[at];
        if (!*slot || (m->pairs[*slot - 1].a == a && m->pairs[*slot - 1].b == b)) return slot;
    }
}

static size_t find_pair(Merging *m, int32_t a, int32_t b)
{
    if (2 * m->n_pairs >= m->n_slots) {
        free(m->slots);
        m->n_slots = m->n_slots ? 2 * m->n_slots : 4096;
        m->slots = mem_array(m->n_slots, sizeof *m->slots);
        for (size_t i = 0; i < m->n_pairs; i++) *pair_slot(m, m->pairs[i].a, m->pairs[i].b) = (uint32_t)i + 1;
    }
    uint32_t *slot = pair_slot(m, a, b);
    if (!*slot) {
        CHECK(m->n_pairs < UINT32_MAX, "more than 2^32 different pairs");
        MEM_PUSH(m->pairs, m->n_pairs, m->pairs_cap, (MergePair){.a = a, .b = b});
        *slot = (uint32_t)m->n_pairs;
    }
    return *slot - 1;
}

/* Whether x merges before y. */
static bool merges_first(const Merging *m, MergeEntry x, MergeEntry y)
{
    if (x.count != y.count) return x.count > y.count;
    const MergePair *p = &m->pairs[x.pair], *q = &m->pairs[y.pair];
    return p->a != q->a ? p->a < q->a : p->b < q->b;
}

static void enqueue(Merging *m, size_t pair)
{
    MergePair *p = &m->pairs[pair];
    if (p->count < m->options->min_count || m->chars[p->a] + m->chars[p->b] > m->options->max_piece) return;
    p->queued = p->count;
    MergeEntry entry = {p->count, pair};
    MEM_GROW(m->queue, m->n_queue, m->queue_cap);
    size_t at = m->n_queue++;
    for (; at > 0 && merges_first(m, entry, m->queue[(at - 1) / 2]); at = (at - 1) / 2) {
        m->queue[at] = m->queue[(at - 1) / 2];
    }
    m->queue[at] = entry;
}

static MergeEntry dequeue(Merging *m)
{
    MergeEntry top = m->queue[0], last = m->queue[--m->n_queue];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->n_queue; at = child) {
        if (child + 1 < m->n_queue && merges_first(m, m->queue[child + 1], m->queue[child])) child++;
        if (!merges_first(m, m->queue[child], last)) break;
        m->queue[at] = m->queue[child];
    }
    m->queue[at] = last;
    return top;
}

static void note_word(MergePair *p, size_t word)
{
    if (p->n_words > 0 && p->words[p->n_words - 1] == word) return;
    MEM_PUSH(p->words, p->n_words, p->words_cap, (uint32_t)word);
}

/* Adds one word's pairs to the counts. Pairs with `fresh` in them (−1: all) also note that the word holds them. */
static void count_pairs(Merging *m, size_t word, int32_t fresh)
{
    const int32_t *v = m->text + m->start[word];
    for (int i = 0; i + 1 < m->length[word]; i++) {
        size_t at = find_pair(m, v[i], v[i + 1]);
        MergePair *p = &m->pairs[at];
        p->count += m->counts[word];
        if (fresh >= 0 && v[i] != fresh && v[i + 1] != fresh) continue;
        note_word(p, word);
        if (!p->touched) {
            p->touched = true;
            MEM_PUSH(m->touched, m->n_touched, m->touched_cap, at);
        }
    }
}

static void enqueue_touched(Merging *m)
{
    for (size_t i = 0; i < m->n_touched; i++) {
        MergePair *p = &m->pairs[m->touched[i]];
        p->touched = false;
        if (p->count > p->queued) enqueue(m, m->touched[i]);
    }
    m->n_touched = 0;
}

static void merge_in_word(Merging *m, size_t word, int32_t a, int32_t b, int32_t merged)
{
    int32_t *v = m->text + m->start[word];
    int n = m->length[word], at = 0;
    while (at + 1 < n && !(v[at] == a && v[at + 1] == b)) at++;
    if (at + 1 >= n) return;
    for (int i = 0; i + 1 < n; i++) m->pairs[find_pair(m, v[i], v[i + 1])].count -= m->counts[word];
    int kept = at;
    while (at < n) {
        bool here = at + 1 < n && v[at] == a && v[at + 1] == b;
        v[kept++] = here ? merged : v[at];
        at += here ? 2 : 1;
    }
    m->length[word] = (uint8_t)kept;
    count_pairs(m, word, merged);
}

static void merge_pair(Merging *m, size_t pair)
{
    MergePair *p = &m->pairs[pair];
    const StringTable *s = &m->symbols;
    int32_t a = p->a, b = p->b;
    uint32_t *words = p->words;
    size_t n_words = p->n_words;
    p->words = NULL;
    p->n_words = p->words_cap = 0;
    p->queued = 0;

    char text[4 * WORD_MAX + 3];
    size_t len = string_table_len(s, (size_t)a),
           tail = string_table_len(s, (size_t)b) - 2; /* b continues a word: it begins with ## */
    CHECK(len + tail <= sizeof text, "a piece of %zu bytes", len + tail);
    memcpy(text, s->text + s->start[a], len);
    memcpy(text + len, s->text + s->start[b] + 2, tail);
    int32_t merged = merging_add_symbol(m, text, len + tail, m->chars[a] + m->chars[b]);
    for (size_t i = 0; i < n_words; i++) merge_in_word(m, words[i], a, b, merged);
    free(words);
    enqueue_touched(m);
}

static void forget_pairs(Merging *m)
{
    for (size_t i = 0; i < m->n_pairs; i++) free(m->pairs[i].words);
    if (m->n_slots) memset(m->slots, 0, m->n_slots * sizeof *m->slots);
    m->n_pairs = m->n_queue = 0;
}

void merging_run(Merging *m, size_t size)
{
    forget_pairs(m);
    for (size_t word = 0; word < m->n_words; word++) count_pairs(m, word, -1);
    enqueue_touched(m);
    while (m->symbols.count < size && m->n_queue > 0) {
        MergeEntry top = dequeue(m);
        MergePair *p = &m->pairs[top.pair];
        if (top.count != p->queued) continue; /* a newer entry exists */
        if (top.count == p->count)
            merge_pair(m, top.pair);
        else {
            p->queued = 0;
            enqueue(m, top.pair);
        }
    }
}

void merging_free(Merging *m)
{
    forget_pairs(m);
    string_table_free(&m->symbols);
    MEM_FREE(m->chars, m->text, m->start, m->length, m->counts, m->word, m->pairs, m->slots, m->queue, m->touched);
}
