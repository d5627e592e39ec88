/* WordPiece training: words are lists of symbols, first their characters; the pair of neighbours seen most often
   becomes one symbol, again and again. Pair counts are kept, not recounted: a merge visits only the words that hold the
   pair. */
#include <stdlib.h>
#include <string.h>

#include "text/compose.h"
#include "text/normalize.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

#define DEFAULT_ALPHABET 1000
#define DEFAULT_COUNT    2
#define DEFAULT_PIECE    32

/* ---- A table from byte strings to 0, 1, 2 … in the order they came ---- */

typedef struct {
    char *text;
    size_t text_len, text_cap;
    size_t *start; // (count + 1)
    size_t count, cap;
    uint32_t *slots; // (n_slots), index + 1, 0: empty; at most half are taken
    size_t n_slots;
} Strings;

static uint64_t hash_bytes(const char *p, size_t len)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) ^ len;
    for (size_t i = 0; i < len; i++) h = (h ^ (uint8_t)p[i]) * UINT64_C(0x100000001B3);
    h ^= h >> 29;
    return h * UINT64_C(0xBF58476D1CE4E5B9) >> 16;
}

static size_t strings_len(const Strings *s, size_t i) { return s->start[i + 1] - s->start[i]; }

static uint32_t *strings_slot(const Strings *s, const char *text, size_t len)
{
    for (size_t at = hash_bytes(text, len) & (s->n_slots - 1);; at = (at + 1) & (s->n_slots - 1)) {
        uint32_t *slot = &s->slots[at];
        if (!*slot) return slot;
        size_t i = *slot - 1;
        if (strings_len(s, i) == len && memcmp(s->text + s->start[i], text, len) == 0) return slot;
    }
}

static void strings_rehash(Strings *s)
{
    free(s->slots);
    s->n_slots = s->n_slots ? 2 * s->n_slots : 1024;
    s->slots = mem_array(s->n_slots, sizeof *s->slots);
    for (size_t i = 0; i < s->count; i++) {
        *strings_slot(s, s->text + s->start[i], strings_len(s, i)) = (uint32_t)i + 1;
    }
}

/* Index of `text`, which is added if it is new (then the index is the count before). */
static size_t strings_add(Strings *s, const char *text, size_t len)
{
    if (2 * s->count >= s->n_slots) strings_rehash(s);
    uint32_t *slot = strings_slot(s, text, len);
    if (*slot) return *slot - 1;
    CHECK(s->count < INT32_MAX, "more than 2^31 different words");
    if (s->count + 1 >= s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->start = mem_resize(s->start, s->cap, sizeof *s->start);
    }
    while (s->text_len + len > s->text_cap) {
        s->text_cap = s->text_cap ? 2 * s->text_cap : 16384;
        s->text = mem_resize(s->text, s->text_cap, 1);
    }
    memcpy(s->text + s->text_len, text, len);
    s->start[s->count] = s->text_len;
    s->start[s->count + 1] = s->text_len += len;
    *slot = (uint32_t)++s->count;
    return s->count - 1;
}

static void strings_free(Strings *s)
{
    free(s->text);
    free(s->start);
    free(s->slots);
}

/* ---- Gathering words ---- */

struct VocabTrainer {
    VocabTraining options;
    Strings words;
    int64_t *counts; // (words.count)
    size_t counts_cap;
};

VocabTrainer *vocab_trainer_new(VocabTraining options)
{
    VocabTrainer *t = mem_alloc(sizeof *t);
    t->options = options;
    if (options.alphabet <= 0) t->options.alphabet = DEFAULT_ALPHABET;
    if (options.min_count <= 0) t->options.min_count = DEFAULT_COUNT;
    if (options.max_piece <= 0) t->options.max_piece = DEFAULT_PIECE;
    return t;
}

static void count_word(void *context, const char *word, size_t len, size_t chars)
{
    VocabTrainer *t = context;
    if (chars > WORD_MAX || (word[0] == '[' && chars > 1)) return;
    size_t i = strings_add(&t->words, word, len);
    if (i >= t->counts_cap) {
        size_t before = t->counts_cap;
        t->counts_cap = before ? 2 * before : 1024;
        t->counts = mem_resize(t->counts, t->counts_cap, sizeof *t->counts);
        memset(t->counts + before, 0, (t->counts_cap - before) * sizeof *t->counts);
    }
    t->counts[i]++;
}

