#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/vocab.h"

struct Tokenizer {
    const Vocab *vocab;
    TokenizerOptions options;
};

Tokenizer *tokenizer_new(const Vocab *vocab, TokenizerOptions options)
{
    Tokenizer *t = mem_alloc(sizeof *t);
    t->vocab = vocab;
    t->options = options;
    return t;
}

void tokenizer_free(Tokenizer *t) { free(t); }

void token_ids_free(TokenIds *ids)
{
    free(ids->ids);
    *ids = (TokenIds){0};
}

typedef struct {
    const Vocab *vocab;
    TokenIds *out;
} Encoding;

static void add_id(TokenIds *out, int32_t id)
{
    MEM_GROW(out->ids, out->count, out->cap);
    out->ids[out->count++] = id;
}

/* Greedy: the longest piece first, then the longest ## piece each time; [UNK] for the whole word if one is missing. */
static void encode_word(void *context, const char *word, size_t len, size_t chars)
{
    const Encoding *e = context;
    size_t before = e->out->count, used = 0;
    int32_t from = 0;
    bool known = chars <= WORD_MAX;
    for (size_t at = 0; at < len && known; at += used) {
        int32_t id = from < 0 ? -1 : vocab_longest(e->vocab, from, word + at, len - at, &used);
        if (id < 0)
            known = false;
        else
            add_id(e->out, id);
        from = e->vocab->continuation;
    }
    if (known) return;
    e->out->count = before;
    add_id(e->out, e->vocab->special.unk);
}

void tokenizer_encode(const Tokenizer *t, const char *text, size_t len, TokenIds *out)
{
    Encoding e = {t->vocab, out};
    text_words(&t->options, text, len, encode_word, &e);
}

static void append_word(void *context, const char *word, size_t len, size_t chars)
{
    Buf *out = context;
    (void)chars;
    if (out->len) buf_puts(out, " ");
    buf_append(out, word, len);
}

void tokenizer_words(const Tokenizer *t, const char *text, size_t len, Buf *out)
{
    text_words(&t->options, text, len, append_word, out);
}

void tokenizer_encode_first(const Tokenizer *t, const char *text, size_t len, size_t most, TokenIds *out)
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
