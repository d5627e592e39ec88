#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/vocab.h"

/* Words met before, with their pieces: each has one place, and takes it from the word before. So a word costs the same
   whatever the text. */
#define CACHE_BITS   14
#define CACHE_PIECES 3 /* a word of more is not kept */
typedef struct {
    uint64_t key[2]; /* the word's bytes, then zeros; WORD_READABLE at most */
    int32_t ids[CACHE_PIECES], n_ids;
} CachedWord;

struct Tokenizer {
    const Vocab *vocab;
    TokenizerOptions options;
    CachedWord *cache; // (1 << CACHE_BITS)
};

Tokenizer *tokenizer_new(const Vocab *vocab, TokenizerOptions options)
{
    Tokenizer *t = mem_alloc(sizeof *t);
    t->vocab = vocab;
    t->options = options;
    t->cache = mem_array((size_t)1 << CACHE_BITS, sizeof *t->cache);
    return t;
}

void tokenizer_free(Tokenizer *t)
{
    if (!t) return;
    free(t->cache);
    free(t);
}

void token_ids_free(TokenIds *ids)
{
    free(ids->ids);
    *ids = (TokenIds){0};
}

typedef struct {
    const Vocab *vocab;
    CachedWord *cache;
    TokenIds *out;
} Encoding;

static void add_id(TokenIds *out, int32_t id)
{
    MEM_GROW(out->ids, out->count, out->cap);
    out->ids[out->count++] = id;
}

/* Greedy: the longest piece first, then the longest ## piece each time; [UNK] for the whole word if one is missing. */
static void cut_word(const Vocab *vocab, const Word *w, TokenIds *out)
{
    size_t before = out->count, used = 0;
    int32_t from = 0;
    bool known = w->chars <= WORD_MAX;
    for (size_t at = 0; at < w->len && known; at += used) {
        int32_t id = from < 0 ? -1 : vocab_longest(vocab, from, w->text + at, w->len - at, &used);
        if (id < 0)
            known = false;
        else
            add_id(out, id);
        from = vocab->continuation;
    }
    if (known) return;
    out->count = before;
    add_id(out, vocab->special.unk);
}

static void reserve_ids(TokenIds *out, size_t n)
{
    if (out->cap - out->count >= n) return;
    out->cap = 2 * out->cap + n;
    out->ids = mem_resize(out->ids, out->cap, sizeof *out->ids);
}

/* Cuts a word and keeps its pieces at `c`, if it fits there. */
static __attribute__((noinline)) void meet_word(const Encoding *e, const Word *w, CachedWord *c, uint64_t low,
                                                uint64_t high)
{
    TokenIds *out = e->out;
    size_t before = out->count;
    cut_word(e->vocab, w, out);
    size_t n = out->count - before;
    if (w->len > WORD_READABLE || n > CACHE_PIECES) return;
    *c = (CachedWord){.key = {low, high}, .n_ids = (int32_t)n};
    memcpy(c->ids, out->ids + before, n * sizeof *c->ids);
}

static void encode_words(void *context, const Word *words, size_t n)
{
    /* keep[8 + n] keeps the first n bytes of eight: none of them below, all beyond. */
    static const uint64_t keep[25] = {
        [9] = UINT64_MAX >> 56,  [10] = UINT64_MAX >> 48, [11] = UINT64_MAX >> 40, [12] = UINT64_MAX >> 32,
        [13] = UINT64_MAX >> 24, [14] = UINT64_MAX >> 16, [15] = UINT64_MAX >> 8,  [16 ... 24] = UINT64_MAX};
    const Encoding e = *(const Encoding *)context;
    TokenIds *out = e.out;
    reserve_ids(out, n * CACHE_PIECES);
    for (const Word *w = words; w < words + n; w++) {
        size_t len = w->len < WORD_READABLE ? w->len : WORD_READABLE;
        uint64_t low, high;
        memcpy(&low, w->text, 8);
        memcpy(&high, w->text + 8, 8);
        low &= keep[len + 8];
        high &= keep[len];
        uint64_t hash = (low ^ (high << 29 | high >> 35)) * UINT64_C(0x9E3779B97F4A7C15);
        CachedWord *c = &e.cache[hash >> (64 - CACHE_BITS)];
        if (c->key[0] == low && c->key[1] == high && w->len <= WORD_READABLE) {
            memcpy(out->ids + out->count, c->ids, sizeof c->ids);
            out->count += (size_t)c->n_ids;
        } else {
            meet_word(&e, w, c, low, high);
            reserve_ids(out, (size_t)(words + n - w) * CACHE_PIECES);
        }
    }
}

void tokenizer_encode(Tokenizer *t, const char *text, size_t len, TokenIds *out)
{
    Encoding e = {t->vocab, t->cache, out};
    text_words(&t->options, text, len, encode_words, &e);
}

static void append_words(void *context, const Word *words, size_t n)
{
    Buf *out = context;
    for (size_t i = 0; i < n; i++) {
        if (out->len) buf_puts(out, " ");
        buf_append(out, words[i].text, words[i].len);
    }
}

void tokenizer_words(const Tokenizer *t, const char *text, size_t len, Buf *out)
{
    text_words(&t->options, text, len, append_words, out);
}

void tokenizer_encode_first(Tokenizer *t, const char *text, size_t len, size_t most, TokenIds *out)
{
    enum { PART = 16384 }; /* bytes; then up to the next blank, because no word goes across one */
    const char *end = text + len;
    while (text < end && out->count < most) {
        size_t left = (size_t)(end - text);
        const char *blank = left > PART ? memchr(text + PART, ' ', left - PART) : NULL;
        const char *stop = blank ? blank : end;
        tokenizer_encode(t, text, (size_t)(stop - text), out);
        text = stop;
    }
}

int tokenizer_pair(const Tokenizer *t, const TokenIds *a, const TokenIds *b, int max_len, int32_t *ids, uint8_t *types)
{
    size_t framing = b ? 3 : 2;
    CHECK(max_len >= (int)framing, "max_len %d has no room for [CLS] and [SEP]", max_len);
    size_t keep_a = a->count, keep_b = b ? b->count : 0, room = (size_t)max_len - framing;
    if (keep_a + keep_b > room) {
        /* Tokens go from the longer side until both are equal, then from each in turn, b first. */
        size_t half = room / 2, odd = room % 2;
        if (keep_b <= half)
            keep_a = room - keep_b;
        else if (keep_a <= half + odd)
            keep_b = room - keep_a;
        else {
            keep_a = half + odd;
            keep_b = half;
        }
    }
    const SpecialIds special = t->vocab->special;
    int n = 0;
    ids[n++] = special.cls;
    for (size_t i = 0; i < keep_a; i++) ids[n++] = a->ids[i];
    ids[n++] = special.sep;
    memset(types, 0, (size_t)n);
    if (b) {
        int first = n;
        for (size_t i = 0; i < keep_b; i++) ids[n++] = b->ids[i];
        ids[n++] = special.sep;
        memset(types + first, 1, (size_t)(n - first));
    }
    return n;
}
