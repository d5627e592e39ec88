#include "text/normalize.h"
#include "text/vocab.h"

/* Words met before, with their pieces. A set is a cache line with two words; a new word takes the place of the older
   one. So a word costs the same whatever the text. 4 MiB hold nearly all words of an English text; larger than a core's
   own cache, so sets are read ahead. */
#ifdef CAIRN_FUZZ
#    define CACHE_BITS 4 /* words collide, and a tokenizer is made quickly */
#else
#    define CACHE_BITS 16
#endif
#define CACHE_WAYS   2
#define CACHE_PIECES 3
#define CACHE_MORE   4 /* further pieces of one word of a set; a word with more is not kept */
typedef struct {
    WordKey key; /* of a word of WORD_READABLE bytes at most */
    int32_t ids[CACHE_PIECES], n_ids;
} CachedWord;

typedef struct {
    CachedWord words[CACHE_WAYS]; /* the newer one first */
} CacheSet;

struct Tokenizer {
    const Vocab *vocab;
    TextRules rules;
    CacheSet *cache;             // (1 << CACHE_BITS), each a cache line
    int32_t (*more)[CACHE_MORE]; // (1 << CACHE_BITS, CACHE_MORE) of the set's only word with more than CACHE_PIECES
    void *memory;                /* of the cache */
};

Tokenizer *tokenizer_new(const Vocab *vocab, TokenizerOptions options)
{
    Tokenizer *t = mem_alloc(sizeof *t);
    t->vocab = vocab;
    text_rules_init(&t->rules, options, vocab);
    t->memory = mem_array(((size_t)1 << CACHE_BITS) + 1, sizeof *t->cache);
    t->cache = (CacheSet *)(((uintptr_t)t->memory + sizeof *t->cache - 1) & -(uintptr_t)sizeof *t->cache);
    t->more = mem_array((size_t)1 << CACHE_BITS, sizeof *t->more);
    return t;
}

void tokenizer_free(Tokenizer *t)
{
    if (!t) return;
    text_rules_free(&t->rules);
    MEM_FREE(t->memory, t->more, t);
}

void token_ids_free(TokenIds *ids)
{
    free(ids->ids);
    *ids = (TokenIds){0};
}

typedef struct {
    const Tokenizer *tokenizer;
    TokenIds *out;
} Encoding;

static void add_id(TokenIds *out, int32_t id) { MEM_PUSH(out->ids, out->count, out->cap, id); }

