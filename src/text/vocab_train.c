/* WordPiece training: counts words, chooses the alphabet, and merges (vocab_merge.h). */

#include "text/compose.h"
#include "text/normalize.h"
#include "text/utf8.h"
#include "text/vocab_merge.h"

#define DEFAULT_ALPHABET 1000
#define DEFAULT_COUNT    2
#define DEFAULT_PIECE    32

/* ---- Counting words ---- */

/* Words met lately, whose counts are not in the table yet: a word gives way to another one with its place. */
#define MET_BITS 16
typedef struct {
    WordKey key;
    int64_t count; /* 0: none */
    size_t len;    /* WORD_READABLE at most */
} MetWord;

struct VocabTrainer {
    VocabTraining options;
    TextRules rules;
    StringTable words;
    int64_t *counts; // (words.count)
    size_t counts_cap;
    MetWord *met; // (1 << MET_BITS)
};

VocabTrainer *vocab_trainer_new(VocabTraining options)
{
    VocabTrainer *t = mem_alloc(sizeof *t);
    t->options = options;
    text_rules_init(&t->rules, options.normalisation, NULL);
    t->met = mem_array((size_t)1 << MET_BITS, sizeof *t->met);
    if (options.alphabet <= 0) t->options.alphabet = DEFAULT_ALPHABET;
    if (options.min_count <= 0) t->options.min_count = DEFAULT_COUNT;
    if (options.max_piece <= 0) t->options.max_piece = DEFAULT_PIECE;
    return t;
}

static void count_word(VocabTrainer *t, const char *word, size_t len, int64_t count)
{
    size_t i = string_table_add(&t->words, word, len);
    if (i >= t->counts_cap) {
        size_t before = t->counts_cap;
        t->counts_cap = before ? 2 * before : 1024;
        t->counts = mem_resize(t->counts, t->counts_cap, sizeof *t->counts);
        memset(t->counts + before, 0, (t->counts_cap - before) * sizeof *t->counts);
    }
    t->counts[i] += count;
}

static void count_met(VocabTrainer *t, MetWord *m)
{
    if (m->count) count_word(t, (const char *)&m->key, m->len, m->count);
    m->count = 0;
}

static void count_all_met(VocabTrainer *t)
{
    for (size_t i = 0; i < (size_t)1 << MET_BITS; i++) count_met(t, &t->met[i]);
}

static void count_words(void *context, const Word *words, size_t n)
{
    enum { TOGETHER = 16 }; /* places that are read at once */
    VocabTrainer *t = context;
    for (const Word *end = words + n, *stop; words < end; words = stop) {
        WordKey keys[TOGETHER];
        MetWord *places[TOGETHER];
        stop = end - words < TOGETHER ? end : words + TOGETHER;
        for (const Word *w = words; w < stop; w++) {
            keys[w - words] = word_key(w);
            places[w - words] = &t->met[word_key_hash(keys[w - words], MET_BITS)];
            __builtin_prefetch(places[w - words], 1);
        }
        for (const Word *w = words; w < stop; w++) {
            WordKey key = keys[w - words];
            MetWord *m = places[w - words];
            if (w->chars > WORD_MAX || (w->text[0] == '[' && w->chars > 1)) continue;
            if (w->len > WORD_READABLE) {
                count_word(t, w->text, w->len, 1);
                continue;
            }
            if (m->key.low != key.low || m->key.high != key.high) {
                count_met(t, m);
                *m = (MetWord){.key = key, .len = w->len};
            }
            m->count++;
        }
    }
}

void vocab_trainer_merge(VocabTrainer *t, VocabTrainer *more)
{
    count_all_met(more);
    for (size_t i = 0; i < more->words.count; i++)
        count_word(t, more->words.text + more->words.start[i], string_table_len(&more->words, i), more->counts[i]);
}

void vocab_trainer_add(VocabTrainer *t, const char *text, size_t len)
{
    text_words(&t->rules, text, len, &(WordSink){.context = t, .words = count_words});
}

void vocab_trainer_free(VocabTrainer *t)
{
    if (!t) return;
    string_table_free(&t->words);
    text_rules_free(&t->rules);
    MEM_FREE(t->counts, t->met, t);
}

/* ---- The alphabet ---- */

typedef struct {
    uint32_t scalar;
    bool first, later; /* begins a word, continues one */
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

/* Every character of the words, most frequent first. The caller frees. */
static Character *count_characters(const VocabTrainer *t, size_t *n)
{
    Character *all = mem_array(0x110000, sizeof *all), *list = NULL;
    for (size_t i = 0; i < t->words.count; i++) {
        const char *p = t->words.text + t->words.start[i], *end = t->words.text + t->words.start[i + 1];
        for (bool first = true; p < end; first = false) {
            Character *c = &all[utf8_decode(&p, end)];
            c->count += t->counts[i];
            c->first |= first;
            c->later |= !first;
        }
    }
    size_t cap = 0;
    *n = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (!all[c].count) continue;
        all[c].scalar = c;
        MEM_PUSH(list, *n, cap, all[c]);
    }
    free(all);
    if (*n) qsort(list, *n, sizeof *list, by_count);
    return list;
}

static void add_character(Merging *m, uint32_t scalar, bool first)
{
    char text[6] = "##";
    int len = utf8_encode(scalar, text + 2);
    if (first)
        merging_add_symbol(m, text + 2, (size_t)len, 1);
    else
        merging_add_symbol(m, text, (size_t)len + 2, 1);
}