void vocab_trainer_add(VocabTrainer *t, const char *text, size_t len)
{
    text_words(&t->options.normalisation, text, len, count_word, t);
}

void vocab_trainer_free(VocabTrainer *t)
{
    if (!t) return;
    strings_free(&t->words);
    free(t->counts);
    free(t);
}

/* ---- Merging ---- */

typedef struct {
    int32_t a, b;    /* symbols */
    int64_t count;   /* of its occurrences, now */
    int64_t queued;  /* count of its newest entry in the queue, 0: none */
    uint32_t *words; // (n_words), every word that holds it and maybe some that no longer do
    size_t n_words, words_cap;
    bool touched;
} Pair;

typedef struct {
    int64_t count;
    size_t pair;
} Entry;

typedef struct {
    const VocabTraining *options;
    Strings symbols; /* the vocabulary so far */
    int *chars;      // (symbols.count), length without ##
    size_t chars_cap;
    int32_t *text;   // words one behind the other as symbols
    size_t *start;   // (n_words)
    uint8_t *length; // (n_words), symbols of a word; never more than WORD_MAX
    int64_t *counts; // (n_words)
    size_t n_words;
    Pair *pairs; // (n_pairs)
    size_t n_pairs, pairs_cap;
    uint32_t *slots; // (n_slots), index of a pair + 1, 0: empty; at most half are taken
    size_t n_slots;
    Entry *queue; // (n_queue), binary heap
    size_t n_queue, queue_cap;
    size_t *touched; // pairs whose count rose in this merge
    size_t n_touched, touched_cap;
} Merging;

static int32_t add_symbol(Merging *m, const char *text, size_t len, int chars)
{
    size_t i = strings_add(&m->symbols, text, len);
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
        MEM_GROW(m->pairs, m->n_pairs, m->pairs_cap);
        m->pairs[m->n_pairs] = (Pair){.a = a, .b = b};
        *slot = (uint32_t)++m->n_pairs;
    }
    return *slot - 1;
}

static int compare_symbols(const Strings *s, int32_t a, int32_t b)
{
    size_t len_a = strings_len(s, (size_t)a), len_b = strings_len(s, (size_t)b);
    int order = memcmp(s->text + s->start[a], s->text + s->start[b], len_a < len_b ? len_a : len_b);
    return order ? order : (len_a > len_b) - (len_a < len_b);
}

/* Whether x is merged before y. */
static bool goes_first(const Merging *m, Entry x, Entry y)
{
    if (x.count != y.count) return x.count > y.count;
    const Pair *p = &m->pairs[x.pair], *q = &m->pairs[y.pair];
    int order = compare_symbols(&m->symbols, p->a, q->a);
    if (!order) order = compare_symbols(&m->symbols, p->b, q->b);
    return order < 0;
}

static void enqueue(Merging *m, size_t pair)
{
    Pair *p = &m->pairs[pair];
    if (p->count < m->options->min_count || m->chars[p->a] + m->chars[p->b] > m->options->max_piece) return;
    p->queued = p->count;
    Entry entry = {p->count, pair};
    MEM_GROW(m->queue, m->n_queue, m->queue_cap);
    size_t at = m->n_queue++;
    for (; at > 0 && goes_first(m, entry, m->queue[(at - 1) / 2]); at = (at - 1) / 2) {
        m->queue[at] = m->queue[(at - 1) / 2];
    }
    m->queue[at] = entry;
}

static Entry dequeue(Merging *m)
{
    Entry top = m->queue[0], last = m->queue[--m->n_queue];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->n_queue; at = child) {
        if (child + 1 < m->n_queue && goes_first(m, m->queue[child + 1], m->queue[child])) child++;
        if (!goes_first(m, m->queue[child], last)) break;
        m->queue[at] = m->queue[child];
    }
    m->queue[at] = last;
    return top;
}

static void note_word(Pair *p, size_t word)
{
    if (p->n_words > 0 && p->words[p->n_words - 1] == word) return;
    MEM_GROW(p->words, p->n_words, p->words_cap);
    p->words[p->n_words++] = (uint32_t)word;
}