/* Greedy: the longest piece first, then the longest ## piece each time; [UNK] for the whole word if one is missing. */
static void cut_word(const Vocab *vocab, const Word *w, TokenIds *out)
{
    size_t before = out->count, used = 0;
    int32_t from = 0;
    bool known = w->chars <= WORD_MAX;
    for (size_t at = 0; at < w->len && known; at += used) {
        int32_t id = from < 0 ? -1 : trie_longest(vocab->nodes, from, w->text + at, w->len - at, &used);
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

typedef struct {
    WordKey key;
    CacheSet *set;
} CachePlace;

/* Cuts a word and keeps its pieces in the set, if they fit there. */
static __attribute__((noinline)) void meet_word(const Encoding *e, const Word *w, const CachePlace *p)
{
    TokenIds *out = e->out;
    const Tokenizer *t = e->tokenizer;
    size_t before = out->count;
    cut_word(t->vocab, w, out);
    size_t n = out->count - before, kept = n < CACHE_PIECES ? n : CACHE_PIECES;
    if (w->len > WORD_READABLE || n > CACHE_PIECES + CACHE_MORE) return;
    CachedWord *c = p->set->words;
    c[1] = c[0];
    c[0] = (CachedWord){.key = p->key, .n_ids = (int32_t)n};
    memcpy(c[0].ids, out->ids + before, kept * sizeof *out->ids);
    if (n == kept) return;
    memcpy(t->more[p->set - t->cache], out->ids + before + kept, (n - kept) * sizeof *out->ids);
    if (c[1].n_ids > CACHE_PIECES) c[1] = (CachedWord){0};
}

/* The word's key and its set in the cache, which the processor begins to read. */
static inline CachePlace find_place(CacheSet *cache, const Word *w)
{
    WordKey key = word_key(w);
    CacheSet *set = &cache[word_key_hash(key, CACHE_BITS)];
    __builtin_prefetch(set);
    return (CachePlace){key, set};
}

static void encode_words(void *context, const Word *words, size_t n)
{
    enum { AHEAD = 8, MOST = CACHE_PIECES + CACHE_MORE }; /* sets that are read at once; pieces of a word */
    const Encoding e = *(const Encoding *)context;
    const Tokenizer *t = e.tokenizer;
    TokenIds *out = e.out;
    CachePlace places[AHEAD];
    reserve_ids(out, n * MOST);
    int32_t *ids = out->ids + out->count;
    for (size_t i = 0; i < n && i < AHEAD; i++) places[i] = find_place(t->cache, &words[i]);
    for (size_t i = 0; i < n; i++) {
        const Word *w = &words[i];
        const CachePlace p = places[i % AHEAD];
        const CachedWord *c = p.set->words;
        if (i + AHEAD < n) places[i % AHEAD] = find_place(t->cache, w + AHEAD);
        c += ((c->key.low ^ p.key.low) | (c->key.high ^ p.key.high)) != 0;
        if (c->key.low == p.key.low && c->key.high == p.key.high && w->len <= WORD_READABLE) {
            memcpy(ids, c->ids, sizeof c->ids);
            if (c->n_ids > CACHE_PIECES) memcpy(ids + CACHE_PIECES, t->more[p.set - t->cache], sizeof *t->more);
            ids += c->n_ids;
        } else {
            out->count = (size_t)(ids - out->ids);
            meet_word(&e, w, &p);
            reserve_ids(out, (n - i) * MOST);
            ids = out->ids + out->count;
        }
    }
    out->count = (size_t)(ids - out->ids);
}

static void encode_token(void *context, const char *text, size_t len, int32_t id)
{
    const Encoding *e = context;
    const Vocab *vocab = e->tokenizer->vocab;
    if (id < 0) id = vocab_find(vocab, text, len);
    add_id(e->out, id < 0 ? vocab->special.unk : id);
}

void tokenizer_encode(Tokenizer *t, const char *text, size_t len, TokenIds *out)
{
    Encoding e = {t, out};
    text_words(&t->rules, text, len, &(WordSink){&e, encode_words, encode_token});
}

static void append_token(void *context, const char *text, size_t len, int32_t id)
{
    Buf *out = context;
    (void)id;
    if (out->len) buf_puts(out, " ");
    buf_append(out, text, len);
}

static void append_words(void *context, const Word *words, size_t n)
{
    for (size_t i = 0; i < n; i++) append_token(context, words[i].text, words[i].len, -1);
}

void tokenizer_words(const Tokenizer *t, const char *text, size_t len, Buf *out)
{
    text_words(&t->rules, text, len, &(WordSink){out, append_words, append_token});
}

void tokenizer_encode_first(Tokenizer *t, const char *text, size_t len, size_t most, TokenIds *out)
{
    enum { PART = 16384 }; /* bytes; then up to the next blank, because no word goes across one */
    const char *end = text + len;
    while (text < end && out->count < most) {
        size_t left = (size_t)(end - text);
        const char *blank = left > PART && !t->rules.across ? memchr(text + PART, ' ', left - PART) : NULL;
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
        /* Tokens go from the longer side until both are equal, then from each in turn. Of an odd room one more is the
           longer side's, but always a's with the Python tokenizer. */
        bool more_a = t->rules.options.kind == TOKENIZER_PYTHON || keep_a > keep_b;
        size_t most_a = room / 2 + (more_a ? room % 2 : 0), most_b = room - most_a;
        if (keep_b <= most_b) {
            keep_a = room - keep_b;
        } else {
            keep_a = keep_a < most_a ? keep_a : most_a;
            keep_b = room - keep_a;
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
        memset(types + first, !t->rules.options.one_type, (size_t)(n - first));
    }
    return n;
}