static Status add_alphabet(const VocabTrainer *t, Merging *m)
{
    const VocabTraining *o = &t->options;
    size_t found, kept = 0, lines = m->symbols.count;
    Character *list = count_characters(t, &found);
    while (kept < found && kept < (size_t)o->alphabet) {
        size_t more = list[kept].later ? 2 : 1;
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
        if (list[i].later) add_character(m, list[i].scalar, false);
    }
    free(list);
    return OK;
}

/* Converts words to symbols. Skips a word with a character outside the alphabet: it would be [UNK]. */
static void load_words(const VocabTrainer *t, Merging *m)
{
    size_t n_symbols = 0, cap = 0;
    m->start = mem_array(t->words.count, sizeof *m->start);
    m->length = mem_array(t->words.count, sizeof *m->length);
    m->counts = mem_array(t->words.count, sizeof *m->counts);
    m->word = mem_array(t->words.count, sizeof *m->word);
    for (size_t i = 0; i < t->words.count; i++) {
        const char *word = t->words.text + t->words.start[i], *p = word, *end = word + string_table_len(&t->words, i);
        size_t first = n_symbols;
        int64_t symbol = 0;
        while (p < end && symbol >= 0) {
            char piece[6] = "##";
            const char *from = p;
            utf8_decode(&p, end);
            size_t len = (size_t)(p - from), prefix = from == word ? 0 : 2;
            memcpy(piece + prefix, from, len);
            symbol = string_table_find(&m->symbols, piece, prefix + len);
            MEM_PUSH(m->text, n_symbols, cap, (int32_t)symbol);
        }
        if (symbol < 0 || n_symbols - first < 2) { /* [UNK], or too short to merge */
            n_symbols = first;
            continue;
        }
        m->start[m->n_words] = first;
        m->length[m->n_words] = (uint8_t)(n_symbols - first);
        m->word[m->n_words] = i;
        m->counts[m->n_words++] = t->counts[i];
    }
}

/* ---- The pieces ---- */

/* Cuts a word as a tokenizer does: the longest piece first. Returns the number of `cut`; never 0, as its characters are
   pieces. */
static size_t cut_word(const Merging *m, const char *word, size_t len, int32_t cut[WORD_MAX])
{
    char text[2 + 4 * WORD_MAX] = "##"; /* the rest of the word, as a piece that continues it */
    size_t n = 0, longest = 4 * (size_t)m->options->max_piece;
    for (size_t at = 0, piece; at < len; at += piece) {
        int64_t symbol = -1;
        piece = len - at < longest ? len - at : longest;
        memcpy(text + 2, word + at, piece);
        while ((symbol = string_table_find(&m->symbols, at ? text : word, piece + (at ? 2 : 0))) < 0) piece--;
        cut[n++] = (int32_t)symbol;
    }
    return n;
}

/* Cuts all words again, and marks the symbols that they use. Returns the number of pieces that a vocabulary keeps:
   those, and its first `alphabet`. */
static size_t cut_again(const VocabTrainer *t, Merging *m, size_t alphabet, bool **used) // (symbols)
{
    size_t kept = 0;
    free(*used);
    *used = mem_array(m->symbols.count, sizeof **used);
    for (size_t i = 0; i < m->n_words; i++) {
        size_t word = m->word[i];
        int32_t *cut = m->text + m->start[i];
        m->length[i] =
            (uint8_t)cut_word(m, t->words.text + t->words.start[word], string_table_len(&t->words, word), cut);
        for (int k = 0; k < m->length[i]; k++) (*used)[cut[k]] = true;
    }
    for (size_t i = 0; i < m->symbols.count; i++) kept += (*used)[i] = (*used)[i] || i < alphabet;
    return kept;
}

/* Merges until the vocabulary is full. Then the words are cut as a tokenizer cuts them: pieces that they do not use, as
   all their occurrences became parts of longer ones, give way to further merges. Appends a line for each piece. Returns
   their number. */
static size_t choose_pieces(const VocabTrainer *t, Merging *m, Buf *lines)
{
    size_t size = (size_t)t->options.size, alphabet = m->symbols.count, wanted = size, before, kept, written = 0;
    bool *used = NULL;
    do {
        before = m->symbols.count;
        merging_run(m, wanted);
        kept = cut_again(t, m, alphabet, &used);
        wanted = m->symbols.count + size - kept;
    } while (m->symbols.count > before && kept < size);
    size_t room = kept < size ? size - kept : 0; /* for pieces that are not used */
    for (size_t i = 0; i < m->symbols.count && written < size; i++) {
        if (!used[i] && room == 0) continue;
        room -= !used[i];
        buf_append(lines, m->symbols.text + m->symbols.start[i], string_table_len(&m->symbols, i));
        buf_append(lines, "\n", 1);
        written++;
    }
    free(used);
    return written;
}

Status vocab_trainer_finish(VocabTrainer *t, Vocab **vocab)
{
    Status status = OK;
    Merging m = {.options = &t->options};
    Buf lines = {0};
    *vocab = NULL;
    count_all_met(t);
    for (int i = 0; i < N_SPECIAL; i++)
        merging_add_symbol(&m, special_tokens[i].text, strlen(special_tokens[i].text), 0);
    TRY_DONE(add_alphabet(t, &m));
    load_words(t, &m);
    size_t pieces = choose_pieces(t, &m, &lines);
    TRY_DONE(vocab_parse("trained vocabulary", lines.data, lines.len, NULL, vocab));
    if (pieces < (size_t)t->options.size)
        log_warn("vocabulary: %d pieces were asked for, the text gave %zu", (int)t->options.size, pieces);
done:
    buf_free(&lines);
    merging_free(&m);
    return status;
}