/* One word's pairs are added; those with `fresh` in them (−1: all) also learn that the word holds them. */
static void count_pairs(Merging *m, size_t word, int32_t fresh)
{
    const int32_t *v = m->text + m->start[word];
    for (int i = 0; i + 1 < m->length[word]; i++) {
        size_t at = find_pair(m, v[i], v[i + 1]);
        Pair *p = &m->pairs[at];
        p->count += m->counts[word];
        if (fresh >= 0 && v[i] != fresh && v[i + 1] != fresh) continue;
        note_word(p, word);
        if (!p->touched) {
            p->touched = true;
            MEM_GROW(m->touched, m->n_touched, m->touched_cap);
            m->touched[m->n_touched++] = at;
        }
    }
}

static void enqueue_touched(Merging *m)
{
    for (size_t i = 0; i < m->n_touched; i++) {
        Pair *p = &m->pairs[m->touched[i]];
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
    Pair *p = &m->pairs[pair];
    const Strings *s = &m->symbols;
    int32_t a = p->a, b = p->b;
    uint32_t *words = p->words;
    size_t n_words = p->n_words;
    p->words = NULL;
    p->n_words = p->words_cap = 0;
    p->queued = 0;

    char text[4 * WORD_MAX + 3];
    size_t len = strings_len(s, (size_t)a),
           tail = strings_len(s, (size_t)b) - 2; /* b continues a word: it begins with ## */
    CHECK(len + tail <= sizeof text, "a piece of %zu bytes", len + tail);
    memcpy(text, s->text + s->start[a], len);
    memcpy(text + len, s->text + s->start[b] + 2, tail);
    int32_t merged = add_symbol(m, text, len + tail, m->chars[a] + m->chars[b]);
    for (size_t i = 0; i < n_words; i++) merge_in_word(m, words[i], a, b, merged);
    free(words);
    enqueue_touched(m);
}

static void merge_all(Merging *m)
{
    while (m->symbols.count < (size_t)m->options->size && m->n_queue > 0) {
        Entry top = dequeue(m);
        Pair *p = &m->pairs[top.pair];
        if (top.count != p->queued) continue; /* there is a newer entry */
        if (top.count == p->count)
            merge_pair(m, top.pair);
        else {
            p->queued = 0;
            enqueue(m, top.pair);
        }
    }
}

/* ---- The alphabet ---- */

typedef struct {
    uint32_t scalar;
    int64_t count;
} Character;

static int by_scalar(const void *x, const void *y)
{
    const Character *a = x, *b = y;
    return (a->scalar > b->scalar) - (a->scalar < b->scalar);
}

static int by_count(const void *x, const void *y)
{
    const Character *a = x, *b = y;
    return a->count != b->count ? (a->count < b->count) - (a->count > b->count) : by_scalar(x, y);
}

/* Whether it can continue a word, as a ## piece. */
static bool goes_on(const VocabTraining *options, uint32_t scalar)
{
    unsigned bits = unicode_record(scalar).bits;
    return !(bits & UC_PUNCT) && !(options->normalisation.split_chinese && (bits & UC_CJK));
}

/* Every character of the words, with its count, most frequent first. The caller frees. */
static Character *count_characters(const VocabTrainer *t, size_t *n)
{
    int64_t *counts = mem_array(0x110000, sizeof *counts);
    for (size_t i = 0; i < t->words.count; i++) {
        const char *p = t->words.text + t->words.start[i], *end = t->words.text + t->words.start[i + 1];
        while (p < end) counts[utf8_decode(&p, end)] += t->counts[i];
    }
    Character *list = NULL;
    size_t cap = 0;
    *n = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (!counts[c]) continue;
        MEM_GROW(list, *n, cap);
        list[(*n)++] = (Character){c, counts[c]};
    }
    free(counts);
    if (*n) qsort(list, *n, sizeof *list, by_count);
    return list;
}

static void add_character(Merging *m, uint32_t scalar, bool first)
{
    char text[6] = "##";
    int len = utf8_encode(scalar, text + 2);
    if (first)
        add_symbol(m, text + 2, (size_t)len, 1);
    else
        add_symbol(m, text, (size_t)len + 2, 1);
}

static Status add_alphabet(const VocabTrainer *t, Merging *m)
{
    const VocabTraining *o = &t->options;
    size_t found, kept = 0, lines = m->symbols.count;
    Character *list = count_characters(t, &found);
    while (kept < found && kept < (size_t)o->alphabet) {
        size_t more = goes_on(o, list[kept].scalar) ? 2 : 1;
        if ((int64_t)(lines + more) > o->size) break;
        lines += more;
        kept++;
    }
    if (kept == 0) {
        free(list);
        if (found == 0) return fail(E_FORMAT, "vocabulary: the text holds no words to learn from");
        return fail(E_USAGE,
                    "vocabulary: size %d has no room for a character beside the %d special pieces; ask for more",
                    (int)o->size, N_SPECIAL);
    }
    if (kept < found) {
        log_warn("vocabulary: kept the %zu most frequent of %zu different characters (size %d, alphabet at most %d); "
                 "words with the others become [UNK]",
                 kept, found, (int)o->size, (int)o->alphabet);
    }
    qsort(list, kept, sizeof *list, by_scalar);
    for (size_t i = 0; i < kept; i++) add_character(m, list[i].scalar, true);
    for (size_t i = 0; i < kept; i++) {
        if (goes_on(o, list[i].scalar)) add_character(m, list[i].scalar, false);
    }
    free(list);
    return OK;
}

/* Words as symbols. A word with a character that is not in the alphabet would be [UNK] and teaches nothing. */
static void load_words(const VocabTrainer *t, Merging *m)
{
    size_t n_symbols = 0, cap = 0;
    m->start = mem_array(t->words.count, sizeof *m->start);
    m->length = mem_array(t->words.count, sizeof *m->length);
    m->counts = mem_array(t->words.count, sizeof *m->counts);
    for (size_t i = 0; i < t->words.count; i++) {
        const char *word = t->words.text + t->words.start[i], *p = word, *end = word + strings_len(&t->words, i);
        size_t first = n_symbols;
        uint32_t slot = 1;
        while (p < end && slot) {
            char piece[6] = "##";
            const char *from = p;
            utf8_decode(&p, end);
            size_t len = (size_t)(p - from), prefix = from == word ? 0 : 2;
            memcpy(piece + prefix, from, len);
            slot = *strings_slot(&m->symbols, piece, prefix + len);
            MEM_GROW(m->text, n_symbols, cap);
            m->text[n_symbols++] = (int32_t)slot - 1;
        }
        if (!slot || n_symbols - first < 2) { /* unknown, or nothing to merge */
            n_symbols = first;
            continue;
        }
        m->start[m->n_words] = first;
        m->length[m->n_words] = (uint8_t)(n_symbols - first);
        m->counts[m->n_words++] = t->counts[i];
    }
    for (size_t word = 0; word < m->n_words; word++) count_pairs(m, word, -1);
    enqueue_touched(m);
}

static void merging_free(Merging *m)
{
    strings_free(&m->symbols);
    for (size_t i = 0; i < m->n_pairs; i++) free(m->pairs[i].words);
    void *all[] = {m->chars, m->text, m->start, m->length, m->counts, m->pairs, m->slots, m->queue, m->touched};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

Status vocab_trainer_finish(VocabTrainer *t, Vocab **vocab)
{
    Status status = OK;
    Merging m = {.options = &t->options};
    Buf lines = {0};
    *vocab = NULL;
    for (int i = 0; i < N_SPECIAL; i++) add_symbol(&m, special_pieces[i].text, special_pieces[i].len, 0);
    TRY_DONE(add_alphabet(t, &m));
    load_words(t, &m);
    merge_all(&m);
    for (size_t i = 0; i < m.symbols.count; i++) {
        buf_append(&lines, m.symbols.text + m.symbols.start[i], strings_len(&m.symbols, i));
        buf_append(&lines, "\n", 1);
    }
    TRY_DONE(vocab_parse("trained vocabulary", lines.data, lines.len, vocab));
    if (m.symbols.count < (size_t)t->options.size) {
        log_warn("vocabulary: %d pieces were asked for, the text gave %zu", (int)t->options.size, m.symbols.count);
    }
done:
    buf_free(&lines);
    merging_free(&m);
    return status;
}
